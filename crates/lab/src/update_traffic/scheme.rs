//! What the experiment asks of an update scheme, and the register of schemes. A scheme is one file
//! beside this one and one line in [`registry`].

use super::baseline::Baseline;
use super::batches::Batches;
use super::cau::Cau;
use super::parix::Parix;
use super::{ChunkUpdate, Moved, Options, Stripes};
use crate::error::LabError;
use gabion_planner::update::cau::Selection;

/// An update scheme that is being counted. It may remember what it likes between writes: logs that
/// are yet to be committed, or which chunks were updated before.
pub trait Scheme {
    /// Counts one write, which updates `touched` as whole chunks.
    ///
    /// # Errors
    /// When the planner has no plan for it.
    fn write(&mut self, stripes: &Stripes, touched: &[ChunkUpdate]) -> Result<(), LabError>;

    /// Counts what is still due at the trace's end, and gives the bytes that crossed racks.
    ///
    /// # Errors
    /// When the planner has no plan for what is due.
    fn finish(self: Box<Self>, stripes: &Stripes) -> Result<Moved, LabError>;
}

/// A registered scheme.
#[derive(Clone, Copy, Debug)]
pub struct SchemeEntry {
    /// The name that users and results call it.
    pub name: &'static str,
    /// Makes the scheme as it is before the first write.
    pub open: fn(Options) -> Box<dyn Scheme>,
}

/// All schemes that can be counted.
pub fn registry() -> &'static [SchemeEntry] {
    /// Schemes that send what the baseline sends: they differ in what nodes do with it, and what
    /// crosses racks is the baseline's.
    const fn as_baseline(name: &'static str) -> SchemeEntry {
        SchemeEntry {
            name,
            open: |_| Box::<Baseline>::default(),
        }
    }
    const fn named(name: &'static str, open: fn(Options) -> Box<dyn Scheme>) -> SchemeEntry {
        SchemeEntry { name, open }
    }
    const SCHEMES: [SchemeEntry; 11] = [
        as_baseline("baseline"),
        as_baseline("fo"),
        as_baseline("fl"),
        as_baseline("pl"),
        as_baseline("plr"),
        named("parix", |_| Box::<Parix>::default()),
        named("cau", |options| {
            Box::new(Cau::new(options, Selection::Selective))
        }),
        named("cau-data-delta", |options| {
            Box::new(Cau::new(options, Selection::DataDelta))
        }),
        named("cau-parity-delta", |options| {
            Box::new(Cau::new(options, Selection::ParityDelta))
        }),
        named("cau-selective", |_| Box::new(Batches::selective())),
        named("rackcu", |_| Box::new(Batches::rackcu())),
    ];
    &SCHEMES
}

/// The scheme of a name.
///
/// # Errors
/// [`LabError::UnknownScheme`], which lists the names that there are.
pub fn scheme(name: &str) -> Result<&'static SchemeEntry, LabError> {
    registry()
        .iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| LabError::UnknownScheme {
            name: name.to_owned(),
            known: known(),
        })
}

/// The schemes of these names, each once however often it is named.
pub(super) fn chosen(names: &[String]) -> Result<Vec<&'static SchemeEntry>, LabError> {
    let mut entries: Vec<&SchemeEntry> = Vec::new();
    for name in names {
        let entry = scheme(name)?;
        if entries.iter().all(|other| other.name != entry.name) {
            entries.push(entry);
        }
    }
    if entries.is_empty() {
        return Err(LabError::NoScheme { known: known() });
    }
    Ok(entries)
}

fn known() -> String {
    let names: Vec<&str> = registry().iter().map(|entry| entry.name).collect();
    names.join(", ")
}
