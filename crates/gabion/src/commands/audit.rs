//! `gabion audit`: the coordinators' record of deletions and changed settings.

use crate::arguments::{AuditOptions, Place};
use crate::failure::Failure;
use crate::output::{Format, print_json, remark, say, written};
use gabion_server::{AuditError, AuditTrail, AuditedOrder, Became, Noted};
use gabion_testbed::LocalCluster;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Orders without `--last` and `--since`.
const LAST_COUNT: u64 = 100;

pub(crate) fn run(options: &AuditOptions, place: &Place, format: Format) -> Result<(), Failure> {
    let directories = directories(options, place)?;
    let trails = directories.iter().map(|directory| {
        let trail = AuditTrail::read(directory).map_err(Failure::failed)?;
        Ok((directory.as_path(), trail))
    });
    let trails: Vec<_> = trails.collect::<Result<_, Failure>>()?;
    if options.check {
        return check(&trails, options.seal.as_deref(), format);
    }
    for (directory, trail) in trails.iter().filter(|(_, trail)| !trail.faults.is_empty()) {
        let (path, count) = (directory.display(), trail.faults.len());
        remark(format_args!(
            "the audit log of {path} has {count} faults; 'gabion audit --check' names them"
        ));
    }
    let orders = chosen(orders(&trails), options);
    if format == Format::Json {
        return print_json(&orders.iter().map(Row::as_json).collect::<Vec<_>>());
    }
    if orders.is_empty() {
        println!("the audit log has no orders");
    }
    for order in &orders {
        say(order.sentence());
    }
    written()
}

/// The data directories of the requested coordinators.
fn directories(options: &AuditOptions, place: &Place) -> Result<Vec<PathBuf>, Failure> {
    if let Some(data) = &options.data {
        return Ok(vec![data.clone()]);
    }
    let directory = place.dir.as_deref().ok_or_else(|| {
        Failure::usage("no coordinator given; use 'gabion audit --data DIR' with the --data directory of a coordinator \
        on this machine")
    })?;
    let all = LocalCluster::open(directory)?.coordinator_directories();
    // One that has never led has recorded nothing.
    let (some, none): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|data| data.join("audit").exists());
    match none.into_iter().next().filter(|_| some.is_empty()) {
        Some(data) => Err(Failure::failed(AuditError::None(data))),
        None => Ok(some),
    }
}

/// An order with its outcome.
struct Row<'t> {
    log: &'t Path,
    number: u64,
    time_ms: i64,
    order: &'t AuditedOrder,
    /// `None` if the log has no outcome.
    outcome: Option<&'t Became>,
}

impl Row<'_> {
    fn time(&self) -> String {
        let time = Timestamp::from_millisecond(self.time_ms);
        time.map_or_else(|_| self.time_ms.to_string(), |time| format!("{time:.3}"))
    }

    fn sentence(&self) -> String {
        let AuditedOrder {
            peer,
            operation,
            subject,
            to,
        } = self.order;
        let to = to.as_ref().map(|to| format!(" to {}", shown(to)));
        let address = peer.address.as_deref().unwrap_or("an unknown address");
        let certificate = match &peer.certificate {
            Some(serial) => format!(" (certificate {serial})"),
            None => String::new(),
        };
        let outcome = match self.outcome {
            Some(Became::Done) => "done".to_owned(),
            Some(Became::Refused(why)) => format!("refused: {}", shown(why)),
            Some(Became::Unknown(why)) => format!("outcome unknown: {}", shown(why)),
            None => "no outcome in the log".to_owned(),
        };
        let (time, role, subject) = (self.time(), &peer.role, shown(subject));
        let to = to.unwrap_or_default();
        format!("{time} {role} at {address}{certificate}: {operation} {subject}{to}: {outcome}")
    }

    fn as_json(&self) -> Value {
        let peer = &self.order.peer;
        json!({
            "log": self.log.display().to_string(),
            "number": self.number,
            "time": self.time(),
            "role": peer.role,
            "certificate": peer.certificate,
            "address": peer.address,
            "operation": self.order.operation,
            "subject": self.order.subject,
            "to": self.order.to,
            "outcome": self.outcome,
        })
    }
}

