//! The rules of leaders, terms and orders in the model: those of the code, and these without one of them.

/// The rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rules {
    /// The rule that is taken away, if any.
    mutation: Option<Mutation>,
}

/// A rule that is taken away; the checker must then find a violation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mutation {
    /// A transaction does not compare the term in the leader's row.
    TermNotCompared,
    /// A transaction does not compare the number in the leader's row.
    NumberNotCompared,
    /// A commit whose answer is lost counts as made.
    LostAnswerCounts,
    /// A new leader keeps the term of the last one.
    TermStays,
    /// A standby begins its term although the row has changed since it saw that the lease was over.
    BlindTakeover,
    /// A standby does not wait for the end of the lease.
    LeaseNotAwaited,
    /// A leader counts its lease from the answer to its transaction, not from its request.
    LeaseFromAnswer,
    /// A leader relies on its whole lease, although its clock may be slow.
    WholeLease,
    /// A leader answers from memory after its lease has ended.
    ReadWithoutLease,
    /// A leader tells a client of changes that are not durable.
    ReadBeforeDurable,
    /// A leader acknowledges a change that is not durable.
    AcknowledgedEarly,
    /// A leader takes rows from a server that lacks commits.
    OldRows,
    /// A repetition of a change is not recognized by its number.
    RepetitionUnknown,
    /// A leader that ends releases its lease before it has stopped to answer.
    ReleasedFirst,
    /// A new leader counts the silence of nodes from before its own start.
    OldSilence,
    /// A coordinator adds no margin to a node's lease.
    NoMargin,
    /// A coordinator renews nodes' leases after its own lease has ended.
    RenewedWithoutLease,
    /// A node counts its lease from the answer, not from its heartbeat.
    NodeLeaseFromAnswer,
    /// Updates leave a node out before its failure is durable.
    LeftOutEarly,
    /// A heartbeat renews the lease of a failed node.
    FailedRenewed,
    /// Neither of the next two holds.
    OlderFollowed,
    /// A node does not refuse a coordinator that is older than one of which it has heard.
    OlderNotRefused,
    /// A coordinator does not stop when a node has heard of a newer one.
    NewerIgnored,
    /// A leader orders a chunk to be removed before the change behind the order is durable.
    OrderedEarly,
    /// A leader whose last commit is in doubt takes it for not made, and gives orders accordingly.
    OrderedInDoubt,
    /// A node removes a chunk although it knows a later term than that of the order.
    OrderWithoutTerm,
    /// A leader uses a term of a stripe before it is durable.
    EpochEarly,
}

impl Mutation {
    /// Two rules that guard the same thing: one of them suffices.
    pub(crate) const SECOND_LINES: [Self; 2] = [Self::OlderNotRefused, Self::NewerIgnored];

    /// All others.
    pub(crate) const ALL: [Self; 25] = [
        Self::TermNotCompared,
        Self::NumberNotCompared,
        Self::LostAnswerCounts,
        Self::TermStays,
        Self::BlindTakeover,
        Self::LeaseNotAwaited,
        Self::LeaseFromAnswer,
        Self::WholeLease,
        Self::ReadWithoutLease,
        Self::ReadBeforeDurable,
        Self::AcknowledgedEarly,
        Self::OldRows,
        Self::RepetitionUnknown,
        Self::ReleasedFirst,
        Self::OldSilence,
        Self::NoMargin,
        Self::RenewedWithoutLease,
        Self::NodeLeaseFromAnswer,
        Self::LeftOutEarly,
        Self::FailedRenewed,
        Self::OlderFollowed,
        Self::OrderedEarly,
        Self::OrderedInDoubt,
        Self::OrderWithoutTerm,
        Self::EpochEarly,
    ];
}

impl Rules {
    /// All rules of the code.
    pub(crate) const SOUND: Self = Self { mutation: None };

    /// The rules without one of them.
    pub(crate) const fn without(mutation: Mutation) -> Self {
        Self {
            mutation: Some(mutation),
        }
    }

    /// Whether the rule that the mutation takes away is gone.
    pub(crate) fn lacks(self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }
}
