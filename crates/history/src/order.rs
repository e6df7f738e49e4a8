//! The order of operations: a graph in which each node has the span of instants that remain for it.
//!
//! An operation takes effect within its span, initially from its call to its answer. If one must
//! come before another, the earlier one ends no later, and the later one begins no earlier: spans
//! shrink along the edges. So an operation whose span ends before another's begins comes first
//! without an edge, and a cycle is an edge against a path, or an empty span. Edges connect only
//! operations with overlapping spans, which are few at a time.
//!
//! [`Order::undo`] reverts the changes of a search.

/// The number of an operation.
pub(crate) type Op = usize;

/// Grounds on which one operation comes before another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    /// The later one, a read, shows the earlier one.
    Shown,
    /// The earlier one, a read, shows in this cell a write that the later one replaced.
    Replaced(Op, u64),
    /// A read that comes after the earlier one shows the later one in this cell, which both wrote.
    Hidden(Op, u64),
}

/// Two operations cannot have their required order; or one, given twice, has no instant left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Clash {
    pub(crate) earlier: Op,
    pub(crate) later: Op,
    /// None if the calls and answers determine it.
    pub(crate) why: Option<Why>,
}

#[derive(Clone, Debug)]
struct Node {
    called: u64,
    /// `u64::MAX` without an answer.
    answered: u64,
    /// The remaining instants.
    first: u64,
    last: u64,
    after: Vec<(Op, Why)>,
    before: Vec<Op>,
    /// The last walk that visited it.
    walk: u64,
}

/// A change that can be undone.
#[derive(Clone, Copy, Debug)]
enum Change {
    First(Op, u64),
    Last(Op, u64),
    Edge(Op, Op),
}

/// The graph.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    nodes: Vec<Node>,
    /// The changes of a search.
    trail: Vec<Change>,
    is_searching: bool,
    walk: u64,
    /// Operations that the present walk along the edges still has to visit.
    open: Vec<Op>,
    /// Operations that the present walk against the edges still has to visit.
    open_back: Vec<Op>,
    /// Operations with new information since the last call for them.
    touched: Vec<Op>,
}

impl Order {
    /// Adds an operation.
    pub(crate) fn add(&mut self, called: u64, answered: u64) -> Op {
        self.nodes.push(Node {
            called,
            answered,
            first: called,
            last: answered,
            after: Vec::new(),
            before: Vec::new(),
            walk: 0,
        });
        self.nodes.len() - 1
    }

    /// Its call and its answer.
    pub(crate) fn span(&self, op: Op) -> (u64, u64) {
        let node = &self.nodes[op];
        (node.called, node.answered)
    }

    /// The first remaining instant of an operation.
    pub(crate) fn first(&self, op: Op) -> u64 {
        self.nodes[op].first
    }

    /// The last remaining instant of an operation.
    pub(crate) fn last(&self, op: Op) -> u64 {
        self.nodes[op].last
    }

    /// Notes an answer.
    pub(crate) fn answer(&mut self, op: Op, at: u64) -> Result<(), Clash> {
        let node = &mut self.nodes[op];
        node.answered = node.answered.min(at);
        self.end_by(op, at)
    }

    /// Operations with new information, each possibly several times.
    pub(crate) fn take_touched(&mut self) -> Vec<Op> {
        std::mem::take(&mut self.touched)
    }

    /// Whether one operation is known to come before another.
    pub(crate) fn is_before(&mut self, one: Op, other: Op) -> bool {
        let (start, end) = (&self.nodes[one], &self.nodes[other]);
        if start.last < end.first {
            return true;
        }
        // Spans shrink along paths.
        if one == other || start.first > end.first || start.last > end.last {
            return false;
        }
        if start.after.is_empty() || end.before.is_empty() {
            return false;
        }
        let (earliest, latest) = ((start.first, start.last), (end.first, end.last));
        self.walk += 2;
        let (forth, back) = (self.walk - 1, self.walk);
        self.nodes[one].walk = forth;
        self.nodes[other].walk = back;
        self.open.clear();
        self.open.push(one);
        self.open_back.clear();
        self.open_back.push(other);
        // The walk from the end with fewer edges goes on: a read of many writes has thousands, and the other end has
        // few.
        while let (Some(&at), Some(&until)) = (self.open.last(), self.open_back.last()) {
            let has_met = if self.nodes[at].after.len() <= self.nodes[until].before.len() {
                self.step_forth((forth, back), latest)
            } else {
                self.step_back((forth, back), earliest)
            };
            if has_met {
                return true;
            }
        }
        false
    }

    /// Goes on from the last operation of a walk along the edges to those that end early enough. Returns whether it
    /// meets the walk `back`.
    fn step_forth(&mut self, (forth, back): (u64, u64), (first, last): (u64, u64)) -> bool {
        let Some(at) = self.open.pop() else {
            return false;
        };
        for next in 0..self.nodes[at].after.len() {
            let (next, _) = self.nodes[at].after[next];
            let node = &mut self.nodes[next];
            if node.walk == back {
                return true;
            }
            if node.walk != forth && node.first <= first && node.last <= last {
                node.walk = forth;
                self.open.push(next);
            }
        }
        false
    }

    /// Goes on from the last operation of a walk against the edges to those that begin late enough. Returns whether it
    /// meets the walk `forth`.
    fn step_back(&mut self, (forth, back): (u64, u64), (first, last): (u64, u64)) -> bool {
        let Some(until) = self.open_back.pop() else {
            return false;
        };
        for next in 0..self.nodes[until].before.len() {
            let next = self.nodes[until].before[next];
            let node = &mut self.nodes[next];
            if node.walk == forth {
                return true;
            }
            if node.walk != back && node.first >= first && node.last >= last {
                node.walk = back;
                self.open_back.push(next);
            }
        }
        false
    }

