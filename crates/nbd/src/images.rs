//! The images of a cluster as exports.

use crate::device::{Device, ExportShape, Exports, OpenError};
use crate::image::{Image, check_pool};
use crate::image_name::ImageName;
use futures::FutureExt;
use futures::future::{BoxFuture, join, join_all};
use gabion_client::{Cause, Client, ClientError, File, TakeOver};
use gabion_meta::{FileRecord, PutId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, sleep, timeout};

/// Pause before an image is opened again that another server has.
const IN_USE_PAUSE: Duration = Duration::from_millis(500);
/// Time limit of the release of all images.
const RELEASE_LIMIT: Duration = Duration::from_secs(2);
/// Most images of a pool that are listed.
const LISTED_COUNT_MAX: u64 = 1000;

/// A server's exports and their options.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The images; all of the cluster if there is none. A single one is the default export.
    pub images: Vec<ImageName>,
    /// Refuse writes.
    pub is_read_only: bool,
    /// Time for which a request is retried while the cluster does not answer.
    pub retry_limit: Duration,
    /// Whether images are taken over from other servers, each once: an image that another server has taken over since
    /// is not taken back.
    pub take_over: TakeOver,
}

/// The images of a cluster. Each is opened once, and shared by the connections to it, also if these name it
/// differently.
#[derive(Debug)]
pub struct Images {
    client: Client,
    options: ServeOptions,
    /// By their files: a file may have several names, and get others.
    slots: Mutex<BTreeMap<PutId, Arc<Slot>>>,
    /// Whether the server is about to end.
    is_closed: AtomicBool,
}

/// An image's place: locked while it is opened. An image that no connection uses is closed.
type Slot = AsyncMutex<Opened>;

#[derive(Debug, Default)]
struct Opened {
    image: Weak<Image>,
    /// Whether this process has had the image, or may have had it: if another server has displaced it since, it is not
    /// taken back by force.
    was_taken: bool,
}

impl Images {
    /// The images of the client's cluster.
    pub fn new(client: Client, options: ServeOptions) -> Self {
        Self {
            client,
            options,
            slots: Mutex::default(),
            is_closed: AtomicBool::default(),
        }
    }

    /// Lets other servers have all images when `connections` is done. The process is about to end, and no image is
    /// opened any more.
    pub async fn release(&self, connections: impl Future<Output = ()>) {
        self.is_closed.store(true, Ordering::Release);
        let slots: Vec<Arc<Slot>> = self.slots().values().cloned().collect();
        // Kept first: an image that its last connection drops would end its session without waiting for the answer.
        let kept = slots.iter().map(|slot| async move {
            let opened = timeout(RELEASE_LIMIT, slot.lock()).await.ok()?;
            opened.image.upgrade()
        });
        let (images, ()) = join(join_all(kept), connections).await;
        // Without an answer, other servers may have an image ten seconds after its last renewal.
        let ends = images.iter().flatten();
        let ends = ends.map(|image| image.file().end_session());
        let _ = timeout(RELEASE_LIMIT, join_all(ends)).await;
    }

