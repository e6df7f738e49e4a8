//! Whether a thread that waits for a reply has a signal to handle. The kernel asks the file system to interrupt the
//! request then, but `fuser` answers that it cannot, so the thread's state in `/proc` is read instead.

use std::fs;

/// A waiting thread, by its number; 0 if this process cannot see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter(pub(crate) u32);

/// The signals of a thread: its process, those pending for the thread and for the process, and those it has blocked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Signals {
    process: u32,
    pending: u64,
    shared: u64,
    blocked: u64,
}

impl Waiter {
    /// Whether the thread has a signal to handle, for which it must return from the system call. A signal for the
    /// whole process is the main thread's to handle unless that blocks it: any other thread would return without
    /// one.
    pub(crate) fn has_signal(self) -> bool {
        let Some(own) = signals_of(self.0) else {
            return false;
        };
        let is_main = own.process == self.0;
        let shared = if is_main {
            own.shared
        } else {
            let main = signals_of(own.process);
            own.shared & main.map_or(0, |main| main.blocked)
        };
        (own.pending | shared) & !own.blocked != 0
    }
}

fn signals_of(thread: u32) -> Option<Signals> {
    if thread == 0 {
        return None;
    }
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    parse(&status)
}

fn parse(status: &str) -> Option<Signals> {
    let field = |name: &str| {
        let mut lines = status.lines().filter_map(|line| line.split_once(':'));
        lines.find_map(|(key, value)| (key == name).then(|| value.trim()))
    };
    let mask = |name| u64::from_str_radix(field(name)?, 16).ok();
    Some(Signals {
        process: field("Tgid")?.parse().ok()?,
        pending: mask("SigPnd")?,
        shared: mask("ShdPnd")?,
        blocked: mask("SigBlk")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_a_thread_is_read() {
        let status = "Name:\tsh\nTgid:\t41\nSigQ:\t0/9\nSigPnd:\t0000000000000100\n\
            ShdPnd:\t0000000000004000\nSigBlk:\t0000000000000002\n";
        let expected = Signals {
            process: 41,
            pending: 0x100,
            shared: 0x4000,
            blocked: 2,
        };
        assert_eq!(parse(status), Some(expected));
        assert_eq!(parse("Name:\tsh\n"), None);
    }

    #[test]
    fn a_thread_without_signals_goes_on() {
        let own = rustix::process::getpid();
        assert!(!Waiter(own.as_raw_nonzero().get().cast_unsigned()).has_signal());
        assert!(!Waiter(0).has_signal());
    }
}
