//! The part that COD-F52 and COD-F54 share besides their stores: the same writes on a cluster of real processes, by a
//! client without and with the segment cache of the `CodFS` thesis's section 4.4.4.
//!
//! The thesis states that its clients have such a cache, but gives neither its size nor its
//! savings.

use super::update_run::{MIB, Update};
use crate::error::LabError;
use crate::experiment::{
    CacheEffect, Finding, Overwrite, OverwriteSetting, Report, Scale, Sent, Session, Table,
};
use gabion_layout::{ByteRange, UpdateScheme};

/// Data chunks of a stripe.
const DATA_CHUNKS: u64 = 4;
/// Segments that a client's cache has room for. The thesis gives no number.
const CACHED_SEGMENTS: u64 = 8;
/// Writes under way: one for each client of the thesis.
const DEPTH: usize = 10;

/// Writes on a file, with their name in the report.
pub(super) struct Subject {
    pub(super) name: String,
    pub(super) overwrite: Overwrite,
}

impl Subject {
    /// Updates of stripes that lie behind each other in one file.
    pub(super) fn new(
        name: impl Into<String>,
        scheme: UpdateScheme,
        updates: &[Update],
        stripe_count: u64,
        stripe_bytes: u64,
    ) -> Self {
        let write = |&(stripe, offset, length): &Update| {
            ByteRange::new(stripe * stripe_bytes + offset, length)
        };
        Self {
            name: name.into(),
            overwrite: Overwrite {
                scheme,
                append: None,
                file_bytes: stripe_count * stripe_bytes,
                writes: updates.iter().map(write).collect(),
            },
        }
    }
}

/// Bytes of a chunk of the clusters.
pub(super) fn chunk_bytes(scale: Scale) -> u64 {
    scale.pick(MIB / 16, MIB / 4, 4 * MIB)
}

/// Bytes of a segment, a stripe's data.
pub(super) fn segment_bytes(scale: Scale) -> u64 {
    DATA_CHUNKS * chunk_bytes(scale)
}

/// Makes the writes of all subjects on one cluster and adds the results to the report; reports that
/// they are omitted if no clusters can be started.
pub(super) fn add(
    session: &Session<'_>,
    report: &mut Report,
    subjects: &[Subject],
) -> Result<(), LabError> {
    let Some(clusters) = session.clusters else {
        let left_out = "the client's cache is not measured, because this run starts no clusters";
        report.scaled.push(left_out.to_owned());
        return Ok(());
    };
    let cache_bytes = CACHED_SEGMENTS * segment_bytes(session.scale);
    let setting = OverwriteSetting {
        directory: session.empty_directory("cluster")?,
        rack_count: 5,
        nodes_per_rack: 2,
        code: "rdp(4)".parse().expect("the thesis's code is known"),
        chunk_bytes: chunk_bytes(session.scale),
        cache_bytes,
        depth: DEPTH,
        placement_seed: session.seed,
    };
    let overwrites: Vec<Overwrite> = subjects
        .iter()
        .map(|subject| subject.overwrite.clone())
        .collect();
    session
        .progress
        .begin("a cluster without and with a cache", 1);
    let effects = clusters.overwrite(&setting, &overwrites)?;
    session.progress.step();
    report.setting.push(format!(
        "the client's cache: 10 nodes in 5 racks as processes, segments of {} KiB, one client with {DEPTH} writes in \
        flight. Off: each write is durable when it completes. On: the cache holds {CACHED_SEGMENTS} segments, and the \
        time ends when all writes are durable",
        segment_bytes(session.scale) / 1024
    ));
    report.findings.extend(findings(&effects));
    report.tables.push(table(subjects, &effects));
    Ok(())
}

fn findings(effects: &[CacheEffect]) -> [Finding; 3] {
    let share = |name: &str, of: fn(&Sent) -> f64| {
        let sum = |side: fn(&CacheEffect) -> &Sent| -> f64 {
            effects.iter().map(|effect| of(side(effect))).sum()
        };
        let share = 100.0 * sum(|effect| &effect.on) / sum(|effect| &effect.off).max(1e-9);
        Finding::number(
            format!("client's cache: {name}, relative to no cache"),
            share,
            " %",
            "not given",
        )
    };
    [
        share("updates sent", |sent| sent.update_count as f64),
        share("seconds", |sent| sent.seconds),
        share("bytes across racks", |sent| sent.cross_rack_bytes as f64),
    ]
}

fn table(subjects: &[Subject], effects: &[CacheEffect]) -> Table {
    let columns = [
        "writes of",
        "cache",
        "writes asked",
        "updates sent",
        "seconds",
        "across racks MiB",
    ];
    let mut table = Table::new("The client's cache, off and on", &columns);
    for (subject, effect) in subjects.iter().zip(effects) {
        for (cache, sent) in [("off", effect.off), ("on", effect.on)] {
            table.row([
                subject.name.clone().into(),
                cache.into(),
                (subject.overwrite.writes.len() as u64).into(),
                sent.update_count.into(),
                sent.seconds.into(),
                (sent.cross_rack_bytes as f64 / MIB as f64).into(),
            ]);
        }
    }
    table
}
