//! Options of the commands on stored files.

use super::checks;
use clap::Args;
use gabion_layout::parse_bytes;
use std::num::NonZeroU64;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(crate) struct PutOptions {
    /// Local file; - is stdin. Stdin, FIFOs and devices are read to their end
    pub(crate) file: PathBuf,
    /// Name of the stored file
    #[arg(value_parser = checks::file_name)]
    pub(crate) name: String,
    /// Pool [default: the only pool]
    #[arg(long, value_parser = checks::pool_name)]
    pub(crate) pool: Option<String>,
    /// Replace an existing file of this name, atomically, once the new file is stored
    #[arg(long)]
    pub(crate) replace: bool,
    /// Keep the mode, the owner and the times of the local file; without this, the new file gets only its permissions
    /// and belongs to the user of this command
    #[arg(short, long)]
    pub(crate) preserve: bool,
}

#[derive(Args, Debug)]
pub(crate) struct CopyOptions {
    /// Name of the file
    #[arg(value_parser = checks::file_name)]
    pub(crate) name: String,
    /// Name of the copy
    #[arg(value_parser = checks::file_name)]
    pub(crate) to: String,
    /// Pool of the copy [default: the pool of the file]
    #[arg(long, value_parser = checks::pool_name)]
    pub(crate) pool: Option<String>,
    /// Replace an existing file of this name, atomically, once the copy is complete
    #[arg(long)]
    pub(crate) replace: bool,
    /// Keep the mode, the owner and the times of the file; without this, the copy gets only its permissions and belongs
    /// to the user of this command
    #[arg(short, long)]
    pub(crate) preserve: bool,
}

#[derive(Args, Debug)]
pub(crate) struct MoveOptions {
    /// Name of the file or the directory
    #[arg(value_parser = checks::file_name)]
    pub(crate) name: String,
    /// New name
    #[arg(value_parser = checks::file_name)]
    pub(crate) to: String,
    /// Replace an existing file of the new name; a directory may replace an empty directory
    #[arg(long)]
    pub(crate) replace: bool,
    /// Exchange the two names, of files or directories; both must exist
    #[arg(long, conflicts_with = "replace")]
    pub(crate) exchange: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PunchOptions {
    /// Name of the file
    #[arg(value_parser = checks::file_name)]
    pub(crate) name: String,
    /// Offset of the first byte
    #[arg(long, value_parser = parse_bytes)]
    pub(crate) offset: u64,
    /// Number of bytes; bytes beyond the end of the file are ignored
    #[arg(long, value_parser = checks::some_bytes)]
    pub(crate) length: NonZeroU64,
}

#[derive(Args, Debug)]
pub(crate) struct ShareOptions {
    /// Name of the file, the directory or the snapshot
    #[arg(value_parser = checks::file_name)]
    pub(crate) name: String,
    /// Name of the new file or directory
    #[arg(value_parser = checks::file_name)]
    pub(crate) to: String,
}

#[derive(Args, Debug)]
pub(crate) struct LinkOptions {
    /// Name of the file, or the target path of a symbolic link
    pub(crate) target: String,
    /// New name
    #[arg(value_parser = checks::file_name)]
    pub(crate) name: String,
    /// Create a symbolic link
    #[arg(short, long)]
    pub(crate) symbolic: bool,
    /// Pool of the symbolic link [default: the only pool]
    #[arg(long, requires = "symbolic", value_parser = checks::pool_name)]
    pub(crate) pool: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct ListOptions {
    /// List only names with this prefix
    #[arg(default_value = "")]
    pub(crate) prefix: String,
    /// Cut each name behind the first delimiter after the prefix, and show equal results once: with /, one level of
    /// names
    #[arg(long, value_name = "TEXT")]
    pub(crate) delimiter: Option<String>,
    /// List only names that sort after this one
    #[arg(long, value_name = "NAME")]
    pub(crate) after: Option<String>,
    /// List at most this number of names
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct GetOptions {
    /// Name of the stored file
    #[arg(value_parser = checks::file_name)]
    pub(crate) name: String,
    /// Local file, replaced once all bytes have arrived; - is stdout. Devices and FIFOs are written directly
    pub(crate) file: PathBuf,
    /// Offset of the first byte to read [default: 0]
    #[arg(long, default_value = "0", hide_default_value = true, value_parser = parse_bytes)]
    pub(crate) offset: u64,
    /// Number of bytes to read [default: up to the end]
    #[arg(long, value_parser = parse_bytes)]
    pub(crate) length: Option<u64>,
    /// Give the local file the permissions and the times of the stored file
    #[arg(short, long)]
    pub(crate) preserve: bool,
}

#[derive(Args, Debug)]
pub(crate) struct WriteOptions {
    /// Name of the stored file
    #[arg(value_parser = checks::file_name)]
    pub(crate) name: String,
    /// Offset of the bytes in the file
    #[arg(long, value_parser = parse_bytes)]
    pub(crate) offset: u64,
    /// Local file with the new bytes; - reads stdin
    pub(crate) file: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct AppendOptions {
    /// Name of the stored file
    #[arg(value_parser = checks::file_name)]
    pub(crate) name: String,
    /// Local file with the new bytes; - reads stdin and appends each 8 MiB as they arrive
    pub(crate) file: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct CreateOptions {
    /// Name of the file
    #[arg(value_parser = checks::file_name)]
    pub(crate) name: String,
    /// Size of the file
    #[arg(long, default_value = "0", value_parser = checks::file_bytes)]
    pub(crate) size: u64,
    /// Pool [default: the only pool]
    #[arg(long, value_parser = checks::pool_name)]
    pub(crate) pool: Option<String>,
}
