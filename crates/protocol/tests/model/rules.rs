//! Which rules the modelled protocol obeys: those of the code today, those that close the holes
//! that this model has found in it, and every rule taken away in turn.

/// The protocol's rules where they differ between what is explored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rules {
    /// A settlement needs as many survivors as the code has data chunks: fewer neither know all
    /// that was committed nor may write the others off.
    pub(crate) quorum: bool,
    /// How records are told apart that a returning node holds and the others have settled.
    pub(crate) returning: Returning,
    /// The rule that is taken away, if any.
    pub(crate) mutation: Option<Mutation>,
}

/// What keeps a returning node's undecided records from being taken for later updates of the same
/// numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Returning {
    /// The coordinator marks the chunk stale if the lease has changed hands since the records'
    /// term.
    MarkedStale,
    /// Survivors remember which chunks a settlement was without, and the mark that was known by
    /// then. The first one without a node has decided about what it holds undecided of earlier
    /// terms: records up to that mark stand, and those above it were dropped, for else its chunk
    /// would be stale.
    Absences,
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
    /// Undecided updates stand, whoever holds them.
    NoDrop,
    /// Survivors are told the outcome although nobody has noted who missed it.
    StaleNotNoted,
    /// A node takes a mark whatever the term of its own records.
    MarksVouchAcrossTerms,
    /// A returning node's undecided records count like all others.
    ReturningTrusted,
    /// A settlement is content with any number of survivors.
    NoQuorum,
}

impl Mutation {
    /// All of them.
    pub(crate) const ALL: [Self; 8] = [
        Self::EarlyAcknowledgement,
        Self::NoFencing,
        Self::ApplyAboveMark,
        Self::NoDrop,
        Self::StaleNotNoted,
        Self::MarksVouchAcrossTerms,
        Self::ReturningTrusted,
        Self::NoQuorum,
    ];
}

impl Rules {
    /// Settling with whoever is not failed, and writing off what a returning node has undecided of
    /// another term than the present lease's: see the scenarios for what is wrong with it.
    pub(crate) const MARKED_STALE: Self = Self {
        quorum: false,
        returning: Returning::MarkedStale,
        mutation: None,
    };

    /// The rules that this model finds no fault with.
    pub(crate) const SOUND: Self = Self {
        quorum: true,
        returning: Returning::Absences,
        mutation: None,
    };

    /// The sound rules without one of them.
    pub(crate) fn without(mutation: Mutation) -> Self {
        Self {
            mutation: Some(mutation),
            ..Self::SOUND
        }
    }

    /// Whether the rule that the mutation takes away is gone.
    pub(crate) fn lacks(self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }
}
