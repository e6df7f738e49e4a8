//! TWE-3's part on an array's width and on the SSDs' pages: TWEEN and in place on the same devices.

use super::array::{self, Outcome, Setting};
use super::load::Load;
use crate::error::LabError;
use crate::experiment::{Goal, Session, Table};

/// Devices for data and for parity; the first are the usual ones.
const WIDTHS: [(usize, usize); 4] = [(4, 1), (8, 1), (4, 2), (8, 2)];
/// Pages that the SSDs program; the first is the usual one.
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

type Shape = (String, Setting);

fn widths() -> [Shape; WIDTHS.len()] {
    WIDTHS.map(|(data_devices, parity_devices)| {
        let setting = Setting {
            data_devices,
            parity_devices,
            ..Setting::new()
        };
        (format!("{data_devices}+{parity_devices}"), setting)
    })
}

fn pages() -> [Shape; PAGE_KIB.len()] {
    PAGE_KIB.map(|kib| {
        let setting = Setting {
            ssd_page_bytes: kib << 10,
            ..Setting::new()
        };
        (kib.to_string(), setting)
    })
}

/// Runs all loads on all shapes except the usual one, whose outcomes for each load are in `usual`.
pub(super) fn run(
    session: &Session<'_>,
    loads: &[Load],
    usual: &[[Outcome; 2]],
) -> Result<Shapes, LabError> {
    let (widths, pages) = (widths(), pages());
    let shapes = [&widths[..], &pages[..]].concat();
    let others = [&widths[1..], &pages[1..]].concat();
    let mut all =
        session.grid_on_all_processors("other shapes", loads, &others, |load, (_, setting)| {
            array::both(setting, load)
        })?;
    for ((_, pairs), usual) in all.iter_mut().zip(usual) {
        pairs.insert(0, usual.clone());
        pairs.insert(WIDTHS.len(), usual.clone());
    }
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
