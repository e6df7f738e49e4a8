//! Watches the times of a trace's requests for what makes them useless.

use std::fmt;

/// Requests in a row that make a pattern of times.
const RUN: u32 = 64;

/// A fault of the times of a trace, at a line of its file. A reader tells each fault once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Warning {
    /// The trace's name, usually its path.
    pub trace: String,
    /// The line, counted from 1.
    pub line: u64,
    /// The fault.
    pub fault: TimeFault,
}

/// A fault of times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeFault {
    /// A request has an earlier time than the one before it.
    Unsorted,
    /// Many requests in a row have the same time.
    Repeated,
    /// Times count requests.
    Sequence,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace, line, fault } = self;
        write!(f, "{trace}, line {line}: ")?;
        match fault {
            TimeFault::Unsorted => f.write_str(
                "the time is before the previous request's time; requests keep the file's order",
            ),
            TimeFault::Repeated => write!(
                f,
                "{RUN} consecutive requests have the same time; figures that depend on time are meaningless for them"
            ),
            TimeFault::Sequence => write!(
                f,
                "{RUN} consecutive requests are one unit of time apart, like sequence numbers; figures that depend on \
                time are meaningless"
            ),
        }
    }
}

/// The times so far.
#[derive(Default, Debug)]
pub(super) struct Clock {
    last_ticks: Option<u64>,
    repeated: u32,
    counted: u32,
    told: Vec<TimeFault>,
}

impl Clock {
    /// Takes the time of the next request; the fault that it shows, if it was not told before.
    /// Times in whole seconds repeat in any trace, so that is no fault of theirs.
    pub(super) fn passes(
        &mut self,
        at_ticks: u64,
        unit_ticks: u64,
        is_coarse: bool,
    ) -> Option<TimeFault> {
        let last = self.last_ticks.replace(at_ticks)?;
        let run = |count: u32, goes_on: bool| if goes_on { count.saturating_add(1) } else { 0 };
        self.repeated = run(self.repeated, at_ticks == last);
        self.counted = run(self.counted, at_ticks.checked_sub(last) == Some(unit_ticks));
        let fault = if at_ticks < last {
            TimeFault::Unsorted
        } else if self.repeated >= RUN && !is_coarse {
            TimeFault::Repeated
        } else if self.counted >= RUN {
            TimeFault::Sequence
        } else {
            return None;
        };
        let is_new = !self.told.contains(&fault);
        is_new.then(|| {
            self.told.push(fault);
            fault
        })
    }
}
