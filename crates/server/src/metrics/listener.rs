//! The listener of scrapes.

use crate::error::ServerError;
use crate::listening::KeptAddress;
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// Listens for scrapes.
pub(crate) struct MetricsListener {
    pub(crate) listener: TcpListener,
    pub(crate) address: SocketAddr,
}

impl MetricsListener {
    /// Listens on an address, if there is one.
    pub(crate) async fn bind(address: Option<&str>) -> Result<Option<Self>, ServerError> {
        let Some(address) = address else {
            return Ok(None);
        };
        let failed = |source| ServerError::Metrics {
            address: address.to_owned(),
            source,
        };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Some(Self { listener, address }))
    }

    /// Listens no more for now.
    pub(crate) fn keep(self) -> KeptAddress {
        KeptAddress::of(self.listener, self.address)
    }

    /// Listens again.
    pub(crate) async fn again(kept: KeptAddress) -> Result<Self, ServerError> {
        let address = kept.address();
        let listener = kept.listen().await?;
        Ok(Self { listener, address })
    }
}
