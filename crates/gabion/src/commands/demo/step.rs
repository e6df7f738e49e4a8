//! The demo's progress: bars on a terminal, and elsewhere, such as in a log, lines of text. A line names each step
//! when it begins and tells its time when it ends; a long step has further lines.

use crate::output::{Shown, bytes, time};
use gabion_client::Progress;
use gabion_testbed::Unit;
use std::fmt;
use std::io::{self, IsTerminal as _, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Least time between two lines of a step.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Begins a step; it ends when the result is dropped.
pub(super) fn begin(what: &str, unit: Unit) -> Box<dyn Progress> {
    if io::stderr().is_terminal() {
        Shown::of(what, unit)
    } else {
        Box::new(Step::begin(io::stderr(), what, unit))
    }
}

/// A step that is told by lines.
struct Step<W: Write + Send> {
    what: String,
    unit: Unit,
    begun: Instant,
    lines: Mutex<Lines<W>>,
}

struct Lines<W> {
    out: W,
    last: Instant,
}

impl<W: Write> Lines<W> {
    /// Writes a line. An error is ignored, because the reader of stderr may have ended.
    fn say(&mut self, line: fmt::Arguments<'_>) {
        let _ = writeln!(self.out, "{line}");
    }
}

impl<W: Write + Send> Step<W> {
    fn begin(out: W, what: &str, unit: Unit) -> Self {
        let begun = Instant::now();
        let mut lines = Lines { out, last: begun };
        lines.say(format_args!("{what} ..."));
        Self {
            what: what.to_owned(),
            unit,
            begun,
            lines: Mutex::new(lines),
        }
    }

    /// Tells how far the step is, if the last line is old.
    fn tell(&self, now: Instant, (done, total): (u64, u64)) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(lines.last) < LINE_EVERY {
            return;
        }
        lines.last = now;
        let shown = |count: u64| match self.unit {
            Unit::Bytes => bytes(count),
            Unit::Items | Unit::Unknown => count.to_string(),
        };
        let took = now.saturating_duration_since(self.begun);
        lines.say(format_args!(
            "{}: {} of {} after {}",
            self.what,
            shown(done),
            shown(total),
            time(took.as_secs_f64())
        ));
    }
}

impl<W: Write + Send> Progress for Step<W> {
    fn advanced(&self, done: u64, total: u64) {
        self.tell(Instant::now(), (done, total));
    }
}

impl<W: Write + Send> Drop for Step<W> {
    fn drop(&mut self) {
        let took = time(self.begun.elapsed().as_secs_f64());
        let lines = self.lines.get_mut();
        let lines = lines.unwrap_or_else(PoisonError::into_inner);
        lines.say(format_args!("{}: ended after {took}", self.what));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_log_has_the_begin_and_the_end_of_a_step_and_a_line_each_ten_seconds() {
        let log = Log::default();
        let step = Step::begin(log.clone(), "storing", Unit::Bytes);
        for second in [1, 9, 10, 12, 19, 20, 41] {
            let now = step.begun + Duration::from_secs(second);
            step.tell(now, (second << 20, 64 << 20));
        }
        drop(step);
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let told = [
            "storing ...",
            "storing: 10 MiB of 64 MiB after 10.0 s",
            "storing: 20 MiB of 64 MiB after 20.0 s",
            "storing: 41 MiB of 64 MiB after 41.0 s",
        ];
        assert_eq!(lines[..4], told);
        assert!(lines[4].starts_with("storing: ended after "), "{text}");
        assert_eq!(lines.len(), 5, "{text}");
    }
}
