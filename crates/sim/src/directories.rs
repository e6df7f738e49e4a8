//! A directory that one client makes, fills, moves and removes, under all faults: a file below it has the old path
//! until the move and the new one from then on; the same holds for its other name and a symbolic link. All keep their
//! attributes. The directory and a file exchange their names, and exchange them back.

use crate::client::SimClient;
use crate::cluster::Cluster;
use crate::workload::draw_size;
use gabion_client::{Cause, ClientError, Presence};
use gabion_meta::{AttributeChange, Attributes, Existing, Inode, NewAttributes};

/// The user attribute of the file.
const NAME: &str = "user.number";

/// A directory that no other client knows, and what is in it.
struct Moving<'a> {
    client: &'a SimClient,
    number: u64,
    mode: u32,
}

/// Makes a directory with a file that no other client knows, gives both attributes and the file another name, moves the
/// directory, and removes all.
pub(crate) async fn move_directory(
    cluster: &Cluster,
    client: &SimClient,
) -> Result<(), ClientError> {
    let number: u64 = cluster.world.roll(crate::dice::Dice::any);
    let [from, to] = ["from", "to/there"].map(|place| format!("moved/{number}/{place}"));
    let moving = Moving {
        client,
        number,
        mode: (number % (u64::from(Attributes::MODE_MAX) + 1)) as u32,
    };
    moving.fill(&from, draw_size(cluster)).await?;
    let [[old, old_link], [new, new_link]] = [&from, &to].map(|directory| names(directory));
    let pairs = [(&*old, &*new), (&*old_link, &*new_link)];
    client.rename_directory((&from, &to), &pairs).await?;
    moving.check_moved(&pairs).await?;
    moving.check(&to).await?;
    moving.check_gone(&[&from]).await?;
    moving.exchange(&to, draw_size(cluster)).await?;
    client.count(|coverage| coverage.directory_count += 1);
    moving.remove(&to).await
}

/// The names of the file.
fn names(directory: &str) -> [String; 2] {
    ["below/file", "link"].map(|name| format!("{directory}/{name}"))
}

/// The name of the symbolic link.
fn symlink_in(directory: &str) -> String {
    format!("{directory}/symlink")
}

impl Moving<'_> {
    async fn fill(&self, directory: &str, cell_count: u64) -> Result<(), ClientError> {
        let client = &self.client.client;
        let made = client.make_directory(directory, NewAttributes::DIRECTORY);
        made.await?;
        let [file, link] = names(directory);
        self.client.put(&file, cell_count).await?;
        self.client.link(&file, &link).await?;
        let target = self.number.to_string();
        let made = client.make_symlink(symlink_in(directory), &target, None, NewAttributes::FILE);
        made.await?;
        for path in [directory, &file] {
            let change = AttributeChange {
                mode: Some(self.mode),
                ..AttributeChange::default()
            };
            client.set_attributes(path, &change).await?;
        }
        let inode = client.inode(&link).await?.inode;
        let value = Some(self.number.to_le_bytes().to_vec());
        client
            .set_user_attribute(inode, (NAME, value), Presence::Absent)
            .await
    }

    /// Lets the directory and a file exchange their names, and exchange them back: a late copy of a request must not
    /// exchange them once more.
    async fn exchange(&self, directory: &str, cell_count: u64) -> Result<(), ClientError> {
        let aside = format!("moved/{}/aside", self.number);
        self.client.put(&aside, cell_count).await?;
        let [[file, link], [file_aside, link_aside]] = [directory, &aside].map(names);
        let names = [
            (&*aside, directory),
            (&*file, &*file_aside),
            (&*link, &*link_aside),
        ];
        let back = names.map(|(old, new)| (new, old));
        self.client.exchange((directory, &aside), &names).await?;
        self.check_moved(&names).await?;
        self.check(&aside).await?;
        self.client.exchange((&aside, directory), &back).await?;
        self.check_moved(&back).await?;
        self.check(directory).await?;
        self.client.remove(&aside).await
    }

    /// Files have moved from the first of these names to the second.
    async fn check_moved(&self, names: &[(&str, &str)]) -> Result<(), ClientError> {
        for (old, new) in names {
            self.client.open(new).await?;
            if self.client.open(old).await.is_ok() {
                self.client
                    .fail(format!("{old} is there, though it was moved to {new}"));
            }
        }
        Ok(())
    }

    /// Compares what is in a directory with what was put there.
    async fn check(&self, directory: &str) -> Result<(), ClientError> {
        let client = &self.client.client;
        let [file, link] = names(directory);
        for path in [directory, &file, &link] {
            let mode = client.inode(path).await?.attributes.mode;
            if mode != self.mode {
                let given = self.mode;
                self.client
                    .fail(format!("{path} has the mode {mode:o}, not {given:o}"));
            }
        }
        let (first, second) = (client.inode(&file).await?, client.inode(&link).await?);
        if first.inode != second.inode || first.link_count != 2 {
            self.client
                .fail(format!("{file} and {link} are not two names of one file"));
        }
        let user = client.user_attributes(first.inode).await?;
        if user.get(NAME).map(Vec::as_slice) != Some(&self.number.to_le_bytes()) {
            self.client
                .fail(format!("{file} has lost its user attribute"));
        }
        if let Inode::File(symlink) = client.inode(symlink_in(directory)).await?.inode {
            let target = client.read_link(symlink).await?;
            if target != self.number.to_string() {
                self.client.fail(format!(
                    "the symbolic link in {directory} leads to {target}"
                ));
            }
        }
        Ok(())
    }

    async fn remove(&self, directory: &str) -> Result<(), ClientError> {
        let client = &self.client.client;
        let [file, link] = names(directory);
        self.client.remove(&file).await?;
        self.client.open(&link).await?;
        self.client.remove(&link).await?;
        let is_full = client.remove_directory(directory).await;
        match is_full {
            // A directory is in it.
            Err(error) if error.cause() == Cause::NotEmpty => {}
            Ok(()) => self.client.fail(format!(
                "{directory} was removed with the directory below it"
            )),
            Err(error) => return Err(error),
        }
        client.rm(symlink_in(directory)).await?;
        // An empty directory gives its name to another one.
        let below = format!("{directory}/below");
        let another = format!("moved/{}/another", self.number);
        let made = client.make_directory(&another, NewAttributes::DIRECTORY);
        made.await?;
        client
            .rename(&another, &below, Existing::IsReplaced)
            .await?;
        client.remove_directory(below).await?;
        client.remove_directory(directory).await?;
        self.check_gone(&[directory, &another]).await
    }

    /// A late copy of a request must not make again what was removed.
    async fn check_gone(&self, paths: &[&str]) -> Result<(), ClientError> {
        for path in paths {
            match self.client.client.inode(*path).await {
                Err(error) if error.cause() == Cause::NotFound => {}
                Ok(_) => self
                    .client
                    .fail(format!("{path} is there, though it was removed")),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
