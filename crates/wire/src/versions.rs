//! The versions of the wire that a process speaks, and the one in which two processes talk.
//!
//! The messages of each version are in `tests/messages.txt`. CONTRIBUTING.md ("Change the wire") has the rules by which
//! they change.

use std::fmt;

/// The newest version that this release speaks.
pub const VERSION: u16 = 26;

/// The oldest version that this release still speaks: the same one or its predecessor. It rises above each version in
/// which a message was encoded in another way.
pub const OLDEST_VERSION: u16 = 26;

/// The first version whose hello names the sender's oldest version. Processes of earlier versions speak only their own.
pub const FIRST_VERSION: u16 = 26;

const _: () = assert!(
    FIRST_VERSION <= OLDEST_VERSION && OLDEST_VERSION <= VERSION && VERSION <= OLDEST_VERSION + 1,
    "a release speaks one or two versions of the wire"
);

/// The versions that a process speaks: all from the oldest one to the newest one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Versions {
    oldest: u16,
    newest: u16,
}

impl Versions {
    /// Those of this release.
    pub const CURRENT: Self = Self {
        oldest: OLDEST_VERSION,
        newest: VERSION,
    };

    /// The versions from `oldest` to `newest`; none if no process can speak these.
    pub const fn between(oldest: u16, newest: u16) -> Option<Self> {
        if FIRST_VERSION <= oldest && oldest <= newest {
            Some(Self { oldest, newest })
        } else {
            None
        }
    }

    /// Those of a process from the time before [`FIRST_VERSION`].
    pub(crate) const fn only(version: u16) -> Self {
        Self {
            oldest: version,
            newest: version,
        }
    }

    /// The newest one.
    pub const fn newest(self) -> u16 {
        self.newest
    }

    /// The oldest one.
    pub const fn oldest(self) -> u16 {
        self.oldest
    }

    /// The version in which two processes talk: the newest one that both speak. Both sides find the same one.
    pub fn agree(self, theirs: Self) -> Option<u16> {
        let agreed = self.newest.min(theirs.newest);
        (agreed >= self.oldest && agreed >= theirs.oldest).then_some(agreed)
    }

    /// Which of two processes that have no version in common must be upgraded.
    pub(crate) fn laggard(self, theirs: Self) -> &'static str {
        if self.newest < theirs.oldest {
            "this process"
        } else {
            "the peer"
        }
    }
}

/// As in "it speaks versions 26 to 27".
impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { oldest, newest } = self;
        if oldest == newest {
            write!(f, "version {newest}")
        } else {
            write!(f, "versions {oldest} to {newest}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between(oldest: u16, newest: u16) -> Versions {
        Versions::between(oldest, newest).unwrap()
    }

    #[test]
    fn two_processes_talk_in_the_newest_version_that_both_speak() {
        let check = |ours: (u16, u16), theirs: (u16, u16), agreed: Option<u16>| {
            let (ours, theirs) = (between(ours.0, ours.1), between(theirs.0, theirs.1));
            assert_eq!(ours.agree(theirs), agreed, "{ours}, {theirs}");
            assert_eq!(theirs.agree(ours), agreed, "{theirs}, {ours}");
        };
        // Equal.
        check((26, 26), (26, 26), Some(26));
        check((26, 27), (26, 27), Some(27));
        // One apart.
        check((26, 26), (26, 27), Some(26));
        check((26, 27), (27, 28), Some(27));
        // One apart, but the later one has changed a message.
        check((26, 26), (27, 27), None);
        check((26, 27), (28, 28), None);
        // Two apart.
        check((26, 26), (27, 28), None);
        check((26, 27), (28, 29), None);
    }

    #[test]
    fn impossible_versions_are_not_made() {
        assert_eq!(Versions::between(28, 27), None);
        assert_eq!(Versions::between(FIRST_VERSION - 1, 27), None);
        assert_eq!(Versions::between(0, 0), None);
        let current = Versions::CURRENT;
        assert_eq!(
            Versions::between(current.oldest(), current.newest()),
            Some(current)
        );
    }

    #[test]
    fn the_process_with_the_older_versions_is_to_be_upgraded() {
        let (older, newer) = (between(26, 27), between(28, 29));
        assert_eq!(older.laggard(newer), "this process");
        assert_eq!(newer.laggard(older), "the peer");
    }
}
