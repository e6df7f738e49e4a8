//! Mutants of what a node keeps on its disks: journal, chunks and arrays, and what a start makes of disks that fail.

use super::super::mutant::{Mutant, protocol, store, test, unit};

/// All of them.
pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a-sync-after-a-failed-one-succeeds",
        file: "crates/store/src/sync_lock.rs",
        text: "*has_failed = synced.is_err();",
        replacement: "*has_failed = false;",
        check: unit(
            "gabion-store",
            "sync_lock::tests::a_sync_behind_a_failed_one_does_not_succeed",
        ),
    },
    Mutant {
        name: "runs-are-forgotten-with-their-records",
        file: "crates/store/src/records/runs.rs",
        text: "sequence > self.complete_after && self.known.insert((sequence, run))",
        replacement: "sequence > self.complete_after && run != run",
        check: store("runs::runs_outlive_their_records_and_the_process"),
    },
    Mutant {
        name: "the-run-of-a-dropped-update-is-remembered",
        file: "crates/store/src/records/runs.rs",
        text: "self.known.retain(|(known, _)| *known != sequence);",
        replacement: "let _ = sequence;",
        check: store("runs::the_run_of_a_dropped_update_is_forgotten_and_nothing_else"),
    },
    Mutant {
        name: "recovery-believes-the-page-cache",
        file: "crates/store/src/disk/mod.rs",
        text: "Self::Device(file) => file.read_device_at(output, offset),",
        replacement: "Self::Device(file) => file.read_exact_at(output, offset),",
        check: store("failing::a_record_whose_sync_failed_does_not_come_back_as_durable"),
    },
    Mutant {
        name: "a-page-cache-that-hides-the-device-counts-as-damage",
        file: "crates/store/src/error.rs",
        text: "is_shortage(error) || CacheFault::is_in(error)",
        replacement: "is_shortage(error)",
        check: store("failing::a_page_cache_that_hides_the_device_is_no_damage"),
    },
    Mutant {
        name: "an-array-believes-the-page-cache",
        file: "crates/flash/src/recovery.rs",
        text: ".forget_cached()\n",
        replacement: ".persist(&[])\n",
        check: test(
            "gabion-flash",
            "integration",
            "store::failed_sync::a_write_whose_sync_failed_does_not_come_back_as_durable",
        ),
    },
    Mutant {
        name: "a-replacement-gets-its-header-before-its-marks",
        file: "crates/flash/src/replace.rs",
        text: "self.mark_missing(index)?;\n        self.persist()?;",
        replacement: "self.mark_missing(index)?;",
        check: test(
            "gabion-flash",
            "integration",
            "store::replacing::a_blank_device_never_counts_as_whole_wherever_the_power_goes_out",
        ),
    },
    Mutant {
        name: "a-replacement-of-the-identity-holds-up-its-readers",
        file: "crates/store/src/store.rs",
        text: "self.shared.lock_identity().clone()",
        replacement: "let _replacing = self.shared.identity_file.lock();\n        self.shared.lock_identity().clone()",
        check: store(
            "late_appends::the_identity_is_readable_while_the_disk_holds_up_its_replacement",
        ),
    },
    Mutant {
        name: "an-unreadable-page-stops-collection",
        file: "crates/flash/src/collect.rs",
        text: "state.stripes.set_aside(victim, slot);\n                    return Ok(false);",
        replacement: "let (file, page) = (entry.file, entry.page);\n                    return Err(FlashError::Damaged { file, page });",
        check: test(
            "gabion-flash",
            "integration",
            "store::unreadable::collection_goes_on_beside_an_unreadable_page",
        ),
    },
    Mutant {
        name: "a-rebuild-takes-damaged-pages-of-other-devices",
        file: "crates/flash/src/rebuild.rs",
        text: "entry.fits(&found[start..start + PAGE_BYTES])",
        replacement: "entry.fits(&found[start..start + PAGE_BYTES]) || true",
        check: test(
            "gabion-flash",
            "integration",
            "store::devices::a_page_that_rot_has_put_beyond_recovery_stops_the_rebuild_of_its_stripe_alone",
        ),
    },
    Mutant {
        name: "a-read-beside-a-missing-device-leaves-out-no-damaged-one",
        file: "crates/flash/src/array.rs",
        text: "left_out != chunk && missing & bit == 0",
        replacement: "left_out == chunk && missing & bit == 0",
        check: test(
            "gabion-flash",
            "integration",
            "store::devices::rot_beside_a_missing_device_of_a_raid_6_is_rebuilt_and_spreads_to_no_other",
        ),
    },
    Mutant {
        name: "a-rebuild-takes-damaged-summaries",
        file: "crates/flash/src/rebuild.rs",
        text: "decode_summary(self.identity, stripe, summary).is_some()",
        replacement: "decode_summary(self.identity, stripe, summary).is_some() || true",
        check: test(
            "gabion-flash",
            "integration",
            "store::devices::a_summary_is_rebuilt_without_rot_and_found_beside_it_when_the_memory_is_lost",
        ),
    },
    Mutant {
        name: "a-summary-is-rebuilt-from-damaged-chunks",
        file: "crates/flash/src/recovery.rs",
        text: "of != 0 || is_whole(found)",
        replacement: "of != 0 || is_whole(found) || true",
        check: test(
            "gabion-flash",
            "integration",
            "store::devices::a_summary_is_rebuilt_without_rot_and_found_beside_it_when_the_memory_is_lost",
        ),
    },
    Mutant {
        name: "a-bad-sector-stops-a-rebuild",
        file: "crates/flash/src/rebuild.rs",
        text: "self.lock().stripes.set_unbuilt(stripe);",
        replacement: "return Ok(false);",
        check: test(
            "gabion-flash",
            "integration",
            "store::unreadable::a_rebuild_goes_on_beyond_a_stripe_with_bad_sectors",
        ),
    },
    Mutant {
        name: "a-vanished-file-fails-the-store-when-it-is-set-aside",
        file: "crates/store/src/chunk/trash.rs",
        text: "Err(source) if source.kind() == ErrorKind::NotFound => {}",
        replacement: "Err(source) if source.kind() == ErrorKind::StorageFull => {}",
        check: store("failing::setting_a_chunk_aside_whose_file_vanished_succeeds"),
    },
    Mutant {
        name: "a-vanished-file-fails-the-store-when-it-is-removed",
        file: "crates/store/src/disk/mod.rs",
        text: "Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(()),",
        replacement: "Err(source) if source.kind() == io::ErrorKind::StorageFull => Ok(()),",
        check: store("failing::removing_a_chunk_whose_file_vanished_succeeds"),
    },
    Mutant {
        name: "a-chunk-directory-that-cannot-be-listed-counts-as-empty",
        file: "crates/store/src/recovery.rs",
        text: "Err(error) if error.kind() == ErrorKind::NotADirectory => {",
        replacement: "Err(error) if error.kind() != ErrorKind::NotFound => {",
        check: store(
            "failing::a_chunk_directory_that_cannot_be_listed_fails_the_start_and_loses_nothing",
        ),
    },
    Mutant {
        name: "positions-continue-after-a-segment-of-unknown-end",
        file: "crates/store/src/recovery.rs",
        text: "None => self.highest_lsn()? + POSITIONS_SKIPPED,",
        replacement: "None => self.highest_lsn()?.min(self.state.journal.end_lsn()) + (POSITIONS_SKIPPED >> 40),",
        check: store("failing::the_only_segment_without_its_front_costs_all_chunks_however_young"),
    },
    Mutant {
        name: "a-segment-that-cannot-be-opened-fails-the-start",
        file: "crates/store/src/journal/mod.rs",
        text: "Err(source) if is_lost(&source) => (Arc",
        replacement: "Err(source) if is_lost(&source) && crate::error::is_shortage(&source) => (Arc",
        check: store(
            "failing::a_segment_that_cannot_be_opened_costs_the_chunks_that_were_there_before",
        ),
    },
    Mutant {
        name: "a-refusal-to-open-a-segment-counts-as-its-loss",
        file: "crates/store/src/error.rs",
        text: "losses.iter().any(|e| code == Some(e.raw_os_error()))",
        replacement: "losses.len() > 1 || code.is_none()",
        check: store(
            "failing::a_segment_that_the_system_refuses_to_open_fails_the_start_and_loses_nothing",
        ),
    },
    Mutant {
        name: "any-place-is-believed-of-a-segment-without-a-header",
        file: "crates/store/src/journal/base.rs",
        text: "frame::decode(frames, lsn) != Check::Unreadable\n",
        replacement: "frame::decode(frames, lsn) != Check::Unreadable || !frames.is_empty()\n",
        check: store(
            "failing::a_header_of_a_segment_that_cannot_be_read_costs_nothing_beside_whole_segments",
        ),
    },
    Mutant {
        name: "a-lack-of-descriptors-fails-the-store",
        file: "crates/store/src/error.rs",
        text: "let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];",
        replacement: "let shortages = [Errno::NFILE, Errno::NOMEM];",
        check: store("failing::a_lack_of_descriptors_refuses_and_fails_nothing"),
    },
    Mutant {
        name: "a-page-that-cannot-be-read-is-no-damage",
        file: "crates/store/src/chunk/file.rs",
        text: "if is_inconclusive(&error) || error.kind() == io::ErrorKind::WouldBlock {",
        replacement: "if is_inconclusive(&error) || error.kind() != io::ErrorKind::UnexpectedEof {",
        check: store("failing::a_page_that_cannot_be_read_costs_its_bytes"),
    },
    Mutant {
        name: "a-header-that-cannot-be-read-counts-as-a-failed-store",
        file: "crates/store/src/chunk/loading.rs",
        text: "Err(ReadFailure::Corrupt(_)) => Err(self.lose(chunk)),",
        replacement: "Err(ReadFailure::Corrupt(_)) => Err(StoreError::Failed { cause: chunk.to_string() }),",
        check: store("failing::a_header_that_cannot_be_read_costs_its_chunk"),
    },
    Mutant {
        name: "a-new-identity-overwrites-the-newest",
        file: "crates/store/src/identity.rs",
        text: "let offset = number % 2 * SLOT_BYTES as u64;",
        replacement: "let offset = number / u64::MAX * SLOT_BYTES as u64;",
        check: unit(
            "gabion-store",
            "identity::tests::a_crash_leaves_the_old_identity_or_the_new_one",
        ),
    },
    Mutant {
        name: "an-identity-that-the-device-never-got-is-read",
        file: "crates/store/src/identity.rs",
        text: "match file.read_device_at(&mut bytes, offset) {",
        replacement: "match file.read_exact_at(&mut bytes, offset) {",
        check: unit(
            "gabion-store",
            "identity::tests::an_identity_that_the_device_never_got_is_not_read",
        ),
    },
    Mutant {
        name: "a-panic-within-a-change-is-no-failure",
        file: "crates/store/src/store.rs",
        text: "let is_torn = self.shared.state.is_poisoned();",
        replacement: "let is_torn = false;",
        check: unit(
            "gabion-store",
            "store::tests::a_panic_within_a_change_is_a_failure",
        ),
    },
    Mutant {
        name: "a-disk-that-still-reads-does-not-hang",
        file: "crates/wire/src/disk_watch.rs",
        text: "work.is_ill |= began.is_some_and(|began| now >= began + TRY_HANGS_AFTER);",
        replacement: "work.is_ill |= began.is_some_and(|began| now >= began + 1000 * TRY_HANGS_AFTER);",
        check: unit(
            "gabion-wire",
            "disk_watch::tests::a_disk_that_still_reads_hangs_when_a_try_to_write_does_not_end",
        ),
    },
    Mutant {
        name: "a-disk-on-which-work-waits-is-not-tried",
        file: "crates/protocol/src/node.rs",
        text: "ports.spawn(Arc::clone(&self).try_disk().boxed());",
        replacement: "",
        check: protocol("update::left_out::a_disk_on_which_work_waits_is_tried_with_a_write"),
    },
    Mutant {
        name: "metadata-that-hang-are-not-told",
        file: "crates/protocol/src/coordinator/mod.rs",
        text: "ports.spawn(Arc::clone(&self.shared.core).watch_metadata().boxed());",
        replacement: "",
        check: protocol(
            "coordinator::suspicion::the_log_tells_that_the_metadata_hang_and_that_they_answer_again",
        ),
    },
];
