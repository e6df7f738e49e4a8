//! Rates against plain progressive filling, whatever begins and ends.

use super::*;
use crate::flow::{Rates, Share};
use gabion_layout::{NodeId, Topology};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// By flow, its rate as plain progressive filling finds it: all flows at once, step by step.
fn plainly(network: &MaxMin) -> Vec<Option<f64>> {
    let mut rates: Vec<Option<f64>> = vec![None; network.flows.len()];
    loop {
        let mut tightest: Option<(f64, &[Crossing])> = None;
        for Link {
            bytes_per_s,
            crossings,
            ..
        } in &network.links
        {
            let (mut left, mut weight) = (*bytes_per_s, 0.0);
            for crossing in crossings {
                match rates[crossing.flow as usize] {
                    Some(rate) => left -= rate * crossing.weight,
                    None => weight += crossing.weight,
                }
            }
            if weight > 0.0 && tightest.is_none_or(|(rate, _)| left / weight < rate) {
                tightest = Some((left / weight, crossings));
            }
        }
        let Some((rate, crossings)) = tightest else {
            let flows = network.flows.iter().zip(&rates);
            assert!(
                flows
                    .into_iter()
                    .all(|(f, r)| f.holds.is_empty() == r.is_none())
            );
            return rates;
        };
        for crossing in crossings {
            rates[crossing.flow as usize].get_or_insert(rate);
        }
    }
}

fn check(network: &mut MaxMin) {
    network.find_rates();
    check_tables(network);
    let all = network.rates.iter().zip(plainly(network));
    for (place, (rate, plain)) in all.enumerate() {
        let Some(plain) = plain else { continue };
        let distance = (rate.bytes_per_s - plain).abs();
        assert!(
            distance <= plain * 1e-9,
            "{place} has {rate:?}, plainly {plain}"
        );
    }
    for link in (0..network.links.len() as u32).map(LinkNumber) {
        let crossings = network.links[link.at()].crossings.iter();
        let load: f64 = crossings
            .map(|c| c.weight * network.rates[c.flow as usize].bytes_per_s)
            .sum();
        let carried = network.links[link.at()].bytes_per_s;
        assert!(load <= carried * (1.0 + 1e-9));
        assert_eq!(network.is_full(link), load > carried * FULL_SHARE);
    }
}

/// Checks that places point to each other, that sums are sums, and that a filling leaves nothing behind.
fn check_tables(network: &MaxMin) {
    let mut crossing_count = 0;
    for (place, flow) in network.flows.iter().enumerate() {
        for (number, hold) in flow.holds.iter().enumerate() {
            let crossing = &network.links[hold.link.at()].crossings[hold.at as usize];
            assert_eq!(
                (crossing.flow, crossing.hold),
                (place as u32, number as u32)
            );
            assert!((crossing.weight - hold.weight).abs() < f64::EPSILON);
            crossing_count += 1;
        }
    }
    for link in &network.links {
        let weight: f64 = link.crossings.iter().map(|c| c.weight).sum();
        assert!((link.weight - weight).abs() <= weight * 1e-12);
        crossing_count -= link.crossings.len();
    }
    assert_eq!(crossing_count, 0);
    assert!(network.filling.is_empty(&network.rates));
}

fn any_flow(fabric: &Fabric, node_count: u32, rng: &mut ChaCha8Rng) -> Flow {
    let mut flow = Flow::default();
    // Several paths at once are a plan that streams.
    for _ in 0..[1, 1, 1, 3][rng.random_range(0..4)] {
        let (from, to) = (
            rng.random_range(0..node_count),
            rng.random_range(0..node_count - 1),
        );
        let to = if to < from { to } else { to + 1 };
        for link in fabric.path(NodeId(from), NodeId(to)) {
            if flow.shares.iter().all(|share| share.link != link) {
                let weight = f64::from(rng.random_range(1..4_u32));
                flow.shares.push(Share { link, weight });
            }
        }
    }
    let disk = fabric.disk(NodeId(rng.random_range(0..node_count)));
    if let Some(link) = disk.filter(|_| rng.random_bool(0.5)) {
        flow.shares.push(Share { link, weight: 0.7 });
    }
    flow.shares.sort_by_key(|share| share.link);
    flow.bytes = rng.random_range(1.0..1000.0);
    flow
}

proptest! {
    #[test]
    fn whatever_begins_and_ends_rates_are_those_of_plain_filling(
        seed: u64,
        (racks, per_rack) in (1_u32..6, 2_u32..5),
        rack_bytes_per_s in 30.0..300.0,
        disk_bytes_per_s in prop::option::of(20.0..200.0),
        at_once in 1_u64..60,
    ) {
        let rates = Rates {
            node_bytes_per_s: 100.0,
            rack_bytes_per_s,
            disk_bytes_per_s,
        };
        let fabric = Fabric::new(&Topology::uniform(racks, per_rack), rates);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut network = MaxMin::new(&fabric);
        let mut under_way = 0_u64;
        for token in 0..100 {
            for _ in 0..rng.random_range(0..=2).min(at_once - under_way) {
                network.start(&any_flow(&fabric, racks * per_rack, &mut rng), token);
                under_way += 1;
            }
            check(&mut network);
            if rng.random_bool(0.3) {
                // A timer comes before the next end.
                let now_ns = network.now_ns();
                let limit_ns = now_ns + 1;
                if network.take_next(Some(limit_ns)).is_some() {
                    under_way -= 1;
                } else {
                    network.advance(limit_ns);
                }
            }
            for _ in 0..rng.random_range(0..=2) {
                under_way -= u64::from(network.take_next(None).is_some());
            }
        }
        while network.take_next(None).is_some() {
            under_way -= 1;
            check(&mut network);
        }
        prop_assert_eq!(under_way, 0);
    }
}

#[test]
fn all_bytes_cross_at_the_rates_that_were_found() {
    let rates = Rates {
        node_bytes_per_s: 100.0,
        rack_bytes_per_s: 100.0,
        disk_bytes_per_s: None,
    };
    let fabric = Fabric::new(&Topology::uniform(1, 3), rates);
    let mut network = MaxMin::new(&fabric);
    let flow = |bytes, from| Flow::new(bytes, fabric.path(NodeId(from), NodeId(2)));
    network.start(&flow(300, 0), 1);
    assert_eq!(network.take_next(Some(1_000_000_000)), None);
    network.advance(1_000_000_000);
    network.start(&flow(50, 1), 2);
    // 200 and 50 bytes are left, at 50 each; then 150 at 100.
    assert_eq!(
        (network.take_next(None), network.now_ns()),
        (Some(2), 2_000_000_000)
    );
    assert_eq!(
        (network.take_next(None), network.now_ns()),
        (Some(1), 3_500_000_000)
    );
    assert_eq!(network.take_next(None), None);
}
