//! Hard links (further names of a file) and symbolic links.

use crate::attributes::{Attributes, NewAttributes};
use crate::directories::{link, make_parents};
use crate::directory_rows::{absolute, check_free};
use crate::directory_uses::check_border;
use crate::error::MetaError;
use crate::files::{file_of, put_file};
use crate::hard_links::{NAMES_MAX, others, set_others};
use crate::ids::Leased;
use crate::kv::KeyValue;
use crate::meta::Meta;
use crate::names::{check_attributes, check_file_name, check_target};
use crate::orphans::check_no_orphan;
use crate::paths::RelativePath;
use crate::pools::pool;
use crate::quotas::{check_files, count_file};
use crate::records::{FileRecord, Inode, PutId, Symlink};
use gabion_layout::PoolId;

impl<K: KeyValue> Meta<K> {
    /// Gives the file that `put` made one more name, if its names are in this generation. Does nothing if the change
    /// with this number was made: a lost answer leads to a second request.
    ///
    /// # Errors
    /// [`MetaError::FileGone`]; [`MetaError::FileRenamed`] when its names are in another generation;
    /// [`MetaError::TooManyNames`]; [`MetaError::FileName`]; [`MetaError::FileExists`];
    /// [`MetaError::DirectoryExists`]; [`MetaError::NotADirectory`]; [`MetaError::DirectoryGone`];
    /// [`MetaError::Quota`] when another quota counts what is there.
    pub fn link(
        &self,
        put: PutId,
        (generation, number): (u64, u64),
        to: impl Into<RelativePath>,
    ) -> Result<(), MetaError> {
        let (to, now) = (to.into(), self.wall_time());
        self.change_once(number, |txn| {
            let mut file = file_of(txn, put)?;
            check_no_orphan(&file)?;
            let path = absolute(txn, &to)?;
            check_file_name(&path)?;
            if file.generation != generation {
                return Err(MetaError::FileRenamed(file.name));
            }
            check_free(txn, &path)?;
            let mut names = others(txn, put)?;
            if names.len() + 1 >= NAMES_MAX {
                return Err(MetaError::TooManyNames(file.name));
            }
            let (directory, name) = make_parents(txn, &path, (file.attributes.for_parent(), now))?;
            check_border(txn, (Inode::File(put), file.quota), (directory, &path))?;
            let key = (directory, name.to_owned());
            link(txn, &key, Inode::File(put), now)?;
            names.push(key);
            set_others(txn, put, &names)?;
            file.link_count = names.len() as u64 + 1;
            file.generation = generation.saturating_add(1);
            file.attributes.note_change(now);
            put_file(txn, &file)
        })
    }

    /// Makes a symbolic link to `target`, which need not exist. Does nothing if the change with this number was made: a
    /// lost answer leads to a second request.
    ///
    /// # Errors
    /// [`MetaError::Target`]; otherwise those of [`Meta::make_directory`], and [`MetaError::UnknownPool`].
    pub fn make_symlink(
        &self,
        at: impl Into<RelativePath>,
        target: &str,
        (pool_id, attributes): (PoolId, NewAttributes),
        (number, now_ms): (u64, u64),
    ) -> Result<(), MetaError> {
        let at = at.into();
        check_target(target)?;
        check_attributes(&attributes.into())?;
        let now = self.wall_time();
        self.change_once(number, |txn| {
            let path = absolute(txn, &at)?;
            check_file_name(&path)?;
            check_free(txn, &path)?;
            pool(txn, pool_id)?;
            check_files(txn, pool_id)?;
            let put = PutId(txn.take(Leased::Put, 1)?);
            let attributes = Attributes::new(attributes, now);
            let (directory, name) = make_parents(txn, &path, (attributes.for_parent(), now))?;
            let key = (directory, name.to_owned());
            link(txn, &key, Inode::File(put), now)?;
            let file = FileRecord {
                symlink: Some(Symlink {
                    target: target.to_owned(),
                }),
                ..FileRecord::new(key, (put, pool_id), attributes, now_ms)
            };
            count_file(txn, &file)?;
            put_file(txn, &file)
        })
    }
}
