//! Which rules the modelled protocol obeys: those of the code, and these with every one taken away
//! in turn.

/// The protocol's rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rules {
    /// The rule that is taken away, if any.
    mutation: Option<Mutation>,
}

/// A rule that is taken away, to see that the checker misses it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mutation {
    /// Data nodes reply before their record is durable.
    EarlyAcknowledgement,
    /// Nodes take parts and outcomes of older terms.
    NoFencing,
    /// Records are brought into their chunks at once.
    ApplyAboveMark,
    /// Undecided updates stand, whichever nodes hold them.
    NoDrop,
    /// Survivors are told the outcome although the coordinator has not noted which nodes were left out.
    NotNoted,
    /// The coordinator notes a node that returned during the settlement.
    LateNote,
    /// A returning node's undecided records count like all others, and it is not fenced.
    ReturningTrusted,
    /// A returning node's chunk counts although it lacks what stands.
    MissedCounts,
    /// A settlement is content with any number of survivors.
    NoQuorum,
    /// A client makes an update anew once it has withdrawn the last attempt, without asking after it.
    NotAsked,
    /// A client makes an update anew though no node has withdrawn the last attempt.
    NotWithdrawn,
    /// A run that no node remembers was not made, however few were asked.
    FewRemember,
}

impl Mutation {
    /// All of them.
    pub(crate) const ALL: [Self; 12] = [
        Self::EarlyAcknowledgement,
        Self::NoFencing,
        Self::ApplyAboveMark,
        Self::NoDrop,
        Self::NotNoted,
        Self::LateNote,
        Self::ReturningTrusted,
        Self::MissedCounts,
        Self::NoQuorum,
        Self::NotAsked,
        Self::NotWithdrawn,
        Self::FewRemember,
    ];
}

impl Rules {
    /// All rules of the code.
    pub(crate) const SOUND: Self = Self { mutation: None };

    /// The rules without one of them.
    pub(crate) fn without(mutation: Mutation) -> Self {
        Self {
            mutation: Some(mutation),
        }
    }

    /// Whether the rule that the mutation takes away is gone.
    pub(crate) fn lacks(self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }
}
