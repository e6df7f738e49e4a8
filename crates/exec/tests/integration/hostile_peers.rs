//! Hostile peers: for any parts and events, an executor answers with commands or an error, does not
//! panic, and holds no more than its rings.

use bytes::Bytes;
use gabion_exec::{
    Command, Event, ExecError, Executor, MAX_BUFFER_BYTES, MAX_SLICE_BYTES, MAX_STEPS, MAX_TERMS,
    RING_SLICES,
};
use gabion_layout::{ByteRange, ChunkIndex, Keeping, NodeId, Slices, StripeId};
use gabion_plan::{Log, Part, PartStep, Step, StepOrder, Term, ValueId};
use proptest::prelude::*;

const NODE: NodeId = NodeId(1);
const PEER: NodeId = NodeId(2);
const CHUNK_BYTES: u64 = 1 << 32;

fn step(id: u32, slices: Slices, step: Step) -> PartStep {
    PartStep {
        id: ValueId(id),
        slices,
        step,
    }
}

fn part(steps: Vec<PartStep>) -> Part {
    Part {
        stripe: StripeId(1),
        node: NODE,
        holds: None,
        keeping: Keeping::default(),
        order: StepOrder::default(),
        chunk_bytes: CHUNK_BYTES,
        steps,
    }
}

fn read(slices: Slices) -> Step {
    Step::Read {
        node: NODE,
        chunk: ChunkIndex(0),
        slices,
    }
}

fn send(from: NodeId, to: NodeId, value: u32) -> Step {
    let value = ValueId(value);
    Step::Send { from, to, value }
}

fn combine(values: &[u32]) -> Step {
    let term = |&value| Term {
        coefficient: 3,
        value: ValueId(value),
    };
    Step::Combine {
        node: NODE,
        terms: values.iter().map(term).collect(),
    }
}

fn write(slices: Slices, value: u32) -> Step {
    Step::Write {
        node: NODE,
        chunk: ChunkIndex(1),
        slices,
        value: ValueId(value),
    }
}

/// `count` slices of 4 bytes, the last one of 3.
fn stream(count: u64) -> Slices {
    Slices::contiguous(ByteRange::new(0, count * 4 - 1), 4)
}

/// The part of a pipeline hop that also writes a chunk: it has a step for every kind of event.
fn hop() -> Part {
    let slices = stream(20);
    part(vec![
        step(3, slices, read(slices)),
        step(5, slices, send(PEER, NODE, 0)),
        step(6, slices, combine(&[3, 5])),
        step(7, slices, send(NODE, PEER, 6)),
        step(9, slices, write(slices, 6)),
    ])
}

fn refusal(part: &Part) -> String {
    let refused = Executor::new(part).map(|_| ());
    refused.expect_err("the part is invalid").to_string()
}

fn zeros(length: usize) -> Bytes {
    Bytes::from(vec![0; length])
}

#[track_caller]
fn check_refused(events: &[Event], reason: &str) {
    let error = refused(events);
    assert!(
        matches!(error, ExecError::Unexpected { reason: given, .. } if given == reason),
        "{error}"
    );
}

/// The error of the last event.
#[track_caller]
fn refused(events: &[Event]) -> ExecError {
    let (mut executor, _) = Executor::new(&hop()).expect("a valid part");
    let (last, before) = events.split_last().expect("there is an event");
    for event in before {
        executor.handle(event.clone()).expect("an honest event");
    }
    executor.handle(last.clone()).expect_err("a refusal")
}

fn fetched(step: u32, slice: u64, length: usize) -> Event {
    Event::Fetched {
        step: ValueId(step),
        slice,
        bytes: zeros(length),
    }
}

fn received(value: u32, slice: u64, length: usize) -> Event {
    Event::Received {
        value: ValueId(value),
        slice,
        bytes: zeros(length),
    }
}

fn credited(value: u32, slices: u64) -> Event {
    let value = ValueId(value);
    Event::Credited { value, slices }
}

fn stored(step: u32) -> Event {
    let step = ValueId(step);
    Event::Stored { step }
}

