//! A process's credentials and its checks of peers: shared by its connections, and renewed while these are open.

use super::credentials::Credentials;
use super::error::TrustError;
use super::name::Name;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

/// A process's proof of its identity, and its check of its peers. Clones share renewed credentials.
#[derive(Clone, Default)]
pub struct Security(Option<Arc<RwLock<Arc<Credentials>>>>);

impl Security {
    /// Neither: any process that reaches the sockets is believed. For loopback only.
    pub const fn insecure() -> Self {
        Self(None)
    }

    /// Both, by TLS with these credentials.
    pub fn with(credentials: Credentials) -> Self {
        Self(Some(Arc::new(RwLock::new(Arc::new(credentials)))))
    }

    /// The same with the credentials in a directory.
    ///
    /// # Errors
    /// Those of [`Credentials::open`].
    pub fn open(directory: &Path) -> Result<Self, TrustError> {
        Credentials::open(directory).map(Self::with)
    }

    /// The present credentials; none when it is insecure.
    pub fn credentials(&self) -> Option<Arc<Credentials>> {
        let shared = self.0.as_ref()?;
        let held = shared.read().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&held))
    }

    /// The name in the present credentials.
    pub fn name(&self) -> Option<Name> {
        self.credentials().map(|credentials| *credentials.name())
    }

    /// Takes in changed files. Connections that are opened from now on use them. Returns whether there were any.
    ///
    /// # Errors
    /// An error in the files; the present credentials stay.
    pub fn reload(&self) -> Result<bool, TrustError> {
        let Some(present) = self.credentials() else {
            return Ok(false);
        };
        let Some(fresh) = present.reopened()? else {
            return Ok(false);
        };
        self.replace(fresh);
        Ok(true)
    }

    /// Goes on with these credentials.
    pub fn replace(&self, fresh: Credentials) {
        if let Some(shared) = &self.0 {
            *shared.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(fresh);
        }
    }
}

/// The key stays out of logs.
impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            None => f.write_str("Security(insecure)"),
            Some(name) => write!(f, "Security({name})"),
        }
    }
}
