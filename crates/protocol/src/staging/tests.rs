//! Tests of early arrivals.

use super::ended::{OVER_COUNT_MAX, WITHDRAWN_COUNT_MAX_OF_CLIENT};
use super::flows::{QUEUED_BYTES_MAX_OF_RUN, QUEUED_COUNT_MAX_OF_RUN};
use super::*;
use futures::{FutureExt, StreamExt};

const SMALL: Limits = Limits {
    primary_stripe_count: 1,
    staged_bytes: 200,
    client_bytes: 100,
};
const CHUNK: ChunkIndex = ChunkIndex(2);
const CLIENT: Address = Address::Origin(1);

/// The next frame that has come.
fn read(flows: &mut Flows) -> Option<Flow> {
    flows.next().now_or_never().flatten()
}

#[test]
fn inputs_are_read_across_pieces_and_gaps_are_refused() {
    let mut staging = Staging::default();
    let run = RunId(1);
    staging
        .stage(run, CLIENT, (CHUNK, 10, Bytes::from_static(b"abcde")), 0)
        .unwrap();
    staging
        .stage(run, CLIENT, (CHUNK, 15, Bytes::from_static(b"fgh")), 0)
        .unwrap();
    staging
        .stage(run, CLIENT, (CHUNK, 30, Bytes::from_static(b"xyz")), 0)
        .unwrap();
    let inputs = staging.start(&[run], 0).unwrap().inputs;
    let read = |offset, length| inputs.read(CHUNK, ByteRange::new(offset, length));
    assert_eq!(read(10, 8).unwrap(), "abcdefgh");
    assert_eq!(read(12, 5).unwrap(), "cdefg");
    assert_eq!(read(31, 2).unwrap(), "yz");
    for (offset, length) in [(9, 2), (16, 4), (25, 1), (32, 2)] {
        assert!(read(offset, length).is_err(), "{offset}+{length}");
    }
    assert!(inputs.read(ChunkIndex(1), ByteRange::new(10, 1)).is_err());
}

#[test]
fn a_withdrawn_run_never_begins_however_late_its_messages_come() {
    let mut staging = Staging::default();
    let (waiting, begun, unknown) = (RunId(1), RunId(2), RunId(3));
    let bytes = Bytes::from_static(b"new");
    for run in [waiting, begun] {
        staging
            .stage(run, CLIENT, (CHUNK, 0, bytes.clone()), 0)
            .unwrap();
    }
    staging.start(&[begun], 0).unwrap();
    assert!(
        staging.withdraw(waiting, CLIENT, 5).unwrap(),
        "its bytes were waiting"
    );
    assert!(
        !staging.withdraw(waiting, CLIENT, 6).unwrap(),
        "and are gone"
    );
    assert!(
        !staging.withdraw(begun, CLIENT, 5).unwrap(),
        "it may yet be committed"
    );
    assert!(
        !staging.withdraw(unknown, CLIENT, 5).unwrap(),
        "it may have been committed"
    );
    for run in [waiting, unknown] {
        assert!(staging.start(&[run], 7).is_err());
        assert!(
            staging
                .stage(run, CLIENT, (CHUNK, 0, bytes.clone()), 7)
                .is_err()
        );
    }
    staging.expire(KEEP_MS + 5);
    assert!(
        staging.start(&[waiting], KEEP_MS + 5).is_err(),
        "kept as long as bytes are"
    );
    staging.expire(KEEP_MS + 7);
    assert!(staging.runs.len() == 1, "only the part at work is left");
    assert_eq!(staging.staged.bytes, 0);
}

