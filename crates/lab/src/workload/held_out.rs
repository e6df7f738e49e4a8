//! A measured volume's stand-in as it would be if the volume had not been measured, so that the error of stand-ins of
//! volumes that were not measured can be found.
//!
//! A held-out stand-in knows of its volume the row of Table 3.2 and the published class, and of its requests' sizes and
//! places only what the other measured volumes of the class have.

use super::class::SYSTEM_AREA_COUNT;
use super::sizes::{HM_0, HM_1, MDS_0, PROJ_0, RSRCH_1, SizeShare};
use super::volumes::VOLUMES;
use std::collections::BTreeMap;

/// Sizes with the least mean that a volume's updates have, 4.3 KiB, by `RackCU` (section V-A), which counts `rsrch_2`
/// among the volumes with small updates.
const LEAST_MEAN: &[SizeShare] = &[
    SizeShare {
        length_bytes: 4096,
        weight: 925,
    },
    SizeShare {
        length_bytes: 8192,
        weight: 75,
    },
];

/// Measured sizes that say something of others of the class, each with its weight.
const SYSTEM_SIZES: [(&str, &[SizeShare], f64); 3] = [
    ("hm_0", HM_0, 1.0),
    ("mds_0", MDS_0, 1.0),
    ("proj_0", PROJ_0, 1.0),
];
/// `wdev_1` and `rsrch_2` say nothing of others: their writes must be as short as they are, by their working set and by
/// `RackCU`. The weights are those of the volumes with mostly small updates and of the others.
const DATA_SIZES: [(&str, &[SizeShare], f64); 2] =
    [("rsrch_1", RSRCH_1, 28.0), ("hm_1", HM_1, 8.0)];
/// The areas with which each measured data disk touches as many stripes of 6 MiB as it does.
const DATA_AREAS: [(&str, f64); 4] = [
    ("wdev_1", 5.0),
    ("rsrch_1", 110.0),
    ("hm_1", 3.0),
    ("rsrch_2", 21.0),
];

/// Returns the parameters of a stand-in of a volume of which neither sizes nor places are known: sizes of writes, and
/// areas. None for a volume that was not measured.
///
/// ```
/// use gabion_lab::workload::held_out;
///
/// let (sizes, area_count) = held_out("mds_0").unwrap();
/// assert!(sizes.iter().any(|share| share.length_bytes == 4096));
/// assert_eq!(area_count, 64);
/// assert!(held_out("usr_0").is_none());
/// ```
pub fn held_out(name: &str) -> Option<(Vec<SizeShare>, u64)> {
    let target = &VOLUMES.iter().find(|volume| volume.name == name)?.target;
    let first_share = 1.0 - target.update_writes_pct / 100.0;
    let working_set = target.working_set_gib * (1_u64 << 30) as f64;
    // Writes that are no updates fit the working set.
    let mean_max = working_set / (target.writes as f64 * first_share);
    if SYSTEM_SIZES.iter().any(|fit| fit.0 == name) {
        let sizes = pooled(&SYSTEM_SIZES, name);
        return Some((within(&sizes, mean_max), SYSTEM_AREA_COUNT));
    }
    if !DATA_AREAS.iter().any(|fit| fit.0 == name) {
        return None;
    }
    let others = DATA_AREAS.iter().filter(|fit| fit.0 != name);
    let logarithms: Vec<f64> = others.map(|fit| fit.1.ln()).collect();
    let mean = logarithms.iter().sum::<f64>() / logarithms.len() as f64;
    let sizes = match name {
        "rsrch_2" => LEAST_MEAN.to_vec(),
        _ => within(&pooled(&DATA_SIZES, name), mean_max),
    };
    Some((sizes, mean.exp().round() as u64))
}

/// The weighted mean of the shares of all volumes but one, by size in bytes.
fn pooled(all: &[(&str, &[SizeShare], f64)], without: &str) -> BTreeMap<u64, f64> {
    let mut shares: BTreeMap<u64, f64> = BTreeMap::new();
    let others = all.iter().filter(|fit| fit.0 != without);
    let weights: f64 = others.clone().map(|fit| fit.2).sum();
    for (_, sizes, weight) in others {
        let cards: f64 = sizes.iter().map(|size| f64::from(size.weight)).sum();
        for size in *sizes {
            let share = f64::from(size.weight) / cards * weight / weights;
            *shares.entry(size.length_bytes).or_default() += share;
        }
    }
    shares
}

/// These shares, with as many writes of 4 KiB in place of others that the mean keeps a limit, in thousandths.
fn within(shares: &BTreeMap<u64, f64>, mean_max: f64) -> Vec<SizeShare> {
    const USUAL: u64 = 4096;
    let mean: f64 = shares
        .iter()
        .map(|(&size, share)| size as f64 * share)
        .sum();
    let usual = USUAL as f64;
    let kept = if mean > mean_max {
        ((mean_max - usual) / (mean - usual)).max(0.0)
    } else {
        1.0
    };
    let mut shares: BTreeMap<u64, f64> =
        shares.iter().map(|(&s, share)| (s, share * kept)).collect();
    *shares.entry(USUAL).or_default() += 1.0 - kept;
    let sizes = shares.into_iter().map(|(length_bytes, share)| SizeShare {
        length_bytes,
        weight: (1000.0 * share).round() as u32,
    });
    sizes.filter(|size| size.weight > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::super::sizes::{DATA_DISK, SYSTEM_DISK};
    use super::*;

    /// The mixes of classes are written out; they are what the measured volumes make.
    #[test]
    fn mixes_of_classes_are_those_of_their_measured_volumes() {
        for (written, all) in [
            (SYSTEM_DISK, &SYSTEM_SIZES[..]),
            (DATA_DISK, &DATA_SIZES[..]),
        ] {
            let made = within(&pooled(all, ""), f64::MAX);
            let weights = |sizes: &[SizeShare]| -> BTreeMap<u64, u32> {
                sizes.iter().map(|s| (s.length_bytes, s.weight)).collect()
            };
            let (written, made) = (weights(written), weights(&made));
            for (size, weight) in &made {
                let off = written.get(size).map_or(*weight, |w| w.abs_diff(*weight));
                assert!(off <= 1, "{size} bytes: {written:?}, {made:?}");
            }
        }
    }

    #[test]
    fn held_out_sizes_keep_to_the_working_set() {
        let (sizes, areas) = held_out("wdev_1").unwrap();
        let cards: u32 = sizes.iter().map(|size| size.weight).sum();
        let bytes: u64 = sizes
            .iter()
            .map(|s| s.length_bytes * u64::from(s.weight))
            .sum();
        let mean = bytes as f64 / f64::from(cards);
        assert!((4.9..5.3).contains(&(mean / 1024.0)), "{mean}");
        assert_eq!(areas, 19);
    }
}
