//! TWE-3's part on an array's width and on the SSDs' pages: TWEEN and in place on the same devices.

use super::array::{self, Setting};
use super::load::Load;
use crate::error::LabError;
use crate::experiment::{Goal, Session, Table};

/// Devices for data and for parity.
const WIDTHS: [(usize, usize); 4] = [(4, 1), (8, 1), (4, 2), (8, 2)];
/// Pages that the SSDs program.
const PAGE_KIB: [u64; 3] = [4, 8, 16];
/// Steps of progress that a load makes.
pub(super) const STEPS: usize = 2 * (WIDTHS.len() + PAGE_KIB.len());

/// Tables and goals of all loads.
pub(super) struct Shapes {
    pub(super) widths: Table,
    pub(super) pages: Table,
    pub(super) goals: Vec<Goal>,
}

/// Columns of both tables after the shape.
const COLUMNS: [&str; 5] = [
    "in place WA",
    "TWEEN WA",
    "moved %",
    "lifetime x",
    "at most x",
];

impl Shapes {
    pub(super) fn new() -> Self {
        let columns = |shape| [&["volume", shape], &COLUMNS[..]].concat();
        Self {
            widths: Table::new("Width", &columns("devices")),
            pages: Table::new("SSD page", &columns("page KiB")),
            goals: Vec::new(),
        }
    }

    /// Runs a load on all shapes.
    pub(super) fn add(&mut self, session: &Session<'_>, load: &Load) -> Result<(), LabError> {
        let mut reached = Vec::new();
        for (data_devices, parity_devices) in WIDTHS {
            let setting = Setting {
                data_devices,
                parity_devices,
                ..Setting::new()
            };
            let name = format!("{data_devices}+{parity_devices}");
            let lifetime = compare(session, load, &setting, &mut self.widths, &name)?;
            if lifetime >= 2.0 {
                reached.push(name);
            }
        }
        for kib in PAGE_KIB {
            let setting = Setting {
                ssd_page_bytes: kib << 10,
                ..Setting::new()
            };
            let name = kib.to_string();
            let lifetime = compare(session, load, &setting, &mut self.pages, &name)?;
            if lifetime >= 2.0 {
                reached.push(format!("4+1 with pages of {kib} KiB"));
            }
        }
        let shapes = if reached.is_empty() {
            "none".to_owned()
        } else {
            reached.join(", ")
        };
        self.goals.push(Goal::words(
            format!("{}: arrays whose erases TWEEN halves", load.name),
            shapes,
            "one at least",
            !reached.is_empty(),
        ));
        Ok(())
    }
}

/// Runs a load both ways, and adds a row. Gives how many times as long the SSDs live through TWEEN.
fn compare(
    session: &Session<'_>,
    load: &Load,
    setting: &Setting,
    table: &mut Table,
    shape: &str,
) -> Result<f64, LabError> {
    let rival = array::in_place(setting, load)?;
    session.progress.step();
    let tween = array::tween(setting, load)?;
    session.progress.step();
    let lifetime = tween.lifetime_over(&rival);
    table.row([
        load.name.clone().into(),
        shape.into(),
        rival.total_amplification().into(),
        tween.total_amplification().into(),
        tween.moved_pct().into(),
        lifetime.into(),
        array::lifetime_bound(setting, load, &rival, &tween).into(),
    ]);
    Ok(lifetime)
}
