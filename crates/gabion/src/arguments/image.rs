//! Arguments of `gabion image` and `gabion nbd`.

use super::checks;
use clap::{Args, Subcommand};
use gabion_layout::parse_bytes;
use gabion_meta::FILE_BYTES_MAX;
use gabion_nbd::ImageName;
use std::path::PathBuf;

/// Bytes of a sector. Guests address sectors, so sizes of images are multiples of it.
const SECTOR_BYTES: u64 = 512;
/// Most bytes of an image: the sectors of the largest file.
const IMAGE_BYTES_MAX: u64 = FILE_BYTES_MAX / SECTOR_BYTES * SECTOR_BYTES;

#[derive(Subcommand, Debug)]
pub(crate) enum ImageCommand {
    /// Create an image of zeros, which takes no space until it is written
    Create {
        /// Name of the image, as POOL/NAME
        #[arg(value_parser = checks::image_name)]
        name: ImageName,
        /// Size: a multiple of 512 bytes
        #[arg(long, value_parser = parse_image_size)]
        size: u64,
    },
    /// List images
    Ls {
        /// List only this pool
        #[arg(value_parser = checks::pool_name)]
        pool: Option<String>,
    },
    /// Show an image's size, its space, and the failures that it survives
    Info {
        /// Name of the image, as POOL/NAME
        #[arg(value_parser = checks::image_name)]
        name: ImageName,
    },
    /// Change the size of an image; attached clients see the new size when they attach again
    Resize {
        /// Name of the image, as POOL/NAME
        #[arg(value_parser = checks::image_name)]
        name: ImageName,
        /// New size: a multiple of 512 bytes
        #[arg(long, value_parser = parse_image_size)]
        size: u64,
        /// Allow a smaller size, which destroys the bytes beyond it; no client may be attached
        #[arg(long)]
        shrink: bool,
    },
    /// Make a snapshot of an image: its bytes of this instant, which never change
    Snapshot(ShareImageOptions),
    /// Make a clone of an image or a snapshot, which can be written
    Clone(ShareImageOptions),
    /// Delete images; no client may be attached
    Rm {
        /// Names of the images, as POOL/NAME
        #[arg(required = true, value_parser = checks::image_name)]
        names: Vec<ImageName>,
    },
}

#[derive(Args, Debug)]
pub(crate) struct ShareImageOptions {
    /// Name of the image or snapshot, as POOL/NAME
    #[arg(value_parser = checks::image_name)]
    pub(crate) name: ImageName,
    /// Name of the new one, in the same pool
    #[arg(value_parser = checks::image_name)]
    pub(crate) to: ImageName,
}

#[derive(Subcommand, Debug)]
pub(crate) enum NbdCommand {
    /// Serve images to NBD clients such as qemu, nbdcopy and the Linux kernel; an image has one server at a time
    Serve(NbdServeOptions),
    /// Attach an image of a running server as a block device of this machine, by nbd-client
    Map(NbdMapOptions),
}

#[derive(Args, Debug)]
pub(crate) struct NbdServeOptions {
    /// Images to serve, as POOL/NAME [default: all images of the cluster]. A single image is the default export
    #[arg(value_name = "IMAGE", value_parser = checks::image_name)]
    pub(crate) images: Vec<ImageName>,
    /// TCP address to listen on; port 0 takes a free port [default: 127.0.0.1:10809, or none with --unix]
    #[arg(long, value_name = "HOST:PORT", value_parser = checks::own_address)]
    pub(crate) listen: Option<String>,
    /// Unix socket to listen on
    #[arg(long, value_name = "PATH")]
    pub(crate) unix: Option<PathBuf>,
    /// Directory of server-cert.pem and server-key.pem, and of ca-cert.pem and perhaps ca-crl.pem for the clients'
    /// certificates. Clients by TCP then have to begin TLS, and to show a certificate that an authority in ca-cert.pem
    /// has signed. These are not the cluster's certificates, which --tls names
    #[arg(long, value_name = "DIR")]
    pub(crate) tls_certificates: Option<PathBuf>,
    /// Also admit clients that show no certificate; TLS still encrypts their bytes. DIR then needs no ca-cert.pem
    #[arg(long, requires = "tls_certificates")]
    pub(crate) tls_any_client: bool,
    /// Serve metrics by HTTP at /metrics of this address; port 0 takes a free port
    #[arg(long, value_name = "HOST:PORT", value_parser = checks::own_address)]
    pub(crate) metrics: Option<String>,
    /// Serve read-only; any number of servers may serve an image so
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Take over images from servers that have them attached; the writes of those servers are refused from then on.
    /// Without this, an image becomes free ten seconds after the last renewal by its server
    #[arg(long, conflicts_with = "read_only")]
    pub(crate) take_over: bool,
    /// Seconds for which a request is retried while the cluster does not answer; then it fails
    #[arg(long, default_value_t = 120, value_name = "SECONDS")]
    pub(crate) retry_s: u64,
}

#[derive(Args, Debug)]
pub(crate) struct NbdMapOptions {
    /// Image to attach, as POOL/NAME
    #[arg(value_name = "IMAGE", value_parser = checks::image_name)]
    pub(crate) image: ImageName,
    /// Address of the server
    #[arg(long, default_value = "127.0.0.1:10809", value_name = "HOST:PORT", value_parser = checks::peer_address)]
    pub(crate) server: String,
    /// Attach by TLS; DIR has ca-cert.pem, and client-cert.pem and client-key.pem if the server wants a certificate
    #[arg(long, value_name = "DIR")]
    pub(crate) tls_certificates: Option<PathBuf>,
    /// Block device of this machine for the image
    #[arg(long, default_value = "/dev/nbd0", value_name = "DEVICE")]
    pub(crate) device: PathBuf,
}

fn parse_image_size(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if (SECTOR_BYTES..=IMAGE_BYTES_MAX).contains(&bytes) && bytes.is_multiple_of(SECTOR_BYTES) {
        Ok(bytes)
    } else {
        Err(format!(
            "the size of an image is a multiple of {SECTOR_BYTES} bytes, from {SECTOR_BYTES} to {IMAGE_BYTES_MAX}, such as \
            10GiB, not {text}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_a_file_of_whole_sectors() {
        for (text, bytes) in [
            ("512", 512),
            ("10GiB", 10 << 30),
            ("9223372036854775296", (1 << 63) - 512),
        ] {
            assert_eq!(parse_image_size(text), Ok(bytes));
        }
        for wrong in ["0", "1000", "9223372036854775807", "9223372036854775808"] {
            let error = parse_image_size(wrong).expect_err(wrong);
            assert!(error.contains("from 512 to 9223372036854775296"), "{error}");
        }
    }
}
