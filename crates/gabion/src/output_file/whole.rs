//! A new file that a library writes by its path. It gets its name when it is whole, and never replaces another file.

use super::directory_of;
use crate::failure::{Context, Failure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Ends the name of a file until it is whole.
const UNFINISHED: &str = ".unfinished";

/// Makes a file that gets its name when it is whole and checked, so that no coordinator takes a part of a copy for
/// metadata. What an interrupted command has left of it is removed first.
///
/// # Errors
/// Those of `make`, and exit code 1 when the directory cannot be written. Then no file is left.
pub(crate) fn into_new_file<T>(
    path: &Path,
    make: impl FnOnce(&Path) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(UNFINISHED);
    let unfinished = PathBuf::from(unfinished);
    let work = || {
        if unfinished.exists() {
            let removed = fs::remove_file(&unfinished);
            removed.context(format!("remove {}", unfinished.display()))?;
        }
        let result = make(&unfinished)?;
        let named = fs::rename(&unfinished, path);
        named.context(format!("rename {}", unfinished.display()))?;
        let directory = directory_of(path);
        let synced = File::open(directory).and_then(|directory| directory.sync_all());
        synced.context(format!("sync {}", directory.display()))?;
        Ok(result)
    };
    work().inspect_err(|_| {
        // The first error is the one to tell.
        let _ = fs::remove_file(&unfinished);
    })
}

/// Refuses a file that exists.
///
/// # Errors
/// Exit code 1.
pub(crate) fn check_new(path: &Path) -> Result<(), Failure> {
    if path.exists() {
        return Err(Failure::failed(format!(
            "{} already exists; choose a new file for the copy",
            path.display()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_whole_or_not_there() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let count = || fs::read_dir(directory.path()).unwrap().count();
        // An interrupted command has left it.
        fs::write(at("f.unfinished"), "half").unwrap();
        check_new(&at("f")).unwrap();
        let failed = into_new_file(&at("f"), |path| {
            assert!(!path.exists());
            fs::write(path, "a part").unwrap();
            Err::<(), _>(Failure::failed("no more"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "no more");
        assert_eq!(count(), 0);
        let made = into_new_file(&at("f"), |path| {
            fs::write(path, "all").unwrap();
            assert!(!at("f").exists());
            Ok(7)
        });
        assert_eq!(made.unwrap(), 7);
        assert_eq!(fs::read(at("f")).unwrap(), b"all");
        assert_eq!(count(), 1);
        assert!(check_new(&at("f")).is_err());
    }
}