#[test]
fn answers_without_a_request_are_refused() {
    check_refused(&[fetched(4, 0, 4)], "was never fetched");
    let unasked = "was fetched without a request";
    check_refused(&[fetched(3, RING_SLICES, 4)], unasked);
    check_refused(&[fetched(3, u64::MAX, 4)], unasked);
    check_refused(&[fetched(3, 2, 4), fetched(3, 2, 4)], unasked);
    check_refused(&[fetched(5, 0, 4)], unasked);
    check_refused(&[fetched(6, 0, 4)], unasked);
    check_refused(&[fetched(3, 0, 3)], "was fetched with a wrong length");
    check_refused(&[stored(9)], "was stored without a request");
    let one_sum = vec![fetched(3, 0, 4), received(5, 0, 4)];
    let twice = [one_sum, vec![stored(9), stored(9)]].concat();
    check_refused(&twice, "was stored without a request");
    check_refused(&[stored(7)], "is not a step of that kind here");
    check_refused(&[stored(6)], "is not a step of that kind here");
    check_refused(&[stored(8)], "is not a step of that kind here");
}

#[test]
fn slices_out_of_turn_are_refused() {
    check_refused(&[received(8, 0, 4)], "is not an incoming value");
    check_refused(&[received(3, 0, 4)], "is not an incoming value");
    // Slices that are lost or repeated on the way are no fault of the peer.
    let twice = [received(5, 0, 4), received(5, 0, 4)];
    for disordered in [
        &[received(5, 1, 4)][..],
        &[received(5, u64::MAX, 4)],
        &twice,
    ] {
        let error = refused(disordered);
        assert!(
            matches!(error, ExecError::OutOfOrder { step: ValueId(5) }),
            "{error}"
        );
    }
    check_refused(&[received(5, 0, 5)], "arrived with a wrong length");
    let too_many = (0..=RING_SLICES).map(|slice| received(5, slice, 4));
    let too_many: Vec<Event> = too_many.collect();
    check_refused(&too_many, "arrived without credit");
}

#[test]
fn credit_for_slices_that_were_not_sent_is_refused() {
    let lie = "was given credit for slices that were not sent";
    check_refused(&[credited(7, 1)], lie);
    let one_sent = vec![fetched(3, 0, 4), received(5, 0, 4)];
    let more = [one_sent.clone(), vec![credited(7, u64::MAX)]].concat();
    check_refused(&more, lie);
    let twice = [one_sent, vec![credited(7, 1), credited(7, 1)]].concat();
    check_refused(&twice, lie);
    check_refused(&[credited(9, 1)], "is not a step of that kind here");
    check_refused(&[credited(5, 1)], "is not a step of that kind here");
}

#[test]
fn a_slice_past_the_end_is_refused() {
    let slices = stream(1);
    let steps = vec![step(0, slices, send(PEER, NODE, 9))];
    let (mut executor, _) = Executor::new(&part(steps)).unwrap();
    assert!(executor.is_finished(), "the value has no consumer");
    executor.handle(received(0, 0, 3)).unwrap();
    let error = executor.handle(received(0, 1, 3)).unwrap_err();
    assert_eq!(error.to_string(), "step 0 arrived out of order");
}

#[test]
fn parts_that_contradict_themselves_are_refused() {
    let slices = stream(3);
    let other = stream(4);
    for (second, reason) in [
        (step(0, slices, read(slices)), "is out of order"),
        (
            step(1, slices, read(other)),
            "gives two ranges of its chunk",
        ),
        (
            step(1, slices, send(PEER, NodeId(3), 0)),
            "sends neither from nor to this node",
        ),
        (
            step(1, slices, send(NODE, NODE, 0)),
            "sends neither from nor to this node",
        ),
        (
            step(1, other, send(NODE, PEER, 0)),
            "uses a value of another shape",
        ),
        (
            step(1, slices, send(NODE, PEER, 1)),
            "uses a value that no earlier step makes here",
        ),
        (
            step(1, slices, combine(&[])),
            "combines no terms or too many",
        ),
        (
            step(1, slices.at(CHUNK_BYTES), write(slices.at(CHUNK_BYTES), 0)),
            "exceeds the chunk",
        ),
        (
            step(
                1,
                slices,
                Step::Deliver {
                    node: PEER,
                    chunk: ChunkIndex(0),
                    slices,
                    value: ValueId(0),
                },
            ),
            "belongs to another node",
        ),
    ] {
        let text = format!("the part's step {} {reason}", second.id.0);
        let steps = vec![step(0, slices, read(slices)), second];
        assert_eq!(refusal(&part(steps)), text);
    }
}

