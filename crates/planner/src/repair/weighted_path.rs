//! Weighted path selection: the chain with the fastest slowest link, where every directed link has its own weight.
//! `ECPipe` section 4.3 gives algorithm 2, which is here for comparison; [`weighted_path`] is also exact, and faster.
//! It searches the threshold: is there a chain over links of at most this weight? Each such question is a depth-first
//! search. It stops a branch if too few helpers are left, and never examines the same set twice.

use gabion_layout::NodeId;
use std::collections::{BTreeMap, BTreeSet};

/// The most helpers among which a path is sought: a set of them is one machine word.
pub const CANDIDATES_MAX: usize = 64;

/// Weights of directed links, such as nanoseconds for one chunk. A link without a weight cannot be
/// used.
pub type LinkWeights = BTreeMap<(NodeId, NodeId), u64>;

/// A chain and its slowest link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WeightedPath {
    /// Helpers from the chain's start to the one that sends to the requestor.
    pub helpers: Vec<NodeId>,
    /// The greatest weight of its links, the one to the requestor included.
    pub bottleneck: u64,
}

/// A path of `length` of the `candidates` to `requestor` whose greatest weight is the least possible;
/// none when the links that have weights do not make one. Equal inputs give equal paths.
///
/// # Panics
/// When `length` is 0, or there are more than [`CANDIDATES_MAX`] candidates.
#[must_use]
pub fn weighted_path(
    candidates: &[NodeId],
    requestor: NodeId,
    length: usize,
    weights: &LinkWeights,
) -> Option<WeightedPath> {
    let graph = Graph::new(candidates, requestor, length, weights);
    let mut steps: Vec<u64> = graph
        .into
        .iter()
        .flatten()
        .copied()
        .filter(|&w| w < NO_LINK)
        .collect();
    steps.sort_unstable();
    steps.dedup();
    let (mut low, mut high) = (0, steps.len());
    let mut best = None;
    while low < high {
        let middle = low.midpoint(high);
        let Some(path) = Threshold::new(&graph, steps[middle]).search() else {
            low = middle + 1;
            continue;
        };
        // The path may stay below the threshold that it was sought for.
        let found = graph.named(&path, candidates);
        high = steps.partition_point(|&weight| weight < found.bottleneck);
        best = Some(found);
    }
    best
}

/// The same for a chain that carries a chunk for each of the `requestors`, to all of which its last helper
/// sends (section 4.4 leaves this open but for the thought of one big requestor). `weights` are for one
/// chunk; the bottleneck is what the slowest link of the chain takes for as many chunks as there are
/// requestors, or what the last helper takes for one to each, through one port.
///
/// # Panics
/// As [`weighted_path`].
///
/// ```
/// use gabion_layout::NodeId;
/// use gabion_planner::repair::{LinkWeights, weighted_path_to_all};
///
/// let [a, b, r, s] = [0, 1, 2, 3].map(NodeId);
/// // Both ends are as near to r, but s is far from b.
/// let links = [((a, b), 4), ((b, a), 4), ((a, r), 1), ((b, r), 1), ((a, s), 2), ((b, s), 9)];
/// let weights: LinkWeights = links.into_iter().collect();
/// let path = weighted_path_to_all(&[a, b], &[r, s], 2, &weights).unwrap();
/// assert_eq!((path.helpers, path.bottleneck), (vec![b, a], 8));
/// ```
#[must_use]
pub fn weighted_path_to_all(
    candidates: &[NodeId],
    requestors: &[NodeId],
    length: usize,
    weights: &LinkWeights,
) -> Option<WeightedPath> {
    let all = NodeId::CLIENT;
    let chunk_count = requestors.len() as u64;
    let mut joined = LinkWeights::new();
    for &from in candidates {
        for &to in candidates {
            if let Some(weight) = weights.get(&(from, to)) {
                joined.insert((from, to), weight.saturating_mul(chunk_count));
            }
        }
        let last = requestors.iter().map(|&to| weights.get(&(from, to)));
        let sum = |sum: Option<u64>, weight: Option<&u64>| Some(sum?.saturating_add(*weight?));
        if let Some(last) = last.fold(Some(0), sum) {
            joined.insert((from, all), last);
        }
    }
    weighted_path(candidates, all, length, &joined)
}

