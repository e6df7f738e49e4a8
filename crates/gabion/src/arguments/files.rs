//! Options of the commands on stored files.

use super::checks;
use crate::output::parse_bytes;
use clap::Args;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(crate) struct PutOptions {
    /// Local file; - reads stdin to its end, whatever its size, as do FIFOs and devices
    pub(crate) file: PathBuf,
    /// Name of the stored file
    #[arg(value_parser = checks::file_name)]
    pub(crate) name: String,
    /// Pool; may be omitted if there is only one
    #[arg(long, value_parser = checks::pool_name)]
    pub(crate) pool: Option<String>,
    /// Replace the file that has the name already, at once when the new one is stored
    #[arg(long)]
    pub(crate) replace: bool,
    /// Keep the whole mode, the owner and the times of the local file; without this, the new file has its permissions,
    /// and belongs to the user who runs the command
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
    /// Pool of the copy; the default is that of the file
    #[arg(long, value_parser = checks::pool_name)]
    pub(crate) pool: Option<String>,
    /// Replace the file that has the name already, at once when the copy is complete
    #[arg(long)]
    pub(crate) replace: bool,
    /// Keep the whole mode, the owner and the times of the file; without this, the copy has its permissions, and belongs
    /// to the user who runs the command
    #[arg(short, long)]
    pub(crate) preserve: bool,
}

#[derive(Args, Debug)]
pub(crate) struct LinkOptions {
    /// Name of the file; the path to which a symbolic link leads
    pub(crate) target: String,
    /// The new name
    #[arg(value_parser = checks::file_name)]
    pub(crate) name: String,
    /// Make a symbolic link
    #[arg(short, long)]
    pub(crate) symbolic: bool,
    /// Pool of the symbolic link; may be omitted when there is only one
    #[arg(long, requires = "symbolic", value_parser = checks::pool_name)]
    pub(crate) pool: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct ListOptions {
    /// List only names with this prefix
    #[arg(default_value = "")]
    pub(crate) prefix: String,
    /// Join names up to the first of these behind the prefix, for example /
    #[arg(long, value_name = "TEXT")]
    pub(crate) delimiter: Option<String>,
    /// List only names behind this one
    #[arg(long, value_name = "NAME")]
    pub(crate) after: Option<String>,
    /// List at most this many
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct GetOptions {
    /// Name of the stored file
    #[arg(value_parser = checks::file_name)]
    pub(crate) name: String,
    /// Local file, replaced once all bytes have arrived; devices and FIFOs are written directly, -
    /// is stdout
    pub(crate) file: PathBuf,
    /// First byte to read; the default is the beginning
    #[arg(long, default_value = "0", hide_default_value = true, value_parser = parse_bytes)]
    pub(crate) offset: u64,
    /// Bytes to read; the default is up to the end
    #[arg(long, value_parser = parse_bytes)]
    pub(crate) length: Option<u64>,
    /// Give the local file the permissions and the times of the stored one
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
    /// Local file with the new bytes; - reads stdin, of which each 8 MiB are appended as they arrive
    pub(crate) file: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct CreateOptions {
    /// Name of the file
    #[arg(value_parser = checks::file_name)]
    pub(crate) name: String,
    /// Its size
    #[arg(long, default_value = "0", value_parser = parse_bytes)]
    pub(crate) size: u64,
    /// Pool; may be omitted if there is only one
    #[arg(long, value_parser = checks::pool_name)]
    pub(crate) pool: Option<String>,
}