/// A short message must not make a node allocate terabytes.
#[test]
fn parts_that_need_too_much_memory_are_refused() {
    let huge = Slices::contiguous(ByteRange::new(0, CHUNK_BYTES), MAX_SLICE_BYTES);
    let incoming = |count: u64| {
        let ids = 0..count as u32;
        part(ids.map(|id| step(id, huge, send(PEER, NODE, 0))).collect())
    };
    let fitting = MAX_BUFFER_BYTES / (MAX_SLICE_BYTES * RING_SLICES);
    assert!(Executor::new(&incoming(fitting)).is_ok());
    let reason = "exceeds a part's memory limit for slices";
    let text = format!("the part's step {fitting} {reason}");
    assert_eq!(refusal(&incoming(MAX_STEPS as u64)), text);

    let larger = Slices::whole(ByteRange::new(0, MAX_SLICE_BYTES + 1));
    let reason = "has an invalid stream of slices";
    let steps = vec![step(0, larger, read(larger))];
    assert_eq!(refusal(&part(steps)), format!("the part's step 0 {reason}"));
}

#[test]
fn parts_of_too_many_steps_or_terms_are_refused() {
    let slices = stream(1);
    let reads = |count: usize| {
        let ids = 0..count as u32;
        part(ids.map(|id| step(id, slices, read(slices))).collect())
    };
    assert!(Executor::new(&reads(MAX_STEPS)).is_ok());
    let text = format!("the part's step {MAX_STEPS} exceeds the maximum number of steps of a part");
    assert_eq!(refusal(&reads(MAX_STEPS + 1)), text);

    let sum = |terms: usize| {
        let sum = step(1, slices, combine(&vec![0; terms]));
        part(vec![step(0, slices, read(slices)), sum])
    };
    assert!(Executor::new(&sum(MAX_TERMS)).is_ok());
    let text = "the part's step 1 combines no terms or too many";
    assert_eq!(refusal(&sum(MAX_TERMS + 1)), text);
}

fn any_number() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => 0u64..24,
        1 => (0u32..64).prop_map(|shift| 1 << shift),
        1 => (0u64..24).prop_map(|below| u64::MAX - below),
    ]
}

/// Mostly one shape, so that steps fit together and parts are accepted.
fn any_slices() -> impl Strategy<Value = Slices> {
    let numbers = (any_number(), any_number(), any_number(), any_number());
    let raw =
        (numbers, any_number()).prop_map(|((offset, slice_bytes, stride, count), tail_bytes)| {
            Slices {
                offset,
                slice_bytes,
                stride,
                count,
                tail_bytes,
            }
        });
    prop_oneof![12 => Just(stream(20)), 2 => Just(stream(20).at(7)), 1 => raw]
}

fn any_step() -> impl Strategy<Value = PartStep> {
    let node = || prop_oneof![12 => Just(NODE), 1 => Just(PEER)];
    let values = proptest::collection::vec(0u32..8, 0..4);
    (any_slices(), 0u8..8, 0u32..8, values, node()).prop_map(
        |(slices, kind, value, values, node)| {
            let chunk = ChunkIndex(kind);
            let log = Log::Parity { data: chunk };
            let from = ValueId(value);
            let made = match kind {
                0 => Step::Input {
                    node,
                    chunk,
                    slices,
                },
                1 => read(slices),
                2 => combine(&values),
                3 => send(NODE, PEER, value),
                4 => send(PEER, NODE, value),
                5 => write(slices, value),
                6 => Step::Append {
                    node,
                    log,
                    chunk,
                    slices,
                    value: from,
                },
                _ => Step::Deliver {
                    node,
                    chunk,
                    slices,
                    value: from,
                },
            };
            step(0, slices, made)
        },
    )
}

/// Steps numbered as in a plan, or almost.
fn any_part() -> impl Strategy<Value = Part> {
    let gaps = prop_oneof![20 => Just(1u32), 1 => 0u32..4];
    let order = prop_oneof![2 => Just(StepOrder::Streamed), 1 => Just(StepOrder::InTurn)];
    let steps = proptest::collection::vec((any_step(), gaps), 1..12);
    (steps, order).prop_map(|(steps, order)| {
        let mut id = 0;
        let numbered = steps.into_iter().map(|(mut step, gap)| {
            step.id = ValueId(id);
            id += gap;
            step
        });
        Part {
            order,
            ..part(numbered.collect())
        }
    })
}

