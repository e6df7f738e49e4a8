//! Hostile plans: for any numbers, the checker answers, soon and without a panic.

use gabion_codec::Code;
use gabion_layout::{ByteRange, ChunkIndex, ChunkRange, Geometry, NodeId, Slices, StripeId};
use gabion_plan::{
    CheckError, Goal, Keepings, Log, Logged, Plan, Step, StepOrder, Term, ValueId, check,
};
use proptest::prelude::*;

/// Numbers at the limits of arithmetic, beside small ones that make a plan look right.
fn any_number() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0u64..70,
        1 => (0u32..64).prop_map(|shift| 1 << shift),
        1 => (0u64..70).prop_map(|below| u64::MAX - below),
        1 => any::<u64>(),
    ]
}

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
    let plain = (0u64..64, 1u64..64, 1u64..64).prop_map(|(offset, length, slice)| {
        Slices::contiguous(ByteRange::new(offset, length), slice)
    });
    prop_oneof![raw, plain]
}

fn any_node() -> impl Strategy<Value = NodeId> {
    prop_oneof![4 => 0u32..6, 1 => any::<u32>()].prop_map(NodeId)
}

fn any_chunk() -> impl Strategy<Value = ChunkIndex> {
    prop_oneof![4 => 0u8..6, 1 => any::<u8>()].prop_map(ChunkIndex)
}

fn any_value() -> impl Strategy<Value = ValueId> {
    prop_oneof![4 => 0u32..12, 1 => any::<u32>()].prop_map(ValueId)
}

fn any_step() -> impl Strategy<Value = Step> {
    let place = || (any_node(), any_chunk(), any_slices());
    let log = prop_oneof![
        Just(Log::Journal),
        any_chunk().prop_map(|data| Log::Parity { data })
    ];
    let term =
        (any::<u8>(), any_value()).prop_map(|(coefficient, value)| Term { coefficient, value });
    prop_oneof![
        place().prop_map(|(node, chunk, slices)| Step::Input {
            node,
            chunk,
            slices
        }),
        place().prop_map(|(node, chunk, slices)| Step::Read {
            node,
            chunk,
            slices
        }),
        (any_node(), proptest::collection::vec(term, 0..4))
            .prop_map(|(node, terms)| Step::Combine { node, terms }),
        (any_node(), any_node(), any_value()).prop_map(|(from, to, value)| Step::Send {
            from,
            to,
            value
        }),
        (place(), any_value()).prop_map(|((node, chunk, slices), value)| Step::Write {
            node,
            chunk,
            slices,
            value
        }),
        (place(), log, any_value()).prop_map(|((node, chunk, slices), log, value)| {
            Step::Append {
                node,
                log,
                chunk,
                slices,
                value,
            }
        }),
        (place(), any_value()).prop_map(|((node, chunk, slices), value)| Step::Deliver {
            node,
            chunk,
            slices,
            value
        }),
    ]
}

fn any_goal() -> impl Strategy<Value = Goal> {
    let ranges = || {
        let range =
            (any_chunk(), any_number(), any_number()).prop_map(|(chunk, offset, length)| {
                ChunkRange {
                    chunk,
                    range: ByteRange::new(offset, length),
                }
            });
        proptest::collection::vec(range, 0..4)
    };
    prop_oneof![
        Just(Goal::Encode),
        ranges().prop_map(|ranges| Goal::Update { ranges }),
        ranges().prop_map(|ranges| Goal::Read { ranges }),
        (ranges(), ranges(), any_node()).prop_map(|(ranges, logged, node)| {
            let log = Log::Replica;
            let logged = logged.into_iter().map(|part| Logged { node, log, part });
            Goal::ReadAppended {
                ranges,
                logged: logged.collect(),
            }
        }),
        proptest::collection::vec((any_chunk(), any_node()), 0..4)
            .prop_map(|chunks| Goal::Repair { chunks }),
        proptest::collection::vec((any_chunk(), any_node()), 0..4)
            .prop_map(|replicas| Goal::EncodeReplicas { replicas }),
        proptest::collection::vec((any_chunk(), any_node()), 0..4)
            .prop_map(|sources| Goal::Convert { sources }),
    ]
}

