//! The console of a local cluster: a process that serves a page for browsers.

use super::{LocalCluster, namespaces};
use crate::error::{Context, TestbedError};
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

/// The name of the console's process.
pub(super) const CONSOLE: &str = "console";

/// The address and the password with which a browser opens the console.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenConsole {
    /// The page's address.
    pub url: String,
    /// The password that is valid for one login.
    pub password: String,
}

impl LocalCluster {
    /// Starts the console unless it runs, and tells how to open it. A testbed has none, since no browser could reach
    /// it.
    ///
    /// # Errors
    /// If the process does not start, or its password cannot be read.
    pub async fn start_console(&self) -> Result<Option<OpenConsole>, TestbedError> {
        if self.testbed()?.is_some() {
            return Ok(None);
        }
        let url = match self.staying(CONSOLE).await? {
            Some(running) => running.url,
            None => Some(self.spawn_console().await?),
        };
        let path = self.password_file();
        let password = fs::read_to_string(&path).context(format!("read {}", path.display()))?;
        Ok(url.map(|url| OpenConsole { url, password }))
    }

    async fn spawn_console(&self) -> Result<String, TestbedError> {
        let mut arguments = vec![
            CONSOLE.to_owned(),
            format!("--coordinator={}", self.coordinator()?),
            format!("--password-file={}", self.password_file().display()),
        ];
        // Bookmarks and tunnels go on after a restart.
        if let Some(address) = self.last_url(CONSOLE).and_then(|url| free_again(&url)) {
            arguments.push(format!("--listen={address}"));
        }
        // Renews the operator's certificate if it is due.
        self.security()?;
        arguments.push(if self.shape.options.insecure {
            "--insecure".to_owned()
        } else {
            let directory = self.directory.join("coordinator/operator");
            format!("--tls={}", directory.display())
        });
        let url = self
            .spawn(CONSOLE, namespaces::COORDINATOR, &arguments)
            .await?;
        self.note_url(CONSOLE, &url)?;
        Ok(url)
    }

    /// The file with the password that is valid now.
    fn password_file(&self) -> PathBuf {
        self.directory.join("console.password")
    }
}

/// The address of a page of a process that has ended, if nothing else listens there now.
fn free_again(url: &str) -> Option<SocketAddr> {
    let address = url.strip_prefix("http://")?.strip_suffix('/')?;
    let address = address.parse().ok()?;
    TcpListener::bind(address).ok().map(|_| address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_use_is_not_taken_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let url = format!("http://{address}/");
        assert_eq!(free_again(&url), None);
        drop(listener);
        assert_eq!(free_again(&url), Some(address));
    }
}
