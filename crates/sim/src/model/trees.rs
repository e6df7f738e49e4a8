//! Snapshots and clones of directories in the model: each has all that is below the directory at one instant, and is
//! a tree of its own from then on.

use super::answer::{Answer, Outcome};
use super::entry::{DirectoryModel, Entry};
use super::expected::{Expected, check_name, is_below};
use super::files::FileModel;
use super::options::Wrong;
use gabion_client::Cause;
use std::collections::BTreeMap;

impl Expected {
    /// Makes a snapshot or a clone of a directory.
    pub(crate) fn share_tree(&mut self, (path, to): (&str, &str), is_read_only: bool) -> Outcome {
        if matches!(self.get(path)?, Entry::File(_)) {
            return Ok(Answer::Done);
        }
        check_name(to)?;
        if is_below(to, path) {
            return Err(Cause::Invalid);
        }
        self.check_free(to)?;
        self.check_place(to)?;
        self.make_parents(to);
        let is_in = |other: &str| other == path || is_below(other, path);
        let tree = self.entries.iter().filter(|(other, _)| is_in(other));
        let tree: Vec<(String, Entry)> = tree
            .map(|(other, entry)| (other[path.len()..].to_owned(), entry.clone()))
            .collect();
        let mut copies = BTreeMap::new();
        for (rest, entry) in tree {
            let copy = match entry {
                Entry::Directory(directory) => Entry::Directory(DirectoryModel {
                    quota: None,
                    is_read_only: is_read_only && self.wrong != Some(Wrong::SnapshotsAcceptNames),
                    ..directory
                }),
                // Names of one file are names of one file again.
                Entry::File(file) => Entry::File(*copies.entry(file).or_insert_with(|| {
                    let file = FileModel::clone(&self.files[&file]);
                    self.add_file(FileModel {
                        is_read_only,
                        ..file
                    })
                })),
            };
            self.entries.insert(format!("{to}{rest}"), copy);
        }
        if !is_read_only {
            self.clones.extend(copies.into_values());
        }
        Ok(Answer::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::files::Sizes;
    use crate::model::operation::{Content, Operation, PutAs};

    fn put(path: &str) -> Operation {
        Operation::Put {
            path: path.to_owned(),
            content: Content::of(1, 5),
            replaces: false,
            put_as: PutAs::Known,
        }
    }

    fn share(path: &str, to: &str, is_read_only: bool) -> Operation {
        Operation::ShareTree {
            path: path.to_owned(),
            to: to.to_owned(),
            is_read_only,
        }
    }

    #[test]
    fn a_snapshot_of_a_directory_accepts_no_names_and_a_clone_of_it_does() {
        let sizes = Sizes {
            stripe_bytes: 100,
            inline_bytes: 0,
        };
        let mut expected = Expected::new("base", sizes, None);
        let mut apply = |operation: Operation| expected.apply(&operation);
        assert_eq!(apply(put("a/b/one")), Ok(Answer::Done));
        let link = Operation::Link("a/b/one".to_owned(), "a/two".to_owned());
        assert_eq!(apply(link), Ok(Answer::Done));
        assert_eq!(apply(share("a", "a/c", true)), Err(Cause::Invalid));
        assert_eq!(apply(share("a", "s/a", true)), Ok(Answer::Done));
        assert_eq!(apply(put("s/a/b/new")), Err(Cause::ReadOnly));
        assert_eq!(apply(put("s/a/d/new")), Err(Cause::ReadOnly));
        assert_eq!(apply(put("s/new")), Ok(Answer::Done));
        assert_eq!(
            apply(Operation::Remove("s/a/two".to_owned())),
            Ok(Answer::Done)
        );
        assert_eq!(apply(share("s/a", "t", false)), Ok(Answer::Done));
        assert_eq!(apply(put("t/b/new")), Ok(Answer::Done));
        let file = expected.file_at("a/b/one");
        let copy = expected.file_at("s/a/b/one").expect("it is there");
        assert_ne!(file, Some(copy));
        assert_eq!(expected.paths_of(copy), ["s/a/b/one"]);
        assert!(expected.files[&copy].is_read_only);
    }
}