fn any_plan() -> impl Strategy<Value = Plan> {
    let chunk_bytes = prop_oneof![
        3 => 1u64..40,
        1 => Just(u64::MAX / 4),
    ];
    let geometry =
        (1usize..5, 1usize..3, 1usize..5, chunk_bytes).prop_map(|(k, m, w, row_bytes)| {
            Geometry::new(k, m, w, row_bytes * w as u64).expect("whole rows make a geometry")
        });
    let placement = proptest::collection::vec(any_node(), 0..7);
    let lost = proptest::collection::vec(any_chunk(), 0..3);
    let steps = proptest::collection::vec(any_step(), 0..12);
    (geometry, placement, lost, any_goal(), steps).prop_map(
        |(geometry, placement, lost, goal, steps)| Plan {
            stripe: StripeId(1),
            geometry,
            placement,
            lost,
            goal,
            keepings: Keepings::default(),
            order: StepOrder::default(),
            steps,
        },
    )
}

/// A stripe of two data chunks and a parity chunk, large enough for any stream of slices.
fn huge_plan(goal: Goal, steps: Vec<Step>) -> Plan {
    Plan {
        stripe: StripeId(1),
        geometry: Geometry::new(2, 1, 1, u64::MAX).expect("any size is a multiple of one row"),
        placement: [0, 1, 2].map(NodeId).to_vec(),
        lost: vec![],
        goal,
        keepings: Keepings::default(),
        order: StepOrder::default(),
        steps,
    }
}

fn code() -> Code {
    "rs(2,1)".parse().expect("a code of its family")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// The shape is made to match, so that steps and goals are reached.
    #[test]
    fn garbage_is_answered(mut plan in any_plan(), matches in any::<bool>()) {
        let code: Code = if plan.geometry.sub_chunks() == 4 {
            "rdp(4)".parse().unwrap()
        } else {
            "rs(4,2)".parse().unwrap()
        };
        if matches {
            let w = code.sub_chunks() as u64;
            let chunk_bytes = plan.geometry.chunk_bytes().next_multiple_of(w);
            plan.geometry = Geometry::new(code.k(), code.m(), w as usize, chunk_bytes).unwrap();
            plan.placement = (0..code.n() as u32).map(NodeId).collect();
        }
        // An accepted plan must also work for its later users.
        if check(&plan, &code).is_ok() {
            prop_assert_eq!(plan.streams().len(), plan.steps.len());
        }
    }
}

#[test]
fn countless_slices_are_refused_before_they_are_unrolled() {
    let slices = Slices {
        offset: 0,
        slice_bytes: 1,
        stride: 2,
        count: 1 << 60,
        tail_bytes: 1,
    };
    assert!(slices.is_valid());
    let chunk = ChunkIndex(0);
    let range = ByteRange::new(0, 1 << 61);
    let node = NodeId(0);
    let read = Step::Read {
        node,
        chunk,
        slices,
    };
    let deliver = Step::Deliver {
        node,
        chunk,
        slices,
        value: ValueId(0),
    };
    let plan = huge_plan(Goal::read(chunk, range), vec![read, deliver]);
    let error = check(&plan, &code()).unwrap_err();
    assert!(
        matches!(error, CheckError::Malformed { step: 1, .. }),
        "{error}"
    );
}

/// Each step sums the two before it; expressions must not grow with the steps.
#[test]
fn sums_of_sums_end() {
    let slices = Slices::whole(ByteRange::new(0, 1));
    let mut steps = vec![
        Step::Input {
            node: NodeId(0),
            chunk: ChunkIndex(0),
            slices,
        },
        Step::Input {
            node: NodeId(0),
            chunk: ChunkIndex(1),
            slices,
        },
    ];
    for at in 2..50_000u32 {
        let terms = [at - 1, at - 2]
            .map(|value| Term {
                coefficient: 3,
                value: ValueId(value),
            })
            .to_vec();
        steps.push(Step::Combine {
            node: NodeId(0),
            terms,
        });
    }
    let plan = huge_plan(Goal::Update { ranges: vec![] }, steps);
    assert_eq!(
        check(&plan, &code()),
        Ok(()),
        "nothing is asked and nothing done"
    );
}

