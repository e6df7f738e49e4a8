//! The images of a cluster as exports.

use crate::device::{Device, ExportShape, Exports, OpenError};
use crate::image::Image;
use crate::image_name::ImageName;
use futures::FutureExt;
use futures::future::BoxFuture;
use gabion_client::{Client, ClientError};
use gabion_meta::FileRecord;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Mutex;

/// Most images of a pool that are listed.
const LISTED_COUNT_MAX: u64 = 1000;

/// What a server exports, and how.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The images; all of the cluster if there is none. A single one is the default export.
    pub images: Vec<ImageName>,
    /// Refuse writes.
    pub is_read_only: bool,
    /// How long a request is tried again while the cluster does not answer.
    pub retry_limit: Duration,
}

/// The images of a cluster. Each is opened once, and shared by the connections to it.
#[derive(Debug)]
pub struct Images {
    client: Client,
    options: ServeOptions,
    /// Open images. One that no connection uses is closed.
    open: Mutex<BTreeMap<ImageName, Weak<Image>>>,
}

impl Images {
    /// The images of the client's cluster.
    pub fn new(client: Client, options: ServeOptions) -> Self {
        Self {
            client,
            options,
            open: Mutex::default(),
        }
    }

    /// The names of a pool's images, in order: its files whose names begin with its own and a `/`.
    ///
    /// # Errors
    /// Those of [`Client::list`].
    pub async fn of_pool(
        client: &Client,
        pool: &str,
        limit: u64,
    ) -> Result<Vec<FileRecord>, ClientError> {
        let pools = client.pools().await?;
        let Some(pool) = pools.iter().find(|known| known.spec.name == pool) else {
            return Ok(Vec::new());
        };
        let prefix = format!("{}/", pool.spec.name);
        let listing = client.list(&prefix, None, None, limit).await?;
        let images = listing
            .files
            .into_iter()
            .filter(|file| file.pool == pool.id && file.name != prefix);
        Ok(images.collect())
    }

    /// The image that a client names, if it is exported.
    fn name(&self, export: &str) -> Result<ImageName, OpenError> {
        let images = &self.options.images;
        if let ("", [only]) = (export, &images[..]) {
            return Ok(only.clone());
        }
        let name: ImageName = export.parse().map_err(|_| OpenError::Unknown)?;
        if images.is_empty() || images.contains(&name) {
            Ok(name)
        } else {
            Err(OpenError::Unknown)
        }
    }

    async fn open_image(&self, name: &ImageName) -> Result<Arc<Image>, OpenError> {
        let mut open = self.open.lock().await;
        open.retain(|_, image| image.strong_count() > 0);
        if let Some(image) = open.get(name).and_then(Weak::upgrade) {
            match image.file().refresh_size().await {
                Ok(_) => return Ok(image),
                // Another image has its name now.
                Err(ClientError::FileGone(_)) => {}
                Err(error) => return Err(OpenError::Failed(error.to_string())),
            }
        }
        let (client, limit) = (&self.client, self.options.retry_limit);
        let opened = if self.options.is_read_only {
            Image::open_for_reading(client, name.as_str(), limit).await
        } else {
            Image::open_for_writing(client, name.as_str(), limit).await
        };
        let image = Arc::new(checked(name, opened)?);
        open.insert(name.clone(), Arc::downgrade(&image));
        Ok(image)
    }
}

/// Checks that an opened file is the image.
fn checked(name: &ImageName, opened: Result<Image, ClientError>) -> Result<Image, OpenError> {
    match opened {
        Ok(image) if image.file().pool().spec.name == name.pool() => Ok(image),
        // There is no file of this name, or it is not in the pool of the image.
        Ok(_) | Err(ClientError::Refused(_)) => Err(OpenError::Unknown),
        Err(error) => Err(OpenError::Failed(error.to_string())),
    }
}

impl Exports for Images {
    fn names(&self) -> BoxFuture<'_, Result<Vec<String>, OpenError>> {
        let names = async move {
            if !self.options.images.is_empty() {
                return Ok(self
                    .options
                    .images
                    .iter()
                    .map(ToString::to_string)
                    .collect());
            }
            let failed = |error: ClientError| OpenError::Failed(error.to_string());
            let mut names = Vec::new();
            for pool in self.client.pools().await.map_err(failed)? {
                let images = Self::of_pool(&self.client, &pool.spec.name, LISTED_COUNT_MAX);
                let images = images.await.map_err(failed)?;
                names.extend(images.into_iter().map(|image| image.name));
            }
            Ok(names)
        };
        names.boxed()
    }

    fn look<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ExportShape, OpenError>> {
        let look = async move {
            let name = self.name(name)?;
            let limit = self.options.retry_limit;
            let opened = Image::open_for_reading(&self.client, name.as_str(), limit).await;
            Ok(ExportShape {
                is_read_only: self.options.is_read_only,
                ..checked(&name, opened)?.shape()
            })
        };
        look.boxed()
    }

    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<dyn Device>, OpenError>> {
        let open = async move {
            let image = self.open_image(&self.name(name)?).await?;
            Ok(image as Arc<dyn Device>)
        };
        open.boxed()
    }
}