    /// Puts one operation before another.
    pub(crate) fn put_before(&mut self, earlier: Op, later: Op, why: Why) -> Result<(), Clash> {
        if self.nodes[earlier].last < self.nodes[later].first {
            return Ok(());
        }
        let clash = Clash {
            earlier,
            later,
            why: Some(why),
        };
        if earlier == later || self.is_before(later, earlier) {
            return Err(clash);
        }
        self.touch_around(earlier, later);
        self.nodes[earlier].after.push((later, why));
        self.nodes[later].before.push(earlier);
        if self.is_searching {
            self.trail.push(Change::Edge(earlier, later));
        }
        let (first, last) = (self.nodes[earlier].first, self.nodes[later].last);
        let narrowed = self.begin_from(later, first);
        let narrowed = narrowed.and_then(|()| self.end_by(earlier, last));
        narrowed.map_err(|_| clash)
    }

    /// Restricts an operation, and all that come after it, to an instant or later.
    fn begin_from(&mut self, op: Op, first: u64) -> Result<(), Clash> {
        let mut open = vec![op];
        while let Some(at) = open.pop() {
            let node = &mut self.nodes[at];
            if node.first >= first {
                continue;
            }
            if self.is_searching {
                self.trail.push(Change::First(at, node.first));
            }
            node.first = first;
            self.touched.push(at);
            if first > node.last {
                return Err(empty(at));
            }
            open.extend(node.after.iter().map(|&(next, _)| next));
        }
        Ok(())
    }

    /// Restricts an operation, and all that come before it, to an instant or earlier.
    fn end_by(&mut self, op: Op, last: u64) -> Result<(), Clash> {
        let mut open = vec![op];
        while let Some(at) = open.pop() {
            let node = &mut self.nodes[at];
            if node.last <= last {
                continue;
            }
            if self.is_searching {
                self.trail.push(Change::Last(at, node.last));
            }
            node.last = last;
            self.touched.push(at);
            if last < node.first {
                return Err(empty(at));
            }
            open.extend_from_slice(&node.before);
        }
        Ok(())
    }

    /// Touches the operations that a new edge orders: those before its start that overlap its end,
    /// and the reverse.
    fn touch_around(&mut self, earlier: Op, later: Op) {
        let (first, last) = (self.nodes[later].first, self.nodes[earlier].last);
        self.walk += 1;
        let mut open = vec![earlier];
        while let Some(at) = open.pop() {
            self.touched.push(at);
            for next in 0..self.nodes[at].before.len() {
                let next = self.nodes[at].before[next];
                let node = &mut self.nodes[next];
                if node.walk != self.walk && node.last >= first {
                    node.walk = self.walk;
                    open.push(next);
                }
            }
        }
        open.push(later);
        while let Some(at) = open.pop() {
            self.touched.push(at);
            for next in 0..self.nodes[at].after.len() {
                let (next, _) = self.nodes[at].after[next];
                let node = &mut self.nodes[next];
                if node.walk != self.walk && node.first <= last {
                    node.walk = self.walk;
                    open.push(next);
                }
            }
        }
    }

    /// Begins or ends recording changes.
    pub(crate) fn search(&mut self, is_searching: bool) {
        self.is_searching = is_searching;
    }

    /// Number of recorded changes.
    pub(crate) fn mark(&self) -> usize {
        self.trail.len()
    }

    /// Undoes all changes after a mark.
    pub(crate) fn undo(&mut self, mark: usize) {
        while self.trail.len() > mark {
            match self.trail.pop() {
                Some(Change::First(op, first)) => self.nodes[op].first = first,
                Some(Change::Last(op, last)) => self.nodes[op].last = last,
                Some(Change::Edge(earlier, later)) => {
                    self.nodes[earlier].after.pop();
                    self.nodes[later].before.pop();
                }
                None => {}
            }
        }
        self.touched.clear();
    }

    /// A shortest cycle that shows a clash: operations, each with the reason why it comes before
    /// the next one, and the last before the first; none for the order of a call after an answer.
    pub(crate) fn circle(&self, clash: &Clash) -> Vec<(Op, Option<Why>)> {
        let Clash {
            earlier,
            later,
            why,
        } = *clash;
        let mut circle = self.path(later, earlier);
        if earlier != later || why.is_some() {
            circle.push((earlier, why));
        }
        circle
    }

    /// A shortest path of edges, and of answers before calls, without its end.
    fn path(&self, start: Op, end: Op) -> Vec<(Op, Option<Why>)> {
        let mut from: Vec<Option<(Op, Option<Why>)>> = vec![None; self.nodes.len()];
        let mut by_call: Vec<Op> = (0..self.nodes.len()).collect();
        by_call.sort_by_key(|&op| self.nodes[op].called);
        let mut open = std::collections::VecDeque::from([start]);
        while let Some(at) = open.pop_front() {
            let mut reach = |op: Op, why| {
                if from[op].is_none() {
                    from[op] = Some((at, why));
                    open.push_back(op);
                }
            };
            for &(op, why) in &self.nodes[at].after {
                reach(op, Some(why));
            }
            let is_after = |op: &Op| self.nodes[*op].called > self.nodes[at].answered;
            while let Some(op) = by_call.pop_if(|op| is_after(op)) {
                reach(op, None);
            }
            if from[end].is_some() {
                break;
            }
        }
        let mut path = Vec::new();
        let mut at = end;
        while let Some((earlier, why)) = from[at] {
            path.push((earlier, why));
            at = earlier;
            if at == start {
                break;
            }
        }
        path.reverse();
        path
    }
}

/// The clash of an operation with an empty span.
fn empty(op: Op) -> Clash {
    Clash {
        earlier: op,
        later: op,
        why: None,
    }
}
