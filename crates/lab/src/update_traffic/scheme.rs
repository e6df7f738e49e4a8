//! The schemes that the experiment can count, and the way in which it counts each. A scheme of pools is counted as its
//! descriptor says, so a new one needs nothing here unless it is counted in a new way.

use super::baseline::Baseline;
use super::batches::Batches;
use super::cau::Cau;
use super::counter::{Options, TrafficCounter};
use super::parix::Parix;
use crate::error::LabError;
use gabion_layout::UpdateScheme;
use gabion_planner::update::cau::Selection;
use gabion_planner::update::{Descriptor, Traffic, descriptor};

/// A scheme that can be counted.
#[derive(Clone, Copy, Debug)]
pub struct SchemeEntry {
    /// The name that users and results call it.
    pub name: &'static str,
    counting: Counting,
}

/// The way in which a scheme is counted.
#[derive(Clone, Copy, Debug)]
enum Counting {
    /// As its descriptor says.
    Known(&'static Descriptor),
    /// The baseline of the papers: each chunk by itself.
    Baseline,
    /// CAU with one kind of deltas in its commits.
    Cau(Selection),
}

impl SchemeEntry {
    /// Makes its counter as it is before the first write.
    pub fn open(&self, options: Options) -> Box<dyn TrafficCounter> {
        match self.counting {
            Counting::Known(known) => match known.traffic {
                // Nodes store different things, but what crosses racks is the baseline's.
                Traffic::EachChunk => Box::<Baseline>::default(),
                Traffic::EachStripe => Box::new(Batches::of(known.planner)),
                Traffic::Originals => Box::<Parix>::default(),
                Traffic::AppendPhases => Box::new(Cau::new(options, Selection::Selective)),
            },
            Counting::Baseline => Box::<Baseline>::default(),
            Counting::Cau(selection) => Box::new(Cau::new(options, selection)),
        }
    }

    /// Whether one update of a stripe shows all transfers of the scheme, because parity follows at once. The baseline
    /// stands for the schemes of pools that update each chunk alone.
    pub(super) fn is_at_once(&self) -> bool {
        match self.counting {
            Counting::Known(known) => known.traffic == Traffic::EachStripe,
            Counting::Baseline => true,
            Counting::Cau(_) => false,
        }
    }

    /// The scheme of pools that this is; the baseline is any scheme that sends the deltas of each chunk alone.
    ///
    /// # Errors
    /// [`LabError::ChunksOnly`] for a variant that no pool has.
    pub(super) fn of_pools(&self) -> Result<&'static Descriptor, LabError> {
        match self.counting {
            Counting::Known(known) => Ok(known),
            Counting::Baseline => {
                let mut known = UpdateScheme::NAMES
                    .iter()
                    .map(|&(_, name)| descriptor(name));
                let first = known.find(|known| known.traffic == Traffic::EachChunk);
                Ok(first.expect("a scheme sends each chunk's deltas by themselves"))
            }
            Counting::Cau(_) => Err(LabError::ChunksOnly { name: self.name }),
        }
    }
}

/// All schemes that can be counted: those of pools, and the variants that the papers compare.
pub fn registry() -> Vec<SchemeEntry> {
    let known =
        UpdateScheme::NAMES.map(|(name, scheme)| (name, Counting::Known(descriptor(scheme))));
    let variants = [
        ("cau-data-delta", Counting::Cau(Selection::DataDelta)),
        ("cau-parity-delta", Counting::Cau(Selection::ParityDelta)),
    ];
    let all = [("baseline", Counting::Baseline)]
        .into_iter()
        .chain(known)
        .chain(variants);
    all.map(|(name, counting)| SchemeEntry { name, counting })
        .collect()
}

/// The scheme of a name.
///
/// # Errors
/// [`LabError::UnknownScheme`], which lists the names that there are.
pub fn scheme(name: &str) -> Result<SchemeEntry, LabError> {
    registry()
        .into_iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| LabError::UnknownScheme {
            name: name.to_owned(),
            known: scheme_names(),
        })
}

/// The schemes of these names, each once however often it is named.
pub(super) fn chosen(names: &[String]) -> Result<Vec<SchemeEntry>, LabError> {
    let mut entries: Vec<SchemeEntry> = Vec::new();
    for name in names {
        let entry = scheme(name)?;
        if entries.iter().all(|other| other.name != entry.name) {
            entries.push(entry);
        }
    }
    if entries.is_empty() {
        return Err(LabError::NoScheme {
            known: scheme_names(),
        });
    }
    Ok(entries)
}

/// The names of all schemes that can be counted, separated by commas.
pub fn scheme_names() -> String {
    let names: Vec<&str> = registry().iter().map(|entry| entry.name).collect();
    names.join(", ")
}