/// A peer's text with escaped control characters, which must not reach the terminal.
fn shown(text: &str) -> String {
    let escape = |character: char| {
        let is_hidden = character.is_control() || is_layout(character);
        let escaped = is_hidden.then(|| character.escape_unicode());
        let plain = (!is_hidden).then_some(character);
        escaped.into_iter().flatten().chain(plain)
    };
    text.chars().flat_map(escape).collect()
}

/// Whether a character changes the direction or the lines of the text around it, so that it could hide what follows.
fn is_layout(character: char) -> bool {
    matches!(
        character,
        '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

/// All orders, by time.
fn orders<'t>(trails: &'t [(&'t Path, AuditTrail)]) -> Vec<Row<'t>> {
    let mut orders = Vec::new();
    for (log, trail) in trails {
        let outcomes = trail
            .records
            .iter()
            .filter_map(|record| match &record.noted {
                Noted::Outcome(outcome) => Some((outcome.order, &outcome.became)),
                _ => None,
            });
        let outcomes: BTreeMap<u64, &Became> = outcomes.collect();
        orders.extend(
            trail
                .records
                .iter()
                .filter_map(|record| match &record.noted {
                    Noted::Order(order) => Some(Row {
                        log,
                        number: record.number,
                        time_ms: record.time_ms,
                        order,
                        outcome: outcomes.get(&record.number).copied(),
                    }),
                    _ => None,
                }),
        );
    }
    orders.sort_by_key(|order| order.time_ms);
    orders
}

/// The requested orders.
fn chosen<'t>(mut orders: Vec<Row<'t>>, options: &AuditOptions) -> Vec<Row<'t>> {
    if let Some(since) = options.since {
        orders.retain(|order| order.time_ms >= since.as_millisecond());
    }
    let default = options.since.is_none().then_some(LAST_COUNT);
    if let Some(last) = options.last.or(default) {
        orders.drain(..orders.len().saturating_sub(last as usize));
    }
    orders
}

fn check(
    trails: &[(&Path, AuditTrail)],
    seal: Option<&str>,
    format: Format,
) -> Result<(), Failure> {
    let fault_count: usize = trails.iter().map(|(_, trail)| trail.faults.len()).sum();
    if format == Format::Json {
        let logs = trails.iter().map(|(log, trail)| {
            json!({
                "log": log.display().to_string(),
                "records": trail.records.len(),
                "faults": trail.faults.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "cut": trail.cut,
                "seal": trail.seal,
            })
        });
        print_json(&logs.collect::<Vec<_>>())?;
    } else {
        for (log, trail) in trails {
            let (path, count) = (log.display(), trail.records.len());
            for file in &trail.cut {
                say(format!(
                    "{path}: {file} ends in an incomplete line, as after a crash"
                ));
            }
            for fault in &trail.faults {
                say(format!("{path}: {fault}"));
            }
            let numbers = trail.records.iter().map(|record| record.number);
            let (first, last) = (numbers.clone().min(), numbers.max());
            let Some((first, last)) = first.zip(last) else {
                say(format!("{path}: there are no records"));
                continue;
            };
            if first > 1 {
                say(format!("{path}: the records before {first} are deleted"));
            }
            if trail.faults.is_empty() {
                say(format!(
                    "{path}: {count} records, {first} to {last}, form an unbroken chain; the last seal is {}",
                    trail.seal
                ));
            }
        }
        written()?;
    }
    if fault_count > 0 {
        let sentence = "the audit log is damaged or was changed after the coordinator wrote it";
        return Err(Failure::failed(sentence.to_owned()));
    }
    if let Some(seal) = seal
        && !trails.iter().any(|(_, trail)| trail.has_seal(seal))
    {
        return Err(Failure::failed(format!(
            "no record has the seal {seal}: records were removed since that check, or this is another log"
        )));
    }
    Ok(())
}
