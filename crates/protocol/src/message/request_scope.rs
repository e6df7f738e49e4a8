//! Whether requests to the coordinator rely on its metadata.

use super::CoordinatorRequest;

impl CoordinatorRequest {
    /// Whether any coordinator answers it, whatever the state of its metadata: it is about the process alone.
    pub(crate) const fn is_about_process(&self) -> bool {
        matches!(self, Self::Events(_))
    }

    /// Whether the sender acts on the metadata of files, pools and stripes, or changes it. All others are listed: a
    /// request that is forgotten here waits, and is not answered from an old copy of the metadata.
    pub(crate) const fn relies_on_metadata(&self) -> bool {
        !matches!(
            self,
            Self::BeginJoin { .. }
                | Self::TellChunks { .. }
                | Self::SetAside { .. }
                | Self::EndJoin { .. }
                | Self::Accept { .. }
                | Self::Heartbeat { .. }
                | Self::EndMembership { .. }
                | Self::StoreFailed { .. }
                | Self::Group { .. }
                | Self::Suspect { .. }
                | Self::ReportDamage { .. }
                | Self::Nodes { .. }
                | Self::Status { .. }
                | Self::OrderRepair { .. }
                | Self::Links { .. }
                | Self::ScrubAll { .. }
                | Self::Usage { .. }
                | Self::RecentUsage { .. }
                | Self::Space { .. }
                | Self::Events { .. }
                | Self::Recovery { .. }
        )
    }
}