#[test]
fn a_run_that_is_over_takes_no_second_copy_of_anything() {
    let mut staging = Staging::default();
    let run = RunId(1);
    let bytes = Bytes::from_static(b"new");
    staging
        .stage(run, CLIENT, (CHUNK, 0, bytes.clone()), 0)
        .unwrap();
    staging.start(&[run], 0).unwrap();
    staging.end(&[run], 5);
    assert!(
        staging
            .stage(run, CLIENT, (CHUNK, 0, bytes.clone()), 6)
            .is_err()
    );
    assert!(staging.start(&[run], 6).is_err());
    assert!(
        !staging.withdraw(run, CLIENT, 6).unwrap(),
        "it may have been committed"
    );
    staging.flow(Flow::Abort { run }, None, 6);
    assert!(staging.runs.is_empty() && staging.staged.bytes == 0);
    staging.expire(KEEP_MS + 5);
    assert!(staging.start(&[run], KEEP_MS + 5).is_err());
    staging.expire(KEEP_MS + 6);
    assert!(staging.over.runs.is_empty() && staging.over.since_ms.is_empty());
}

#[test]
fn no_more_runs_are_remembered_than_fit() {
    let mut staging = Staging::default();
    for run in 0..=OVER_COUNT_MAX as u64 {
        staging.end(&[RunId(run)], 0);
    }
    assert_eq!(staging.over.runs.len(), OVER_COUNT_MAX);
    assert!(staging.start(&[RunId(1)], 0).is_err());
    assert!(
        staging.start(&[RunId(0)], 0).is_ok(),
        "the oldest is forgotten"
    );
}

#[test]
fn of_runs_that_begin_together_none_begins_if_one_was_withdrawn() {
    let mut staging = Staging::new(Limits::default());
    let (whole, withdrawn) = (RunId(8), RunId(9));
    assert_eq!(staging.withdraw(withdrawn, CLIENT, 1), Ok(false));
    assert!(staging.start(&[whole, withdrawn], 1).is_err());
    assert!(staging.start(&[whole], 1).is_ok(), "it can begin alone");
}

#[test]
fn withdrawing_runs_that_never_came_takes_no_room_from_others() {
    let mut staging = Staging::new(Limits::default());
    let flooding = Address::Origin(7);
    let is_full = |withdrawn| matches!(withdrawn, Err(Refusal::Busy(_)));
    assert_eq!(staging.withdraw(RunId(0), CLIENT, 1), Ok(false));
    let limit = WITHDRAWN_COUNT_MAX_OF_CLIENT as u64;
    for number in 0..limit {
        assert_eq!(
            staging.withdraw(RunId(1_000 + number), flooding, 1),
            Ok(false)
        );
    }
    // A node does not promise more than it can remember.
    assert!(is_full(staging.withdraw(RunId(10), flooding, 1)));
    assert_eq!(
        staging.withdraw(RunId(1_000), flooding, 1),
        Ok(false),
        "known"
    );
    assert_eq!(
        staging.withdraw(RunId(11), CLIENT, 1),
        Ok(false),
        "of another"
    );
    let piece = || (CHUNK, 0, Bytes::from_static(b"x"));
    staging.stage(RunId(1), CLIENT, piece(), 1).unwrap();
    staging.start(&[RunId(1)], 1).unwrap();
    // None is forgotten early, however many parts end meanwhile.
    for number in 0..2 * OVER_COUNT_MAX as u64 {
        staging.end(&[RunId(1 << 40 | number)], 2);
    }
    staging.expire(1 + KEEP_MS);
    for run in [RunId(0), RunId(1_000), RunId(999 + limit)] {
        assert!(staging.start(&[run], 1).is_err());
        assert!(staging.stage(run, CLIENT, piece(), 1).is_err());
    }
    staging.expire(2 + KEEP_MS);
    assert_eq!(
        (staging.unknown.runs.len(), staging.unknown.counts.len()),
        (0, 0)
    );
    assert_eq!(staging.withdraw(RunId(10), flooding, 3), Ok(false));
}

#[test]
fn what_waits_while_a_node_is_away_is_withdrawn() {
    let mut staging = Staging::default();
    let bytes = Bytes::from_static(b"new");
    staging
        .stage(RunId(1), CLIENT, (CHUNK, 0, bytes), 0)
        .unwrap();
    staging.withdraw_all(9);
    assert!(staging.start(&[RunId(1)], 10).is_err());
    assert_eq!(staging.staged.bytes, 0);
}

