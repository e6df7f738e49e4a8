//! Help of the options that choose a scheme: the registered names, with a line on each.

use gabion_layout::ReplicaPlacement;
use gabion_planner::placement::{LAYOUTS, REPLICA_PLACEMENTS};
use gabion_planner::{repair, update};

/// The update schemes.
pub(super) fn update_help() -> String {
    let known = update::SCHEMES.map(|known| (known.scheme.name(), known.help));
    format!("Update scheme: {}", listed(&known))
}

/// The repair schemes, for repairs that run.
pub(super) fn repair_help() -> String {
    format!("Repair scheme from now on: {}", repair_schemes())
}

/// The repair schemes, for a repair that is only planned.
pub(super) fn planned_repair_help() -> String {
    let default = repair::Scheme::default().name();
    format!(
        "Repair scheme, with --repair: {} [default: {default}]",
        repair_schemes()
    )
}

fn repair_schemes() -> String {
    listed(&repair::SCHEMES.map(|known| (known.name, known.help)))
}

/// The placements of replicas.
pub(super) fn placement_help() -> String {
    let known = REPLICA_PLACEMENTS.map(|known| (known.placement.name(), known.help));
    format!(
        "Placement of replicas: {} [replicate: {}]",
        listed(&known),
        ReplicaPlacement::default()
    )
}

/// The layouts of the lab's stripes.
pub(super) fn layout_help() -> String {
    let known = LAYOUTS.map(|known| (known.forms, known.help));
    format!("Layout: {}", listed(&known))
}

/// `fo (data and parity in place at once); fl (...)`.
fn listed(known: &[(&str, &str)]) -> String {
    let known = known.iter().map(|(name, help)| format!("{name} ({help})"));
    known.collect::<Vec<_>>().join("; ")
}
