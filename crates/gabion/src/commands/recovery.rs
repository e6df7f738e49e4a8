//! `gabion metadata recovery`: what a coordinator with `--recover` does not serve, and what may be older there than in
//! the cluster.

use super::connect;
use crate::arguments::Place;
use crate::failure::Failure;
use crate::output::{Format, align_numbers, counted, print_json, say, table, written};
use gabion_client::Client;
use gabion_layout::{NodeId, StripeId};
use gabion_meta::PutId;
use gabion_protocol::message::{FileFinding, StripeCounts};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// All findings of a recovery.
#[derive(Default)]
struct Findings {
    file_count: u64,
    stripes: StripeCounts,
    files: BTreeMap<PutId, FileFinding>,
    strangers: BTreeMap<NodeId, Vec<StripeId>>,
    silent: BTreeSet<NodeId>,
}

impl Findings {
    async fn of(client: &Client) -> Result<Self, Failure> {
        let mut all = Self::default();
        let mut place = None;
        loop {
            let page = client.recovery(place).await?;
            all.file_count += page.file_count;
            all.stripes += page.stripes;
            for finding in page.findings {
                match all.files.get_mut(&finding.put) {
                    // The file began on an earlier page.
                    Some(known) => known.stripes += finding.stripes,
                    None => {
                        all.files.insert(finding.put, finding);
                    }
                }
            }
            if let Some((node, stripes)) = page.strangers {
                all.strangers.entry(node).or_default().extend(stripes);
            }
            all.silent.extend(page.silent_nodes);
            place = page.next;
            if place.is_none() {
                return Ok(all);
            }
        }
    }

    /// All findings, by the names of their files.
    fn by_name(&self) -> Vec<&FileFinding> {
        let mut files: Vec<_> = self.files.values().collect();
        files.sort_by(|a, b| a.name.cmp(&b.name));
        files
    }

    /// Files of which some stripes are not served.
    fn refused(&self) -> impl Iterator<Item = &FileFinding> {
        let files = self.files.values();
        files.filter(|finding| finding.stripes.not_held_count() > 0)
    }

    /// Stripes that no file of the metadata has.
    fn stranger_count(&self) -> u64 {
        let stripes = self.strangers.values().flatten();
        stripes.collect::<BTreeSet<_>>().len() as u64
    }
}

pub(crate) async fn run(place: &Place, format: Format) -> Result<(), Failure> {
    let findings = Findings::of(&connect(place).await?).await?;
    if format == Format::Json {
        return print_json(&as_json(&findings));
    }
    print(&findings);
    written()
}

fn as_json(findings: &Findings) -> Value {
    let counts = |stripes: StripeCounts| {
        json!({
            "newer_on_nodes": stripes.newer_count,
            "missing": stripes.missing_count,
            "unknown": stripes.unknown_count,
        })
    };
    let mut all = counts(findings.stripes);
    // Parts of a file that hold are no findings, so only the sum over all files is known.
    all["held"] = json!(findings.stripes.held_count);
    let file = |finding: &FileFinding| {
        json!({
            "name": finding.name,
            "served": finding.stripes.not_held_count() == 0,
            "bytes_of_metadata": finding.is_of_metadata,
            "stripes": counts(finding.stripes),
        })
    };
    let strangers = findings.strangers.iter().map(|(node, stripes)| {
        let stripes: Vec<u64> = stripes.iter().map(|stripe| stripe.0).collect();
        json!({ "node": node.0, "stripes": stripes })
    });
    json!({
        "files": findings.file_count,
        "files_not_served": findings.refused().count(),
        "stripes": all,
        "findings": findings.by_name().into_iter().map(file).collect::<Vec<_>>(),
        "stripes_unknown_to_metadata": findings.stranger_count(),
        "unknown_to_metadata": strangers.collect::<Vec<_>>(),
        "silent_nodes": findings.silent.iter().map(|node| node.0).collect::<Vec<_>>(),
    })
}

fn print(findings: &Findings) {
    let refused = findings.refused().count() as u64;
    say(format!(
        "{} of {} served; names and sizes are as of the copy of the metadata",
        findings.file_count.saturating_sub(refused),
        counted(findings.file_count, "file is", "files are"),
    ));
    say(
        "A served file may have been removed, renamed or replaced since the copy: only its bytes are confirmed",
    );
    if !findings.files.is_empty() {
        let mut rows = table(&["file", "newer on nodes", "missing", "unknown", "served"]);
        for finding in findings.by_name() {
            let stripes = finding.stripes;
            let served = match (stripes.not_held_count(), finding.is_of_metadata) {
                (0, _) => "yes; inline bytes or holes may be older",
                (_, false) => "no",
                (_, true) => "no; inline bytes or holes may be older",
            };
            rows.add_row([
                finding.name.clone(),
                stripes.newer_count.to_string(),
                stripes.missing_count.to_string(),
                stripes.unknown_count.to_string(),
                served.to_owned(),
            ]);
        }
        align_numbers(&mut rows);
        println!("{rows}");
    }
    let strangers = findings.stranger_count();
    if strangers > 0 {
        say(format!(
            "{} to no file of this copy; they are kept",
            counted(
                strangers,
                "stripe on the nodes belongs",
                "stripes on the nodes belong"
            )
        ));
    }
    if !findings.silent.is_empty() {
        let silent = findings.silent.iter().map(|node| node.0.to_string());
        say(format!(
            "{} not answered: {}",
            counted(findings.silent.len() as u64, "node has", "nodes have"),
            silent.collect::<Vec<_>>().join(", ")
        ));
    }
}
