//! The operations of the model on the cluster, by the real client.

use super::answer::{Answer, FileNumber, InodeKind, Status};
use super::operation::{Access, Operation, PutAs};
use super::runner::Runner;
use super::within::POOL;
use bytes::Bytes;
use gabion_client::{Client, ClientError, File, NewFile, Presence};
use gabion_layout::ByteRange;
use gabion_meta::{
    AttributeChange, Existing, Inode, InodeStatus, Kind, Listing, NewAttributes, PutId,
};
use std::ops::Range;

pub(crate) type Outcome = Result<Answer, ClientError>;

/// The range of a read or a hole.
const fn byte_range(range: &Range<u64>) -> ByteRange {
    ByteRange::new(range.start, range.end - range.start)
}

impl Runner {
    /// Carries out an operation.
    pub(crate) async fn perform(&mut self, operation: &Operation) -> Outcome {
        match operation {
            Operation::File {
                path,
                is_old,
                access,
            } => {
                let known = self.expected.file_at(path);
                let Some(number) = known.filter(|_| *is_old) else {
                    let path = self.expected.absolute(path);
                    let file = self.client.client.open(&path).await?;
                    return self.access(&file, known, access).await;
                };
                let file = self.handle(path, number).await?;
                let done = self.access(&file, known, access).await;
                self.may_close(number);
                done
            }
            Operation::UseRemoved(number) => {
                let file = self.handles.remove(number);
                let file = file.expect("only handles are drawn");
                file.grow(file.size_bytes() + 1).await.map(done)
            }
            Operation::List {
                prefix,
                after,
                limit,
                is_directory,
            } => {
                let prefix = self.expected.absolute(prefix);
                let after = after.as_ref().map(|after| self.expected.absolute(after));
                let page = (&*prefix, after.as_deref());
                list(&self.client.client, page, *limit, *is_directory).await
            }
            Operation::Lock(lock) => self.lock(lock).await,
            Operation::Alone(alone) => self.use_alone(alone).await,
            Operation::KillClient => self.kill_client().await,
            Operation::CutOff { ms } => self.cut_off(*ms).await,
            Operation::Wait { ms } => {
                self.cluster.world.sleep(ms * 1_000).await;
                Ok(Answer::Done)
            }
            _ => self.change_names(operation).await,
        }
    }

    /// The handle of the other client for a file. It opens the file once.
    async fn handle(&mut self, path: &str, number: FileNumber) -> Result<File, ClientError> {
        if let Some(file) = self.handles.get(&number) {
            return Ok(file.clone());
        }
        let path = self.expected.absolute(path);
        let file = self.other.client.open(&path).await?;
        self.handles.insert(number, file.clone());
        Ok(file)
    }

    async fn change_names(&self, operation: &Operation) -> Outcome {
        let client = &self.client.client;
        let absolute = |path: &String| self.expected.absolute(path);
        match operation {
            Operation::Put {
                path,
                content,
                replaces,
                put_as,
            } => {
                put(
                    client,
                    (&absolute(path), *replaces),
                    content.bytes(),
                    *put_as,
                )
                .await
            }
            Operation::MakeDirectory(path) => {
                let made = client.make_directory(absolute(path), NewAttributes::DIRECTORY);
                made.await.map(done)
            }
            Operation::RemoveDirectory(path) => {
                client.remove_directory(absolute(path)).await.map(done)
            }
            Operation::Remove(path) => client.rm(absolute(path)).await.map(done),
            Operation::Rename { from, to, replaces } => {
                let existing = existing(*replaces);
                let renamed = client.rename(absolute(from), absolute(to), existing);
                renamed.await.map(done)
            }
            Operation::Exchange(one, other) => {
                let exchanged = client.exchange_names(absolute(one), absolute(other));
                exchanged.await.map(done)
            }
            Operation::Symlink(at, target) => {
                let attributes = NewAttributes::FILE;
                let made = client.make_symlink(absolute(at), target, Some(POOL), attributes);
                made.await.map(done)
            }
            Operation::Link(path, to) => match inode(client, absolute(path)).await? {
                Inode::Directory(_) => Ok(Answer::Done),
                Inode::File(file) => client.link(file, absolute(to)).await.map(done),
            },
            Operation::ReadLink(path) => match inode(client, absolute(path)).await? {
                Inode::Directory(_) => Ok(Answer::Done),
                Inode::File(file) => client.read_link(file).await.map(Answer::Target),
            },
            Operation::Share {
                path,
                to,
                is_read_only,
            } => match inode(client, absolute(path)).await? {
                Inode::Directory(_) => Ok(Answer::Done),
                file @ Inode::File(_) => {
                    let made = client.snapshot(file, absolute(to), *is_read_only);
                    made.await.map(done)
                }
            },
            _ => self.change_attributes(operation).await,
        }
    }

