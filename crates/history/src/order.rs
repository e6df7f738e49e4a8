//! Which operation must come before which: a graph whose every node has the span of instants that is left for it.
//!
//! An operation takes effect within its span, which is from its call to its answer at first. If one must come before
//! another, the earlier one ends no later, and the later one begins no earlier: spans shrink along the edges. So an
//! operation whose span ends before another's begins comes first without an edge, and a circle is an edge against a
//! path, or a span that is empty. Edges connect only operations whose spans overlap, which are few at a time.
//!
//! What is added during a search is taken back by [`Order::undo`].

/// The number of an operation.
pub(crate) type Op = usize;

/// Why one operation comes before another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    /// The later one, a read, shows the earlier one.
    Shown,
    /// The earlier one, a read, shows in this cell a write that the later one replaced.
    Replaced(Op, u64),
    /// A read that comes after the earlier one shows the later one in this cell, which both wrote.
    Hidden(Op, u64),
}

/// Two operations cannot have the order that they must have; or one, given twice, has no instant left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Clash {
    pub(crate) earlier: Op,
    pub(crate) later: Op,
    /// None where it is so by their calls and answers.
    pub(crate) why: Option<Why>,
}

#[derive(Clone, Debug)]
struct Node {
    called: u64,
    /// `u64::MAX` while there is no answer.
    answered: u64,
    /// The instants that are left.
    first: u64,
    last: u64,
    after: Vec<(Op, Why)>,
    before: Vec<Op>,
    /// The walk that was here last.
    walk: u64,
}

/// One change that can be taken back.
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
    /// What a search has changed.
    trail: Vec<Change>,
    is_searching: bool,
    walk: u64,
    /// Operations of which more is known than when they were asked for last.
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

    /// When it was called and answered.
    pub(crate) fn span(&self, op: Op) -> (u64, u64) {
        let node = &self.nodes[op];
        (node.called, node.answered)
    }

    /// The first instant that is left for an operation.
    pub(crate) fn first(&self, op: Op) -> u64 {
        self.nodes[op].first
    }

    /// The last instant that is left for an operation.
    pub(crate) fn last(&self, op: Op) -> u64 {
        self.nodes[op].last
    }

    /// Notes an answer.
    pub(crate) fn answer(&mut self, op: Op, at: u64) -> Result<(), Clash> {
        let node = &mut self.nodes[op];
        node.answered = node.answered.min(at);
        self.end_by(op, at)
    }

    /// Operations of which more is known by now, each possibly several times.
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
        let (first, last) = (end.first, end.last);
        self.walk += 1;
        let mut open = vec![one];
        while let Some(at) = open.pop() {
            for next in 0..self.nodes[at].after.len() {
                let (next, _) = self.nodes[at].after[next];
                if next == other {
                    return true;
                }
                let node = &mut self.nodes[next];
                if node.walk != self.walk && node.first <= first && node.last <= last {
                    node.walk = self.walk;
                    open.push(next);
                }
            }
        }
        false
    }

    /// One operation must come before another.
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

    /// An operation takes effect at an instant or later, and so does all that comes after it.
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

    /// An operation takes effect at an instant or earlier, and so does all that comes before it.
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

    /// Touches what a new edge orders: what comes before its start and overlaps its end, and the reverse.
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

    /// Begins or ends to note changes.
    pub(crate) fn search(&mut self, is_searching: bool) {
        self.is_searching = is_searching;
    }

    /// How many changes are noted.
    pub(crate) fn mark(&self) -> usize {
        self.trail.len()
    }

    /// Takes all changes after a mark back.
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

    /// A shortest circle that shows a clash: operations, each with the reason why it comes before the next one, and
    /// the last before the first; none for the order of a call after an answer.
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

/// No instant is left for an operation.
fn empty(op: Op) -> Clash {
    Clash {
        earlier: op,
        later: op,
        why: None,
    }
}