    /// The names of a pool's images, in order: its files whose names begin with its own and a `/`. A pool whose blocks
    /// are replicated at first has none.
    ///
    /// # Errors
    /// Those of [`Client::list`].
    pub async fn of_pool(
        client: &Client,
        pool: &str,
        limit: u64,
    ) -> Result<Vec<FileRecord>, ClientError> {
        let pools = client.pools().await?;
        let known = pools.iter().find(|known| known.spec.name == pool);
        let Some(pool) = known.filter(|pool| pool.lifecycle.is_none()) else {
            return Ok(Vec::new());
        };
        let prefix = format!("{}/", pool.spec.name);
        let listing = client.list(&prefix, None, None, limit).await?;
        let images = listing
            .files
            .into_iter()
            .filter(|file| file.pool == pool.id && file.name != prefix && file.symlink.is_none());
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

    fn slots(&self) -> MutexGuard<'_, BTreeMap<PutId, Arc<Slot>>> {
        // The map is consistent after every step.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place of an image. Places of images that are not used are dropped.
    fn slot(&self, file: PutId) -> Arc<Slot> {
        let mut slots = self.slots();
        slots.retain(|_, slot| {
            let is_idle = slot.try_lock().is_ok_and(|opened| {
                opened.image.strong_count() == 0 && !(opened.was_taken && self.takes_over())
            });
            Arc::strong_count(slot) > 1 || !is_idle
        });
        Arc::clone(slots.entry(file).or_default())
    }

    fn takes_over(&self) -> bool {
        self.options.take_over == TakeOver::Now
    }

    /// Opens an image, or finds it open. If another server has it, waits for as long as that one may be dead.
    async fn open_image(&self, name: &ImageName) -> Result<Arc<Image>, OpenError> {
        let mut until = None;
        loop {
            match self.try_open(name).await {
                Err(ClientError::InUse {
                    left_ms: Some(left_ms),
                    ..
                }) if *until.get_or_insert_with(|| Instant::now() + wait(left_ms))
                    > Instant::now() =>
                {
                    sleep(IN_USE_PAUSE).await;
                }
                opened => return opened.map_err(|error| not_opened(&error))?,
            }
        }
    }

    async fn try_open(
        &self,
        name: &ImageName,
    ) -> Result<Result<Arc<Image>, OpenError>, ClientError> {
        let file = match checked(name, self.client.open(name.as_str()).await?) {
            Ok(file) => file,
            Err(error) => return Ok(Err(error)),
        };
        check_pool(&file)?;
        let slot = self.slot(file.put_id());
        let mut opened = slot.lock().await;
        if self.is_closed.load(Ordering::Acquire) {
            return Ok(Err(OpenError::Failed(
                "the server is about to end".to_owned(),
            )));
        }
        let present = opened.image.upgrade();
        if let Some(image) = present.filter(|image| !image.file().is_superseded()) {
            image.file().refresh_size().await?;
            return Ok(Ok(image));
        }
        let image = Arc::new(self.open_file(file, &mut opened).await?);
        opened.image = Arc::downgrade(&image);
        Ok(Ok(image))
    }

    /// Opens a file, as the only writer unless the server or the file is read-only.
    async fn open_file(&self, file: File, opened: &mut Opened) -> Result<Image, ClientError> {
        let limit = self.options.retry_limit;
        if self.options.is_read_only {
            return Ok(Image::of_file(file, limit));
        }
        let was_taken = opened.was_taken;
        let take_over = if was_taken {
            TakeOver::IfAbandoned
        } else {
            self.options.take_over
        };
        // Before the answer: a client that leaves, or whose handshake takes too long, ends this call.
        opened.was_taken = true;
        let begun = Image::open_for_writing(&file, (limit, take_over)).await;
        if begun.as_ref().is_err_and(displaces_nothing) {
            opened.was_taken = was_taken;
        }
        match begun {
            // A snapshot.
            Err(error) if error.cause() == Cause::ReadOnly => Ok(Image::of_file(file, limit)),
            begun => begun,
        }
    }
}

/// Whether an open that failed for this reason has certainly not displaced the file's writer.
fn displaces_nothing(error: &ClientError) -> bool {
    matches!(
        error.cause(),
        Cause::ReadOnly | Cause::NotFound | Cause::InUse
    )
}

/// Time for which an image of another server is retried.
fn wait(left_ms: u64) -> Duration {
    Duration::from_millis(left_ms) + IN_USE_PAUSE
}

/// Checks that an opened file is the image: it is in the pool that the name says.
fn checked(name: &ImageName, file: File) -> Result<File, OpenError> {
    if file.pool().spec.name == name.pool() {
        Ok(file)
    } else {
        Err(OpenError::Unknown)
    }
}

/// The reason why an image is not opened.
fn not_opened(error: &ClientError) -> OpenError {
    match error.cause() {
        Cause::NotFound | Cause::IsADirectory | Cause::NotADirectory => OpenError::Unknown,
        _ => OpenError::Failed(error.to_string()),
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
            let failed = |error: ClientError| not_opened(&error);
            let file = self.client.open(name.as_str()).await.map_err(failed)?;
            let file = checked(&name, file)?;
            check_pool(&file).map_err(failed)?;
            let image = Image::of_file(file, self.options.retry_limit);
            Ok(ExportShape {
                is_read_only: self.options.is_read_only || image.file().is_read_only(),
                ..image.shape()
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