#[test]
fn a_run_starts_once_and_memory_is_given_back() {
    let mut staging = Staging::new(SMALL);
    let big = Bytes::from(vec![0; 51]);
    staging
        .stage(RunId(1), CLIENT, (CHUNK, 0, big.clone()), 0)
        .unwrap();
    assert!(
        staging
            .stage(RunId(2), CLIENT, (CHUNK, 0, big.clone()), 0)
            .is_err()
    );
    staging.start(&[RunId(1)], 0).unwrap();
    // A repeated request must not end the write: another run may succeed.
    let again = staging.start(&[RunId(1)], 0).err();
    assert!(matches!(again, Some(Refusal::Interrupted(_))), "{again:?}");
    staging
        .stage(RunId(2), CLIENT, (CHUNK, 0, big.clone()), 0)
        .unwrap();
    staging.expire(KEEP_MS + 1);
    staging
        .stage(RunId(3), CLIENT, (CHUNK, 0, big), KEEP_MS + 1)
        .unwrap();
}

#[test]
fn a_client_that_stages_all_it_may_leaves_room_for_others_and_all_have_a_limit() {
    let mut staging = Staging::new(SMALL);
    let big = Bytes::from(vec![0; 100]);
    let mut stage = |run, client, bytes: &Bytes| {
        let piece = (CHUNK, 0, bytes.clone());
        staging.stage(RunId(run), Address::Origin(client), piece, 0)
    };
    let one = Bytes::from_static(b"1");
    stage(1, 1, &big).unwrap();
    let refused = stage(2, 1, &one).unwrap_err().to_string();
    assert!(
        refused.contains("other updates of this client"),
        "{refused}"
    );
    stage(3, 2, &one).unwrap();
    assert!(stage(4, 3, &big).is_err(), "no room is left for as much");
    stage(5, 3, &one).unwrap();
    staging.start(&[RunId(1)], 0).unwrap();
    staging.withdraw(RunId(3), CLIENT, 0).unwrap();
    staging.expire(KEEP_MS + 1);
    assert!(staging.staged_by.is_empty() && staging.staged.bytes == 0);
}

#[test]
fn runs_and_slices_without_a_part_are_bounded() {
    let mut staging = Staging::default();
    for run in 0..=RUN_COUNT_MAX as u64 {
        staging.flow(Flow::Abort { run: RunId(run) }, None, 0);
    }
    assert_eq!(staging.runs.len(), RUN_COUNT_MAX);
    let piece = (CHUNK, 0, Bytes::from_static(b"1"));
    let beyond = RunId(RUN_COUNT_MAX as u64);
    assert!(staging.stage(beyond, CLIENT, piece.clone(), 0).is_err());
    staging.stage(RunId(7), CLIENT, piece, 0).unwrap();
    let slice = |run| Flow::Slice {
        run,
        value: gabion_plan::ValueId(0),
        slice: 0,
        purpose: crate::message::Purpose::Update,
        bytes: Bytes::from(vec![0; MAX_WAITING_BYTES as usize / 2 + 1]),
    };
    staging.flow(slice(RunId(7)), None, 0);
    staging.flow(slice(RunId(7)), None, 0);
    let mut arrivals = staging.start(&[RunId(7)], 0).unwrap();
    let waited = std::iter::from_fn(|| read(&mut arrivals.flows));
    assert_eq!(waited.count(), 2, "the abort, and the slice that had room");
    assert_eq!(staging.waiting.bytes, 0);
    // Frames for a running part do not wait.
    staging.flow(slice(RunId(7)), None, 0);
    assert!(read(&mut arrivals.flows).is_some());
}

