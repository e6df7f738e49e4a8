//! TWE-3's part on an array's width and on the SSDs' pages: TWEEN and in place on the same devices.

use super::array::{self, Setting};
use super::load::Load;
use crate::error::LabError;
use crate::experiment::{Goal, Session, Table};

/// Devices for data and for parity.
const WIDTHS: [(usize, usize); 4] = [(4, 1), (8, 1), (4, 2), (8, 2)];
/// Pages that the SSDs program.
const PAGE_KIB: [u64; 3] = [4, 8, 16];
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

/// Runs all loads on all shapes.
pub(super) fn run(session: &Session<'_>, loads: &[Load]) -> Result<Shapes, LabError> {
    let widths = WIDTHS.map(|(data_devices, parity_devices)| {
        let setting = Setting {
            data_devices,
            parity_devices,
            ..Setting::new()
        };
        (format!("{data_devices}+{parity_devices}"), setting)
    });
    let pages = PAGE_KIB.map(|kib| {
        let setting = Setting {
            ssd_page_bytes: kib << 10,
            ..Setting::new()
        };
        (kib.to_string(), setting)
    });
    let shapes = [&widths[..], &pages[..]].concat();
    let all = session.grid("other shapes", loads, &shapes, |load, (_, setting)| {
        array::both(setting, load)
    })?;
    let columns = |shape| [&["volume", shape], &COLUMNS[..]].concat();
    let mut found = Shapes {
        widths: Table::new("Width", &columns("devices")),
        pages: Table::new("SSD page", &columns("page KiB")),
        goals: Vec::new(),
    };
    for (load, pairs) in &all {
        let mut reached = Vec::new();
        for (at, ((name, setting), [tween, rival])) in shapes.iter().zip(pairs).enumerate() {
            let (table, shape) = if at < WIDTHS.len() {
                (&mut found.widths, name.clone())
            } else {
                (&mut found.pages, format!("4+1 with pages of {name} KiB"))
            };
            let lifetime = tween.lifetime_over(rival);
            table.row([
                load.name.clone().into(),
                name.clone().into(),
                rival.total_amplification().into(),
                tween.total_amplification().into(),
                tween.moved_pct().into(),
                lifetime.into(),
                array::lifetime_bound(setting, load, rival, tween).into(),
            ]);
            if lifetime >= 2.0 {
                reached.push(shape);
            }
        }
        let arrays = if reached.is_empty() {
            "none".to_owned()
        } else {
            reached.join(", ")
        };
        found.goals.push(Goal::words(
            format!("{}: arrays whose erases TWEEN halves", load.name),
            arrays,
            "one at least",
            !reached.is_empty(),
        ));
    }
    Ok(found)
}