/// The same as [`weighted_path`] by algorithm 2 of the paper: extend a path backwards from the requestor by every link
/// that is lighter than the slowest one of the best path known. Its pseudo-code goes on under a
/// beginning that has become no better than that path itself; this one turns back there.
///
/// # Panics
/// As [`weighted_path`].
#[must_use]
pub fn weighted_path_by_extension(
    candidates: &[NodeId],
    requestor: NodeId,
    length: usize,
    weights: &LinkWeights,
) -> Option<WeightedPath> {
    fn extend(graph: &Graph, path: &mut Vec<usize>, bound: &mut u64, best: &mut Vec<usize>) {
        if path.len() == graph.length {
            *bound = graph.bottleneck(path);
            best.clone_from(path);
            return;
        }
        let head = path.last().copied().unwrap_or(graph.requestor());
        for node in 0..graph.requestor() {
            // A path that is as slow already cannot become better by lighter links.
            if graph.bottleneck(path) >= *bound {
                return;
            }
            if !path.contains(&node) && graph.into[head][node] < *bound {
                path.push(node);
                extend(graph, path, bound, best);
                path.pop();
            }
        }
    }
    let graph = Graph::new(candidates, requestor, length, weights);
    let (mut bound, mut best) = (NO_LINK, Vec::new());
    extend(
        &graph,
        &mut Vec::with_capacity(length),
        &mut bound,
        &mut best,
    );
    (!best.is_empty()).then(|| graph.named(&best, candidates))
}

const NO_LINK: u64 = u64::MAX;

/// Candidates by position; the requestor has the position after them.
struct Graph {
    /// `into[to][from]`.
    into: Vec<Vec<u64>>,
    length: usize,
}

impl Graph {
    fn new(from: &[NodeId], requestor: NodeId, length: usize, weights: &LinkWeights) -> Self {
        assert!(
            length > 0 && from.len() <= CANDIDATES_MAX,
            "a path has 1..={CANDIDATES_MAX} helpers"
        );
        let weight = |from: NodeId, to: NodeId| {
            let known = weights.get(&(from, to)).copied();
            if from == to {
                NO_LINK
            } else {
                known.unwrap_or(NO_LINK)
            }
        };
        let ends = from.iter().chain([&requestor]);
        let into = ends.map(|&to| from.iter().map(|&from| weight(from, to)).collect());
        Self {
            into: into.collect(),
            length,
        }
    }

    fn requestor(&self) -> usize {
        self.into.len() - 1
    }

    /// The greatest weight of a path that is given from the requestor backwards.
    fn bottleneck(&self, path: &[usize]) -> u64 {
        let mut to = self.requestor();
        let mut greatest = 0;
        for &from in path {
            greatest = greatest.max(self.into[to][from]);
            to = from;
        }
        greatest
    }

    fn named(&self, path: &[usize], candidates: &[NodeId]) -> WeightedPath {
        WeightedPath {
            helpers: path.iter().rev().map(|&at| candidates[at]).collect(),
            bottleneck: self.bottleneck(path),
        }
    }
}

/// The links of at most some weight, as sets of candidates, and a search among them.
struct Threshold {
    /// `into[to]`: the nodes that may send to `to`, which may be the requestor.
    into: Vec<u64>,
    length: usize,
    /// Remaining candidates, head and needed count of searches without a path.
    barren: BTreeSet<(u64, usize, usize)>,
}

impl Threshold {
    fn new(graph: &Graph, weight_max: u64) -> Self {
        let set = |weights: &Vec<u64>| {
            let light = weights
                .iter()
                .enumerate()
                .filter(|&(_, &w)| w <= weight_max);
            light.fold(0, |set, (from, _)| set | 1 << from)
        };
        Self {
            into: graph.into.iter().map(set).collect(),
            length: graph.length,
            barren: BTreeSet::new(),
        }
    }

    /// A path from the requestor backwards.
    fn search(mut self) -> Option<Vec<usize>> {
        let requestor = self.into.len() - 1;
        let all = if requestor == 64 {
            u64::MAX
        } else {
            (1 << requestor) - 1
        };
        let mut path = Vec::with_capacity(self.length);
        self.extend(requestor, all, &mut path).then_some(path)
    }

    fn extend(&mut self, head: usize, left: u64, path: &mut Vec<usize>) -> bool {
        let needed = self.length - path.len();
        if needed == 0 {
            return true;
        }
        let Some(useful) = self.useful(head, left, needed) else {
            return false;
        };
        if self.barren.contains(&(useful, head, needed)) {
            return false;
        }
        // Those whom few can reach come first: they are the harder to fit in later.
        let mut next: Vec<usize> = members(self.into[head] & useful).collect();
        next.sort_by_key(|&from| ((self.into[from] & useful).count_ones(), from));
        for from in next {
            path.push(from);
            if self.extend(from, useful & !(1 << from), path) {
                return true;
            }
            path.pop();
        }
        self.barren.insert((useful, head, needed));
        false
    }

