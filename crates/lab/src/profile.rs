//! Statistics of a trace, in one pass over it: the columns of Table 3.2 of the `CodFS` thesis, the
//! sizes of updates (its Figure 3.1) and their locality (CAU, section 5.1).
//!
//! The two sources define an update differently. In the thesis it is a write of sectors that were accessed before; in
//! CAU every write is an update, because all stripes are assumed to be full.

use crate::stats::{Stats, StatsCount};
use crate::trace::{Request, RequestKind};
use serde::Serialize;
use std::collections::BTreeSet;
use std::num::NonZeroU64;

/// Updates that locality looks at together, as in CAU.
pub const WINDOW_UPDATES: u64 = 1000;
/// Upper ends of the ranges of update sizes, in bytes, each within its range. The text of the thesis
/// names the first and the last; those between cut what lies between into ranges of a like ratio.
pub const SIZE_BOUNDS_BYTES: [u64; 5] = [4 << 10, 16 << 10, 64 << 10, 128 << 10, 512 << 10];

/// Statistics of a trace.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// Requests, reads included.
    pub requests: u64,
    /// Bytes from the first address of the volume to the last that was accessed.
    pub span_bytes: u64,
    /// Time between the earliest and the latest request, in units of 100 ns.
    pub duration_ticks: u64,
    /// The columns of the table.
    pub stats: Stats,
    /// Sizes of writes with at least one sector that was accessed before.
    pub update_sizes: UpdateSizes,
    /// The locality of updates.
    pub locality: Locality,
}

impl Profile {
    /// The profile of a whole stream, with stripes of `stripe_bytes` bytes of data.
    ///
    /// # Errors
    /// The stream's first error.
    pub fn of<E>(
        requests: impl IntoIterator<Item = Result<Request, E>>,
        stripe_bytes: NonZeroU64,
    ) -> Result<Self, E> {
        let mut count = ProfileCount::new(stripe_bytes);
        for request in requests {
            count.add(&request?);
        }
        Ok(count.profile())
    }
}

/// The number of updates by size, in requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UpdateSizes {
    /// Updates by [`SIZE_BOUNDS_BYTES`]; the last are longer than all of them.
    pub updates: [u64; SIZE_BOUNDS_BYTES.len() + 1],
    /// Bytes of all updates.
    pub bytes: u64,
}

impl UpdateSizes {
    fn add(&mut self, length_bytes: u64) {
        self.updates[SIZE_BOUNDS_BYTES.partition_point(|&bound| bound < length_bytes)] += 1;
        self.bytes += length_bytes;
    }

    /// Updates of all sizes.
    pub fn count(&self) -> u64 {
        self.updates.iter().sum()
    }

    /// Bytes of an update on average; 0 when there are none.
    pub fn mean_bytes(&self) -> f64 {
        self.bytes as f64 / self.count().max(1) as f64
    }

    /// Ranges from the smallest: the upper end in bytes, none for the last, and the updates in it.
    pub fn ranges(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        let ends = SIZE_BOUNDS_BYTES.into_iter().map(Some).chain([None]);
        ends.zip(self.updates)
    }
}

/// CAU's update locality: the fewer stripes a given number of updates touches, the higher it is.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Locality {
    /// Distinct stripes that a window touches on average, CAU's `u`.
    pub stripes_per_window: f64,
    /// Writes of a window: [`WINDOW_UPDATES`], or all of a trace that has fewer.
    pub window_updates: u64,
    /// Whole windows, one after another; the remainder at the end of the trace is not counted.
    pub window_count: u64,
}

/// A profile in progress. Its memory grows as that of [`StatsCount`] does.
#[derive(Clone, Debug)]
pub struct ProfileCount {
    requests: u64,
    span_bytes: u64,
    /// Earliest and latest time; none before the first request.
    times: Option<(u64, u64)>,
    stats: StatsCount,
    update_sizes: UpdateSizes,
    stripe_bytes: NonZeroU64,
    window: BTreeSet<u64>,
    /// Writes of the window in hand, at most [`WINDOW_UPDATES`].
    window_writes: u64,
    window_count: u64,
    /// Stripes of whole windows, added up.
    stripes: u64,
}

impl ProfileCount {
    /// Nothing counted yet, with stripes of `stripe_bytes` bytes of data.
    pub fn new(stripe_bytes: NonZeroU64) -> Self {
        Self {
            requests: 0,
            span_bytes: 0,
            times: None,
            stats: StatsCount::default(),
            update_sizes: UpdateSizes::default(),
            stripe_bytes,
            window: BTreeSet::new(),
            window_writes: 0,
            window_count: 0,
            stripes: 0,
        }
    }

