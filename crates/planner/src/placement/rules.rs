//! The rules by which replicas of blocks are placed until their stripe is encoded.

/// The places of a block's replicas beyond the third, which EAR leaves open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplicaSpread {
    /// Each to a rack that holds none yet: an encoder then finds more of random replication's blocks in
    /// its own rack the more replicas there are, as the paper says of its own (experiment B.2).
    FreshRacks,
    /// Two to each rack after the first's, as HDFS keeps it where it can: the fourth to a rack that holds
    /// none yet, the fifth beside it, and so on.
    TwoARack,
    /// All to the second's rack, as the third: a block is in two racks, however many replicas it has.
    TwoRacks,
}

/// The places of the parity chunks of a stripe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParityPlaces {
    /// Into the core rack as far as its share allows, since they are made there. Data chunks are kept
    /// outside of it for that, where they have replicas anyway.
    CoreFirst,
    /// Into any racks with room, each as likely.
    Anywhere,
}

/// The rules of the stripes to come that encoding-aware replication needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StripeRules {
    /// Data chunks of a stripe, `k`.
    pub data_count: usize,
    /// Parity chunks of a stripe, `m`.
    pub parity_count: usize,
    /// Replicas of each block until it is encoded.
    pub replica_count: usize,
    /// The places of the replicas beyond the third.
    pub replica_spread: ReplicaSpread,
    /// The most chunks of one stripe that a rack may hold once it is encoded, the paper's `c`.
    /// `floor(m / c)` rack failures are survived.
    pub per_rack: usize,
    /// The racks that a stripe is to end in, the paper's `R'`; all without it. The core rack is one of
    /// them, and more are taken where small racks make it necessary.
    pub target_rack_count: Option<usize>,
    /// The places of parity.
    pub parity_places: ParityPlaces,
}
