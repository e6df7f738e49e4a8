//! Frees the journal's space: removes segments, and copies needed entries out of old ones.

use crate::chunk::apply::ApplySummary;
use crate::error::StoreError;
use crate::journal::checkpoint::Room;
use crate::journal::segment::Position;
use crate::records::layer::Pending;
use crate::state::State;
use crate::store::Shared;

impl Shared {
    /// Removes segments that nothing needs. If too many remain, first merges the long logs of the
    /// oldest one and copies its other needed entries to the journal's end, so that one unsettled
    /// stripe does not hold the space of all.
    pub(crate) fn reclaim(&self, summary: &mut ApplySummary) -> Result<(), StoreError> {
        let mut state = self.lock();
        self.check_latch()?;
        summary.segment_count += self.require(state.journal.reclaim())?;
        if state.journal.segment_count() <= self.options.segment_count_max {
            return Ok(());
        }
        let Some(oldest) = state.journal.oldest_segment() else {
            return Ok(());
        };
        // Records listed in the journal are too many to copy.
        let listed = state.listed_in(oldest);
        drop(state);
        for chunk in listed {
            self.apply_in_background(chunk, u64::MAX, summary)?;
        }
        let mut state = self.lock();
        let mut older = Vec::new();
        let copied = self.copy_records(&mut state, oldest, &mut older);
        let needed_lsn = state.journal.needed_lsn();
        drop(state);
        self.sync(needed_lsn)?;
        let mut state = self.lock();
        for position in older {
            state.journal.release(position);
        }
        match copied {
            Err(StoreError::NoSpace { .. }) => return Ok(()),
            copied => copied?,
        }
        summary.segment_count += self.require(state.journal.reclaim())?;
        Ok(())
    }

    /// Appends copies of a segment's pending records. `older` gets the positions of their older copies, which the
    /// journal keeps, whichever thread reclaims: the caller releases them when the newer ones are durable. An
    /// unreadable record stays in place and keeps its segment.
    fn copy_records(
        &self,
        state: &mut State,
        segment: u64,
        older: &mut Vec<Position>,
    ) -> Result<(), StoreError> {
        let chunks = state.index.chunks();
        let found = chunks.flat_map(|(_, chunk)| chunk.records().in_segment(segment));
        let found = found.map(|record| (record.position, state.journaled(record)));
        let found: Vec<_> = found.collect();
        let mut buffer = Vec::new();
        for (copied, layer) in found {
            let body = match layer.body(&mut buffer) {
                Ok(body) => body,
                Err(StoreError::Corrupt { .. }) => continue,
                Err(error) => return Err(error),
            };
            let position = self.append(state, &layer.head, &[body], Room::Ordinary)?;
            let head = layer.head;
            state.journal.keep(copied);
            older.push(copied);
            state.remember(Pending { head, position });
        }
        Ok(())
    }
}