    /// Counts one more request. Returns whether it is an update by the thesis's definition.
    pub fn add(&mut self, request: &Request) -> bool {
        self.requests += 1;
        self.span_bytes = self.span_bytes.max(request.end_bytes());
        let at = request.at_ticks;
        let (earliest, latest) = self.times.unwrap_or((at, at));
        self.times = Some((earliest.min(at), latest.max(at)));
        let is_update = self.stats.add(request) > 0;
        if is_update {
            self.update_sizes.add(request.length_bytes);
        }
        if request.kind == RequestKind::Write {
            self.add_to_window(request);
        }
        is_update
    }

    fn add_to_window(&mut self, write: &Request) {
        let first = write.offset_bytes / self.stripe_bytes;
        let last = (write.end_bytes() - 1) / self.stripe_bytes;
        self.window.extend(first..=last);
        self.window_writes += 1;
        if self.window_writes == WINDOW_UPDATES {
            self.stripes += self.window.len() as u64;
            self.window_count += 1;
            self.window.clear();
            self.window_writes = 0;
        }
    }

    /// The profile so far.
    pub fn profile(&self) -> Profile {
        Profile {
            requests: self.requests,
            span_bytes: self.span_bytes,
            duration_ticks: self.times.map_or(0, |(earliest, latest)| latest - earliest),
            stats: self.stats.stats(),
            update_sizes: self.update_sizes,
            locality: self.locality(),
        }
    }

    fn locality(&self) -> Locality {
        if self.window_count == 0 {
            return Locality {
                stripes_per_window: self.window.len() as f64,
                window_updates: self.window_writes,
                window_count: u64::from(self.window_writes > 0),
            };
        }
        Locality {
            stripes_per_window: self.stripes as f64 / self.window_count as f64,
            window_updates: WINDOW_UPDATES,
            window_count: self.window_count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RequestKind::{Read, Write};
    use std::convert::Infallible;

    const STRIPE: u64 = 1 << 20;

    fn profile(requests: impl IntoIterator<Item = (u64, RequestKind, u64, u64)>) -> Profile {
        let requests = requests
            .into_iter()
            .map(|(at_ticks, kind, offset_bytes, length_bytes)| {
                Ok::<_, Infallible>(Request {
                    at_ticks,
                    kind,
                    offset_bytes,
                    length_bytes,
                })
            });
        Profile::of(requests, NonZeroU64::new(STRIPE).unwrap()).unwrap()
    }

    #[test]
    fn sizes_are_those_of_updates_alone_and_ends_belong_to_their_ranges() {
        let found = profile([
            (5, Read, 0, 1 << 20),
            (3, Write, 0, 4096),
            (9, Write, 0, 4097),
            (9, Write, 0, 512 << 10),
            (9, Write, 0, (512 << 10) + 1),
            // Fresh bytes are no update, whatever their number.
            (9, Write, 4 << 20, 4096),
            // One sector that was accessed makes the whole request an update.
            (9, Write, (1 << 20) - 512, 128 << 10),
        ]);
        assert_eq!(found.update_sizes.updates, [1, 1, 0, 1, 1, 1]);
        let bytes = 4096 + 4097 + 2 * (512 << 10) + 1 + (128 << 10);
        assert_eq!(found.update_sizes.bytes, bytes);
        assert_eq!(
            (found.requests, found.span_bytes, found.duration_ticks),
            (7, (4 << 20) + 4096, 6)
        );
    }

    #[test]
    fn locality_counts_distinct_stripes_of_whole_windows() {
        // The first thousand goes to 10 stripes, the second to 30, and half a window is left over.
        let writes = (0..2500_u64).map(|at| {
            let stripe = if at < 1000 { at % 10 } else { at % 30 };
            (at, Write, stripe * STRIPE, 512)
        });
        let expected = Locality {
            stripes_per_window: 20.0,
            window_updates: 1000,
            window_count: 2,
        };
        assert_eq!(profile(writes).locality, expected);
    }

    #[test]
    fn a_short_trace_is_one_window_and_a_write_may_touch_several_stripes() {
        let found = profile([
            (1, Write, STRIPE - 1, 2),
            (2, Read, 9 * STRIPE, 512),
            (3, Write, 2 * STRIPE, STRIPE),
        ]);
        let expected = Locality {
            stripes_per_window: 3.0,
            window_updates: 2,
            window_count: 1,
        };
        assert_eq!(found.locality, expected);
    }

    #[test]
    fn a_trace_of_nothing_has_a_profile() {
        let found = profile([]);
        assert_eq!(found.locality, Locality::default());
        assert_eq!(found.update_sizes.mean_bytes().to_bits(), 0);
    }
}
