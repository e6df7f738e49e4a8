//! One state of the model: the database with the leader's row, the runs of coordinators that have led, transactions and
//! orders that are under way, a node with its lease, and a chunk that moves between two nodes.
//!
//! Time is relative: a step `Tick` shortens all leases, and no state knows the time. The clocks are the worst that the
//! rules allow: those of leaders and nodes, which rely on leases, lose a tick in the time of a lease, and those of the
//! database and of a coordinator that waits for a node's lease lose none.

/// The longest lease of a leader in the database, in ticks.
pub(crate) const LEASE: u8 = 2;
/// Ticks of its own clock for which a leader relies on a lease.
pub(crate) const RELIANCE: u8 = 1;
/// Ticks that a clock may lose during a lease.
pub(crate) const DRIFT: u8 = 1;
/// The lease of a node, in ticks of its own clock.
pub(crate) const NODE_LEASE: u8 = 1;
/// Ticks for which a coordinator waits beyond a node's lease.
pub(crate) const NODE_MARGIN: u8 = 1;
/// No age matters that is longer than this.
pub(crate) const AGE_MAX: u8 = 2;

/// Runs of coordinators that may lead, one after another.
pub(crate) const RUN_COUNT: usize = 3;
/// Entries of the row that lists the changes.
const ENTRY_COUNT: usize = 3;

/// A set of changes or of rows: a bit each.
pub(crate) type Set = u8;

/// The row of changes.
pub(crate) const CHANGES: Set = 1;
/// The row of the node.
pub(crate) const NODE: Set = 2;
/// The row of the stripe's lease.
pub(crate) const STRIPE_LEASE: Set = 4;
/// The row of the stripe's place.
pub(crate) const PLACE: Set = 8;

/// The rows of the metadata.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Rows {
    /// The changes that were made, in their order, counted from 1; 0 is none.
    entries: [u8; ENTRY_COUNT],
    /// Whether the node is declared failed.
    pub(crate) is_failed: bool,
    /// The last term of the stripe.
    pub(crate) epoch: u8,
    /// The node whose chunk counts.
    pub(crate) place: u8,
}

impl Rows {
    /// Makes a change. Returns false if the row is full, which bounds the model.
    pub(crate) fn make(&mut self, change: u8) -> bool {
        let free = self.entries.iter_mut().find(|entry| **entry == 0);
        free.map(|entry| *entry = change + 1).is_some()
    }

    /// The changes that were made.
    pub(crate) fn made(self) -> Set {
        let made = self.entries.into_iter().filter(|&entry| entry > 0);
        made.fold(0, |set, entry| set | 1 << (entry - 1))
    }

    /// Whether no change was made twice.
    pub(crate) fn is_each_made_once(self) -> bool {
        let made = self.entries.into_iter().filter(|&entry| entry > 0);
        made.count() == self.made().count_ones() as usize
    }

    /// Takes some rows over from others.
    pub(crate) fn write(&mut self, rows: Self, which: Set) {
        if which & CHANGES != 0 {
            self.entries = rows.entries;
        }
        if which & NODE != 0 {
            self.is_failed = rows.is_failed;
        }
        if which & STRIPE_LEASE != 0 {
            self.epoch = rows.epoch;
        }
        if which & PLACE != 0 {
            self.place = rows.place;
        }
    }
}

/// The database. Its transactions take effect one after another, each as a whole.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Database {
    /// The leader's row: the term, the number of the last transaction, and the rest of the lease.
    pub(crate) term: u8,
    pub(crate) number: u8,
    pub(crate) lease: u8,
    pub(crate) rows: Rows,
}

/// A transaction that the database has got or will get, perhaps long after its sender has given its connection up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Attempt {
    pub(crate) run: u8,
    pub(crate) term: u8,
    pub(crate) number: u8,
    pub(crate) wrote: Set,
    pub(crate) rows: Rows,
    /// Its connection is lost, and so is its answer.
    pub(crate) is_orphan: bool,
}

/// What a transaction has found in the leader's row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Outcome {
    /// The number before: this attempt is committed.
    Committed,
    /// Its own number: an earlier attempt was.
    CommittedBefore,
    /// Another leader's term, or another number.
    Superseded,
}

/// The connection of a leader's transaction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Line {
    Waiting,
    Answered(Outcome),
    Lost,
}

/// A transaction as its leader knows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Flight {
    pub(crate) wrote: Set,
    pub(crate) rows: Rows,
    /// Ticks since it was sent last.
    pub(crate) age: u8,
    pub(crate) line: Line,
}

/// A look-up that a leader answers from memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Reading {
    pub(crate) seen: Set,
    /// The changes that clients knew when it began.
    pub(crate) known: Set,
    /// Transactions that must end before all that it has seen is durable.
    pub(crate) wait_count: u8,
}

/// The progress of a leader with a move of the chunk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Move {
    None,
    /// It has taken the stripe's lease.
    Leased,
    /// It has ordered the other node to make a copy.
    Copying,
    /// It has noted the new place.
    Counting,
}