#[test]
fn one_peer_leaves_room_for_the_slices_of_others_and_short_frames_count() {
    let mut staging = Staging::default();
    let [first, second] = [1, 2].map(|number| Some(Address::Origin(number)));
    let slice = |run, bytes: u64| Flow::Slice {
        run: RunId(run),
        value: gabion_plan::ValueId(0),
        slice: 0,
        purpose: crate::message::Purpose::Update,
        bytes: Bytes::from(vec![0; bytes as usize]),
    };
    let half = MAX_WAITING_BYTES_OF_PEER / 2;
    for run in 1..=3 {
        staging.flow(slice(run, half), first, 0);
    }
    assert_eq!(staging.waiting.bytes, MAX_WAITING_BYTES_OF_PEER);
    staging.flow(slice(4, half), second, 0);
    assert_eq!(staging.waiting.bytes, MAX_WAITING_BYTES_OF_PEER + half);
    staging.start(&[RunId(1)], 0).unwrap();
    staging.flow(slice(3, half), first, 0);
    assert_eq!(staging.waiting.bytes, MAX_WAITING_BYTES_OF_PEER + half);
    let credit = || Flow::Credit {
        run: RunId(4),
        value: gabion_plan::ValueId(0),
        slices: 1,
    };
    for _ in 0..=WAITING_COUNT_MAX_OF_PEER {
        staging.flow(credit(), second, 0);
    }
    assert_eq!(
        staging.waiting_by[&Address::Origin(2)].count,
        WAITING_COUNT_MAX_OF_PEER
    );
    staging.expire(KEEP_MS + 1);
    assert_eq!(staging.waiting, Load::default());
    assert!(staging.waiting_by.is_empty());
}

#[test]
fn pieces_count_however_short_they_are() {
    let mut staging = Staging::default();
    let mut stage = |client| {
        let piece = (CHUNK, 0, Bytes::new());
        staging.stage(RunId(1), Address::Origin(client), piece, 0)
    };
    for _ in 0..PIECE_COUNT_MAX_OF_CLIENT {
        stage(1).unwrap();
    }
    stage(1).unwrap_err();
    stage(2).unwrap();
    staging.expire(KEEP_MS + 1);
    assert_eq!(staging.staged, Load::default());
}

#[test]
fn a_running_part_has_a_limit_of_unread_frames_and_fails_beyond_it() {
    let run = RunId(1);
    let half = Bytes::from(vec![0; QUEUED_BYTES_MAX_OF_RUN as usize / 2]);
    let slice = || Flow::Slice {
        run,
        value: gabion_plan::ValueId(0),
        slice: 0,
        purpose: crate::message::Purpose::Update,
        bytes: half.clone(),
    };
    let mut staging = Staging::default();
    let mut flows = staging.start(&[run], 0).unwrap().flows;
    // A part that reads has no limit.
    for _ in 0..5 {
        staging.flow(slice(), None, 0);
        assert!(matches!(read(&mut flows), Some(Flow::Slice { .. })));
    }
    staging.flow(slice(), None, 0);
    staging.flow(slice(), None, 0);
    assert!(!flows.is_over());
    for _ in 0..2 {
        staging.flow(Flow::Abort { run }, None, 0);
    }
    assert!(!flows.is_over(), "frames without bytes have room");
    staging.flow(slice(), None, 0);
    assert!(flows.is_over());
    assert!(matches!(read(&mut flows), Some(Flow::Abort { .. })));
    assert_eq!(staging.figures().2["queued_frames"], 1);
}

#[test]
fn short_unread_frames_count_too() {
    let run = RunId(1);
    let mut staging = Staging::default();
    let flows = staging.start(&[run], 0).unwrap().flows;
    let credit = || Flow::Credit {
        run,
        value: gabion_plan::ValueId(0),
        slices: 1,
    };
    for _ in 0..QUEUED_COUNT_MAX_OF_RUN {
        staging.flow(credit(), None, 0);
    }
    assert!(!flows.is_over());
    staging.flow(credit(), None, 0);
    assert!(flows.is_over());
}
