//! The images of a cluster as exports.

use crate::device::{Device, ExportShape, Exports, OpenError};
use crate::image::Image;
use crate::image_name::ImageName;
use futures::FutureExt;
use futures::future::BoxFuture;
use gabion_client::{Client, ClientError, TakeOver};
use gabion_meta::FileRecord;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

/// Additional wait before an image is opened again that another server has.
const IN_USE_PAUSE: Duration = Duration::from_millis(100);
/// Time limit of the release of an image.
const RELEASE_LIMIT: Duration = Duration::from_secs(2);
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
    /// Whether images are taken over from other servers. An image that this server has lost to another one is never
    /// taken back without a new connection.
    pub take_over: TakeOver,
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

    /// Lets other servers have all images now. Requests that come later fail; the process is about to end.
    pub async fn release(&self) {
        let open = std::mem::take(&mut *self.open.lock().await);
        for image in open.values().filter_map(Weak::upgrade) {
            // Without an answer, an image is free ten seconds after the last sign of life.
            let _ = timeout(RELEASE_LIMIT, image.file().end_session()).await;
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

    /// Opens an image, or finds it open. If another server has it, waits for as long as that one may be dead.
    async fn open_image(&self, name: &ImageName) -> Result<Arc<Image>, OpenError> {
        match self.try_open(name).await {
            Err(ClientError::InUse {
                left_ms: Some(left_ms),
                ..
            }) => {
                sleep(Duration::from_millis(left_ms) + IN_USE_PAUSE).await;
                self.try_open(name).await.map_err(not_opened)?
            }
            opened => opened.map_err(not_opened)?,
        }
    }

    async fn try_open(
        &self,
        name: &ImageName,
    ) -> Result<Result<Arc<Image>, OpenError>, ClientError> {
        let mut open = self.open.lock().await;
        open.retain(|_, image| image.strong_count() > 0);
        let present = open.get(name).and_then(Weak::upgrade);
        if let Some(image) = present.filter(|image| !image.file().is_superseded()) {
            match image.file().refresh_size().await {
                Ok(_) => return Ok(Ok(image)),
                // Another image has its name now.
                Err(ClientError::FileGone(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let (client, limit) = (&self.client, self.options.retry_limit);
        let opened = if self.options.is_read_only {
            Image::open_for_reading(client, name.as_str(), limit).await
        } else {
            let how = (limit, self.options.take_over);
            Image::open_for_writing(client, name.as_str(), how).await
        };
        let image = match checked(name, opened?) {
            Ok(image) => Arc::new(image),
            Err(error) => return Ok(Err(error)),
        };
        open.insert(name.clone(), Arc::downgrade(&image));
        Ok(Ok(image))
    }
}

/// Checks that an opened file is the image: it is in the pool that the name says.
fn checked(name: &ImageName, opened: Image) -> Result<Image, OpenError> {
    if opened.file().pool().spec.name == name.pool() {
        Ok(opened)
    } else {
        Err(OpenError::Unknown)
    }
}

/// The reason why an image is not opened. The coordinator refuses a name that no file has.
fn not_opened(error: ClientError) -> OpenError {
    match error {
        ClientError::Refused(_) => OpenError::Unknown,
        error => OpenError::Failed(error.to_string()),
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
                ..checked(&name, opened.map_err(not_opened)?)?.shape()
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