    /// Those of `left` from which links lead to `head` through others of them; none when a path of
    /// `needed` cannot be among them. On such a path every node but the first receives from another,
    /// so at least `needed` of its ends, `head` included, must have a node to receive from.
    fn useful(&self, head: usize, left: u64, needed: usize) -> Option<u64> {
        let mut reached = self.into[head] & left;
        let mut fresh = reached;
        while fresh != 0 {
            let found = members(fresh).fold(0, |found, to| found | self.into[to]);
            fresh = found & left & !reached;
            reached |= fresh;
        }
        let has_source = |&to: &usize| self.into[to] & reached != 0;
        let ends = members(reached).filter(has_source).count() + 1;
        let suffice = reached.count_ones() as usize >= needed && ends >= needed;
        suffice.then_some(reached)
    }
}

/// The members of a set in ascending order.
fn members(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let first = set.trailing_zeros() as usize;
        set &= set.checked_sub(1)?;
        Some(first)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn random(nodes: u32, distinct: u64, rng: &mut ChaCha8Rng) -> LinkWeights {
        let mut weights = LinkWeights::new();
        for from in 0..nodes {
            for to in (0..nodes).filter(|&to| to != from) {
                // Some links are missing.
                if rng.random_range(0..12) > 0 {
                    weights.insert((NodeId(from), NodeId(to)), rng.random_range(0..distinct));
                }
            }
        }
        weights
    }

    /// The least greatest weight of all paths, by trying every one.
    fn brute_force(path: &mut Vec<NodeId>, from: &[NodeId], k: usize, w: &LinkWeights) -> u64 {
        if path.len() == k + 1 {
            let links = path.windows(2).map(|pair| w.get(&(pair[1], pair[0])));
            return links
                .map(|weight| weight.copied().unwrap_or(NO_LINK))
                .max()
                .expect("k > 0");
        }
        let mut least = NO_LINK;
        for &node in from {
            if !path.contains(&node) {
                path.push(node);
                least = least.min(brute_force(path, from, k, w));
                path.pop();
            }
        }
        least
    }

    #[test]
    fn both_searches_find_what_trying_all_paths_finds() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        for round in 0..400u32 {
            let n = 2 + round % 6;
            let k = rng.random_range(1..=n) as usize;
            let weights = random(n + 1, if round % 2 == 0 { 1000 } else { 4 }, &mut rng);
            let (helpers, requestor): (Vec<NodeId>, _) = ((0..n).map(NodeId).collect(), NodeId(n));
            let least = brute_force(&mut vec![requestor], &helpers, k, &weights);
            for search in [weighted_path, weighted_path_by_extension] {
                let found = search(&helpers, requestor, k, &weights);
                assert_eq!(
                    found.as_ref().map_or(NO_LINK, |path| path.bottleneck),
                    least
                );
                let Some(path) = found else { continue };
                let mut nodes = path.helpers.clone();
                nodes.sort_unstable();
                nodes.dedup();
                assert_eq!(nodes.len(), k);
                let ends = path.helpers.iter().skip(1).chain([&requestor]);
                let links = path
                    .helpers
                    .iter()
                    .zip(ends)
                    .map(|(&from, &to)| weights[&(from, to)]);
                assert_eq!(links.max(), Some(least));
            }
        }
    }

    #[test]
    fn paths_to_several_requestors_are_the_best_of_all() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        for _ in 0..200 {
            let weights = random(8, 50, &mut rng);
            let (helpers, ends): (Vec<NodeId>, _) =
                ((0..6).map(NodeId).collect(), [NodeId(6), NodeId(7)]);
            // By hand: each helper as the last one, and the best chain to it.
            let weight = |from, to| weights.get(&(from, to)).copied();
            let ways = helpers.iter().filter_map(|&last| {
                let others = helpers.iter().copied().filter(|&node| node != last);
                let chain = brute_force(&mut vec![last], &others.collect::<Vec<_>>(), 3, &weights);
                let ends = weight(last, ends[0])? + weight(last, ends[1])?;
                (chain < NO_LINK).then(|| (2 * chain).max(ends))
            });
            let found = weighted_path_to_all(&helpers, &ends, 4, &weights);
            assert_eq!(found.map(|path| path.bottleneck), ways.min());
        }
    }

    #[test]
    fn wide_codes_agree_with_the_paper_algorithm() {
        let mut rng = ChaCha8Rng::seed_from_u64(6);
        for _ in 0..20 {
            let weights = random(14, 1 << 40, &mut rng);
            let (helpers, requestor): (Vec<NodeId>, _) =
                ((0..13).map(NodeId).collect(), NodeId(13));
            let ours = weighted_path(&helpers, requestor, 10, &weights);
            let theirs = weighted_path_by_extension(&helpers, requestor, 10, &weights);
            assert_eq!(ours.map(|p| p.bottleneck), theirs.map(|p| p.bottleneck));
        }
    }
}
