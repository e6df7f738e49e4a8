//! The first inputs of a target: those made by code, and the files of inputs that once broke something.

use crate::target::Target;
use std::fs;
use std::io;
use std::path::Path;

/// A target's seeds, and the files of its directory below `corpus`, in the order of their names.
///
/// # Errors
/// When a file of the corpus cannot be read.
pub fn corpus(target: &Target) -> io::Result<Vec<Vec<u8>>> {
    let mut inputs = (target.seeds)();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target.name);
    let mut paths = match fs::read_dir(directory) {
        Ok(files) => files
            .map(|file| file.map(|file| file.path()))
            .collect::<io::Result<Vec<_>>>()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    paths.sort();
    for path in paths {
        inputs.push(fs::read(path)?);
    }
    Ok(inputs)
}