fn any_event() -> impl Strategy<Value = Event> {
    (0u8..4, 0u32..12, any_number(), 2usize..6).prop_map(|(kind, id, slice, length)| match kind {
        0 => fetched(id, slice, length),
        1 => received(id, slice, length),
        2 => credited(id, slice),
        _ => stored(id),
    })
}

/// The answer of an honest peer or disk to a command.
fn answer(command: &Command) -> Option<Event> {
    match command {
        Command::Fetch {
            step, slice, range, ..
        } => Some(fetched(step.0, *slice, range.length as usize)),
        Command::Send { value, .. } => Some(credited(value.0, 1)),
        Command::Store { step, .. } => Some(stored(step.0)),
        Command::Grant { .. } => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Honest answers bring a part well into its run before and between hostile ones. Each event's
    /// effects stay within the rings: some slices of each step, and never the whole stream.
    #[test]
    fn garbage_is_an_error_and_never_a_panic(
        part in any_part(), events in proptest::collection::vec((any_event(), 0usize..40), 1..20),
    ) {
        let Ok((mut executor, first)) = Executor::new(&part) else {
            return Ok(());
        };
        let limit = 4 * RING_SLICES as usize * part.steps.len();
        let mut owed: Vec<Event> = first.iter().filter_map(answer).collect();
        let mut has_lied = false;
        for (lie, honest) in events {
            let honest: Vec<Event> = owed.drain(..honest.min(owed.len())).collect();
            for event in honest {
                match executor.handle(event) {
                    Ok(commands) => owed.extend(commands.iter().filter_map(answer)),
                    Err(error) => {
                        prop_assert!(has_lied, "an honest answer was refused: {error}");
                        return Ok(());
                    }
                }
            }
            match executor.handle(lie) {
                Ok(commands) => {
                    // The hostile event was the one that an honest peer would have sent, which now
                    // sends it again.
                    has_lied = true;
                    prop_assert!(commands.len() <= limit);
                    owed.extend(commands.iter().filter_map(answer));
                }
                Err(error) => {
                    let is_of_part = matches!(error, ExecError::Malformed(_));
                    prop_assert!(!is_of_part, "{error} came late");
                    return Ok(());
                }
            }
        }
    }
}

/// In turn, a peer can neither hurry a node nor make it send before its receiver is ready.
#[test]
fn events_out_of_turn_are_refused() {
    let slices = Slices::contiguous(ByteRange::new(0, 8), 4);
    let steps = vec![
        step(0, slices, read(slices)),
        step(1, slices, send(PEER, NODE, 9)),
        step(2, slices, combine(&[0, 1])),
        step(3, slices, send(NODE, PEER, 2)),
    ];
    let in_turn = Part {
        order: StepOrder::InTurn,
        ..part(steps)
    };
    let credit = |slices| Event::Credited {
        value: ValueId(3),
        slices,
    };
    // Read, received and sent; only the receiver's second credit is missing.
    let sent = [fetched(0, 0, 4), credit(1), received(1, 0, 4)];
    let refused: [(&[Event], Event); 8] = [
        (&[], fetched(0, 1, 4)),
        (&[], fetched(0, 0, 3)),
        (&[], received(1, 0, 4)),
        (&[], credit(2)),
        (&[], Event::Stored { step: ValueId(0) }),
        (&[fetched(0, 0, 4)], received(1, 1, 4)),
        (&sent, received(1, 1, 4)),
        (&sent, credit(u64::MAX)),
    ];
    for (before, event) in refused {
        let (mut executor, _) = Executor::new(&in_turn).unwrap();
        for event in before {
            executor.handle(event.clone()).unwrap();
        }
        let error = executor.handle(event.clone()).unwrap_err();
        assert!(
            matches!(error, ExecError::Unexpected { .. }),
            "{event:?}: {error}"
        );
    }
    let (mut executor, _) = Executor::new(&in_turn).unwrap();
    for event in sent {
        executor.handle(event).unwrap();
    }
    assert_eq!(executor.awaited_peers(), [PEER]);
    let next = executor.handle(credit(1)).unwrap();
    assert!(matches!(next[..], [Command::Fetch { slice: 1, .. }]));
}