    async fn change_attributes(&self, operation: &Operation) -> Outcome {
        let client = &self.client.client;
        match operation {
            Operation::Look(path) => {
                let status = client.inode(self.expected.absolute(path)).await?;
                Ok(Answer::Status(status_of(&status)))
            }
            Operation::SetMode(path, mode) => {
                let change = AttributeChange {
                    mode: Some(*mode),
                    ..AttributeChange::default()
                };
                let path = self.expected.absolute(path);
                let set = client.set_attributes(path, &change).await;
                set.map(|_| Answer::Done)
            }
            Operation::SetUserAttribute {
                path,
                name,
                value,
                is_there,
            } => {
                let inode = inode(client, self.expected.absolute(path)).await?;
                let value = value.map(|value| vec![value]);
                let presence = match is_there {
                    None => Presence::Any,
                    Some(true) => Presence::There,
                    Some(false) => Presence::Absent,
                };
                let set = client.set_user_attribute(inode, (name, value), presence);
                set.await.map(done)
            }
            Operation::ShareTree {
                path,
                to,
                is_read_only,
            } => self.share_tree((path, to), *is_read_only).await,
            Operation::Quota { path, change } => self.set_quota(path, *change).await,
            Operation::LimitFiles(limit) => self.limit_files(*limit).await,
            Operation::Within(within) => self.use_within(within).await,
            other => unreachable!("{other:?} is carried out elsewhere"),
        }
    }

    pub(crate) async fn access(
        &self,
        file: &File,
        known: Option<FileNumber>,
        access: &Access,
    ) -> Outcome {
        match access {
            Access::Write(at, content) => {
                let bytes = Bytes::from(content.bytes());
                file.write(*at, bytes).await.map(done)
            }
            Access::WritePieces(at, content) => {
                let bytes = Bytes::from(content.bytes());
                file.write_pieces(*at, bytes).await.map(done)
            }
            Access::Zero(range) => {
                let zeros = vec![0; (range.end - range.start) as usize];
                file.write(range.start, zeros.into()).await.map(done)
            }
            Access::Append(content) => {
                let bytes = Bytes::from(content.bytes());
                file.append(bytes).await.map(Answer::Offset)
            }
            Access::Grow(to) => file.grow(*to).await.map(done),
            Access::Truncate(to) => file.truncate(*to).await.map(done),
            Access::Punch(range) => file.punch(byte_range(range)).await.map(done),
            Access::Read(range) => file.read(byte_range(range)).await.map(Answer::Bytes),
            Access::ReadStored => {
                let ranges = stored(file).await?;
                let Some(file) = known else {
                    return Ok(Answer::Done);
                };
                let (known, sizes) = (&self.expected.files[&file], self.expected.sizes);
                let wrong = known.check_stored(&ranges, sizes);
                Ok(wrong.map_or(Answer::Done, Answer::Wrong))
            }
        }
    }
}

pub(crate) const fn done((): ()) -> Answer {
    Answer::Done
}

pub(crate) const fn existing(replaces: bool) -> Existing {
    if replaces {
        Existing::IsReplaced
    } else {
        Existing::Stays
    }
}

/// The id of what has a path.
async fn inode(client: &Client, path: String) -> Result<Inode, ClientError> {
    client.inode(path).await.map(|status| status.inode)
}

/// The ranges of a file that are stored.
pub(crate) async fn stored(file: &File) -> Result<Vec<Range<u64>>, ClientError> {
    let all = ByteRange::new(0, u64::MAX);
    let ranges = file.stored_within(all).await?.into_iter();
    Ok(ranges.map(|range| range.offset..range.end()).collect())
}

pub(crate) fn status_of(status: &InodeStatus) -> Status {
    Status {
        kind: match status.kind {
            Kind::Directory => InodeKind::Directory,
            Kind::File => InodeKind::File,
            Kind::Symlink => InodeKind::Symlink,
        },
        size_bytes: status.size_bytes,
        link_count: status.link_count,
        mode: status.attributes.mode,
        is_read_only: status.is_read_only,
    }
}

/// The id of a file.
pub(crate) const fn put_id(inode: Inode) -> Option<PutId> {
    match inode {
        Inode::File(put) => Some(put),
        Inode::Directory(_) => None,
    }
}

async fn put(
    client: &Client,
    (path, replaces): (&str, bool),
    bytes: Vec<u8>,
    put_as: PutAs,
) -> Outcome {
    let new = NewFile {
        existing: existing(replaces),
        pool: Some(POOL),
        ..NewFile::named(path)
    };
    let size_bytes = bytes.len() as u64;
    let bytes = bytes.as_slice();
    let stored = match put_as {
        PutAs::Create => return client.create(new).await.map(|_| Answer::Done),
        PutAs::Known => client.put_over(new, bytes, size_bytes, &()).await?,
        PutAs::Stream => client.put_stream(new, bytes, &()).await?,
    };
    if stored.size_bytes == size_bytes {
        return Ok(Answer::Done);
    }
    let what = format!("{} of {size_bytes} bytes", stored.size_bytes);
    Ok(Answer::Wrong(what))
}

/// A page of a list.
pub(crate) async fn list(
    client: &Client,
    (prefix, after): (&str, Option<&str>),
    limit: u64,
    is_directory: bool,
) -> Outcome {
    let delimiter = is_directory.then_some("/");
    let listed = client.list(prefix, after, delimiter, limit).await?;
    let Listing {
        files,
        prefixes,
        is_cut,
    } = listed;
    Ok(Answer::Listing {
        files: files.into_iter().map(|file| file.name).collect(),
        directories: prefixes,
        is_cut,
    })
}