/// A run of a coordinator that has become the leader.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Run {
    pub(crate) term: u8,
    /// Deposed, failed or ended: it does nothing more.
    pub(crate) is_over: bool,
    /// Ticks for which it relies on its lease.
    pub(crate) lease: u8,
    /// The number of its last transaction that it knows to be committed.
    pub(crate) number: u8,
    /// The rows in its memory, changes that are not durable included.
    pub(crate) view: Rows,
    /// Rows that it has changed since its last transaction began.
    pub(crate) dirty: Set,
    pub(crate) flight: Option<Flight>,
    pub(crate) reading: Option<Reading>,
    /// Ticks since it has heard the node.
    pub(crate) silence: u8,
    /// The move that it makes, with its term of the stripe.
    pub(crate) moving: (Move, u8),
}

impl Run {
    /// Whether all of its changes of some rows are durable, as far as it knows.
    pub(crate) fn is_durable(&self, rows: Set) -> bool {
        let wrote = self.flight.map_or(0, |flight| flight.wrote);
        (self.dirty | wrote) & rows == 0
    }
}

/// A heartbeat for whose answer the node waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Heartbeat {
    pub(crate) to: u8,
    pub(crate) age: u8,
    pub(crate) is_answered: bool,
}

/// The node with a membership lease.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Node {
    pub(crate) lease: u8,
    /// The newest run of which it has heard, durably.
    pub(crate) heard: u8,
    pub(crate) heartbeat: Option<Heartbeat>,
}

/// A node's part of the stripe whose chunk moves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Holder {
    pub(crate) has_chunk: bool,
    /// Older terms are refused.
    pub(crate) epoch: u8,
}

/// An order to a node. It may arrive late, and more than once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Order {
    pub(crate) node: u8,
    pub(crate) epoch: u8,
    /// Make a copy of the chunk; otherwise remove the chunk.
    pub(crate) is_copy: bool,
    /// The node has carried it out.
    pub(crate) is_done: bool,
}

/// What clients know, and the violations that no later state shows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Clients {
    /// Changes that a leader was asked for.
    pub(crate) asked: Set,
    /// Acknowledged changes.
    pub(crate) acknowledged: Set,
    /// Changes that a read has shown, or that are acknowledged.
    pub(crate) known: Set,
    /// A read has missed a change that was known when it began.
    pub(crate) has_read_old: bool,
    /// An update was made that the node lacks.
    pub(crate) has_left_out: bool,
    /// The node has renewed its lease by an answer of an older run than one of which it had heard.
    pub(crate) has_followed_older: bool,
}

/// The part of a coordinator's work that is explored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Work {
    /// Changes and reads of rows.
    Rows,
    /// The lease of a node, and its failure.
    Membership,
    /// Moves of a chunk, and orders.
    Moves,
}

/// What may still happen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Bounds {
    /// Other work is left out, and so are the leases and times that only concern other work.
    pub(crate) work: Work,
    /// Takeovers.
    pub(crate) takeover_count: u8,
    /// Transactions sent, repetitions included.
    pub(crate) attempt_count: u8,
    /// Connections lost.
    pub(crate) loss_count: u8,
    /// Changes that clients make, each of which is to be made once.
    pub(crate) change_count: u8,
    /// Reads.
    pub(crate) read_count: u8,
    /// Runs that end by themselves.
    pub(crate) end_count: u8,
    /// Times that a server of the database falls behind.
    pub(crate) lag_count: u8,
    /// Ticks that the clock of a leader loses because its machine is stopped.
    pub(crate) stop_count: u8,
}

/// Everything.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct State {
    pub(crate) database: Database,
    /// The rows of a server that has fallen behind.
    pub(crate) lagging: Option<Rows>,
    /// The term and the number of a row whose lease was over when a standby read it.
    pub(crate) standby: Option<(u8, u8)>,
    pub(crate) runs: Vec<Run>,
    /// Sorted.
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) clients: Clients,
    pub(crate) node: Node,
    pub(crate) holders: [Holder; 2],
    /// Sorted.
    pub(crate) orders: Vec<Order>,
    pub(crate) bounds: Bounds,
}

impl State {
    /// The first run leads, and has just renewed its lease and that of the node.
    pub(crate) fn first(bounds: Bounds) -> Self {
        let database = Database {
            term: 0,
            number: 0,
            lease: LEASE,
            rows: Rows::default(),
        };
        let chunk = Holder {
            has_chunk: true,
            epoch: 0,
        };
        Self {
            database,
            lagging: None,
            standby: None,
            runs: vec![Run::new(0, database)],
            attempts: Vec::new(),
            clients: Clients::default(),
            node: Node {
                lease: if bounds.work == Work::Membership {
                    NODE_LEASE + DRIFT
                } else {
                    0
                },
                heard: 0,
                heartbeat: None,
            },
            holders: [chunk, Holder::default()],
            orders: Vec::new(),
            bounds,
        }
    }
}

impl Run {
    /// A run that has just taken the leader's row.
    pub(crate) const fn new(term: u8, database: Database) -> Self {
        Self {
            term,
            is_over: false,
            lease: RELIANCE + DRIFT,
            number: database.number,
            view: database.rows,
            dirty: 0,
            flight: None,
            reading: None,
            silence: 0,
            moving: (Move::None, 0),
        }
    }
}