#[test]
fn a_sum_of_millions_is_refused() {
    let slices = Slices::whole(ByteRange::new(0, 1));
    let mut steps = vec![Step::Input {
        node: NodeId(0),
        chunk: ChunkIndex(0),
        slices,
    }];
    let term = Term {
        coefficient: 1,
        value: ValueId(0),
    };
    for _ in 0..100 {
        let terms = vec![term; 100_000];
        steps.push(Step::Combine {
            node: NodeId(0),
            terms,
        });
    }
    let plan = huge_plan(Goal::Update { ranges: vec![] }, steps);
    let error = check(&plan, &code()).unwrap_err();
    assert!(matches!(error, CheckError::Malformed { .. }), "{error}");
}

/// Many deltas on the same bytes add up, each of them once: an odd number of times the new bytes,
/// and never the old ones that the delta needs.
#[test]
fn heaps_of_deltas_are_summed_in_time() {
    let (data, parity) = (ChunkIndex(0), ChunkIndex(2));
    let count = 100_001;
    let slices = Slices::whole(ByteRange::new(0, count));
    let mut steps = vec![Step::Input {
        node: NodeId(2),
        chunk: data,
        slices,
    }];
    steps.push(Step::Send {
        from: NodeId(2),
        to: NodeId(0),
        value: ValueId(0),
    });
    steps.push(Step::Append {
        node: NodeId(0),
        log: Log::Journal,
        chunk: data,
        slices,
        value: ValueId(1),
    });
    for _ in 0..count {
        steps.push(Step::Append {
            node: NodeId(2),
            log: Log::Parity { data },
            chunk: parity,
            slices,
            value: ValueId(0),
        });
    }
    let plan = huge_plan(Goal::update(data, ByteRange::new(0, count)), steps);
    let error = check(&plan, &code()).unwrap_err();
    assert!(matches!(error, CheckError::Wrong { .. }), "{error}");
}

#[test]
fn heaps_of_ranges_are_refused_or_compared_in_time() {
    let ranges: Vec<ChunkRange> = (0..200_000u64)
        .map(|at| ChunkRange {
            chunk: ChunkIndex(0),
            range: ByteRange::new(2 * at, 1),
        })
        .collect();
    let plan = huge_plan(Goal::Read { ranges }, vec![]);
    let error = check(&plan, &code()).unwrap_err();
    assert!(matches!(error, CheckError::Missing { .. }), "{error}");
}

#[test]
fn a_goal_cannot_cancel_itself() {
    let (chunk, node) = (ChunkIndex(0), NodeId(7));
    let plan = huge_plan(
        Goal::Repair {
            chunks: vec![(chunk, node), (chunk, node)],
        },
        vec![],
    );
    let error = check(&plan, &code()).unwrap_err();
    assert!(matches!(error, CheckError::Goal { .. }), "{error}");
}

/// Geometries that no constructor makes can arrive over the wire.
#[test]
fn impossible_geometries_are_refused() {
    for (sub_chunks, chunk_bytes) in [(0u64, 64u64), (1, 0), (4, 3), (4, 0), (4, u64::MAX)] {
        let text =
            format!(r#"{{"k":4,"m":2,"sub_chunks":{sub_chunks},"chunk_bytes":{chunk_bytes}}}"#);
        let plan = Plan {
            geometry: serde_json::from_str(&text).unwrap(),
            placement: (0..6).map(NodeId).collect(),
            ..huge_plan(Goal::read(ChunkIndex(0), ByteRange::new(0, 1)), vec![])
        };
        for code in ["rs(4,2)", "rdp(4)"] {
            let error = check(&plan, &code.parse().unwrap()).unwrap_err();
            assert!(matches!(error, CheckError::Geometry { .. }), "{error}");
        }
    }
}
