//! `gabion init` and `gabion cert`: the cluster's certificate authority.

use crate::arguments::{
    AuthorityOption, CertCommand, Holder, InitOptions, IssueOptions, Place, TokenOptions,
};
use crate::failure::{Context, Failure};
use crate::output::{Format, counted, print_json, remark, say, table};
use gabion_layout::{ClusterId, NodeId};
use gabion_testbed::LocalCluster;
use gabion_wire::trust::{Authority, Entry, EntryState, Name, Register, Serial};
use gabion_wire::{Role, random_bytes, wall_time};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The authority's directory of a coordinator with the default --data.
const DEFAULT_AUTHORITY: &str = "gabion-coordinator/ca";

/// Shown digits of the first serial of a line.
const LINE_DIGITS: usize = 8;

pub(crate) fn init(options: &InitOptions, format: Format) -> Result<(), Failure> {
    let bytes = random_bytes().context("draw the cluster's id")?;
    let directory = options.data.join("ca");
    let authority = Authority::create(&directory, ClusterId(u128::from_le_bytes(bytes)))?;
    let operator = options.data.join("operator");
    authority.refresh(&operator, Name::of(authority.cluster(), Role::Operator))?;
    if format == Format::Json {
        return print_json(&json!({
            "cluster": authority.cluster().to_string(),
            "authority": directory.display().to_string(),
            "operator": operator.display().to_string(),
        }));
    }
    say(format!(
        "created the certificate authority of cluster {} in {}; keep its ca.key secret, and keep a copy in a safe \
        place",
        authority.cluster(),
        directory.display()
    ));
    println!(
        "next: gabion coordinator --init --data {}",
        options.data.display()
    );
    println!(
        "other commands on this machine take --tls {}",
        operator.display()
    );
    Ok(())
}

pub(crate) fn run(command: CertCommand, place: &Place, format: Format) -> Result<(), Failure> {
    match command {
        CertCommand::Issue(options) => issue(&options, place, format),
        CertCommand::Token(options) => token(&options, place, format),
        CertCommand::Ls(option) => list(&open(&option, place)?, format),
        CertCommand::Revoke { serial, authority } => {
            let serial: Serial = serial.parse()?;
            let authority = open(&authority, place)?;
            let register = authority.register()?;
            let is_coordinator = |entry: &Entry| entry.name.role == Role::Coordinator;
            if register.of(serial).is_some_and(is_coordinator) {
                return Err(Failure::usage(
                    "this is the coordinator's own certificate, and no process reaches the coordinator without it; to \
                    replace it, stop the coordinator, delete 'tls' in its data directory, and start the coordinator again",
                ));
            }
            let count = authority.revoke(serial)?;
            warn_of_damage(&authority.register()?);
            if format == Format::Json {
                let serial = serial.to_string();
                return print_json(&json!({
                    "serial": serial,
                    "revoked": true,
                    "newly_revoked_count": count,
                }));
            }
            println!("{}", revoked(serial, count));
            Ok(())
        }
    }
}

fn issue(options: &IssueOptions, place: &Place, format: Format) -> Result<(), Failure> {
    let authority = open(&options.authority, place)?;
    let name = name(&authority, options.holder, options.node)?;
    let lifetime = Duration::from_hours(24 * u64::from(options.days));
    let serial = authority.issue_into(&options.out, name, lifetime)?;
    let out = options.out.display();
    if format == Format::Json {
        return print_json(&json!({
            "serial": serial.to_string(),
            "name": name.to_string(),
            "directory": out.to_string(),
        }));
    }
    println!("{serial} for {} is in {out}", name.holder());
    Ok(())
}

fn token(options: &TokenOptions, place: &Place, format: Format) -> Result<(), Failure> {
    let authority = open(&options.authority, place)?;
    if options.holder == Holder::Coordinator {
        return Err(Failure::usage(
            "a coordinator gets its certificate from 'gabion cert issue' or its own authority, not by a token",
        ));
    }
    let name = name(&authority, options.holder, options.node)?;
    let lifetime = Duration::from_mins(u64::from(options.minutes));
    let token = authority.issue_token(name, lifetime)?;
    if format == Format::Json {
        return print_json(&json!({ "token": token.to_string(), "name": name.to_string() }));
    }
    println!("{token}");
    Ok(())
}

fn list(authority: &Authority, format: Format) -> Result<(), Failure> {
    let register = authority.register()?;
    warn_of_damage(&register);
    let (entries, lines) = (&register.entries, register.lines());
    if format == Format::Json {
        let rows = entries.iter().map(|entry| {
            json!({
                "serial": entry.serial.to_string(),
                "name": entry.name.to_string(),
                "line": lines[&entry.serial].to_string(),
                "admitted_node": entry.admitted.map(|node| node.0),
                "until_s": entry.until_s,
                "state": state(entry),
            })
        });
        return print_json(&rows.collect::<Vec<_>>());
    }
    let mut rows = table(&["serial", "line", "role", "until", "state"]);
    for entry in entries {
        rows.add_row([
            entry.serial.to_string(),
            lines[&entry.serial].to_string()[..LINE_DIGITS].to_owned(),
            entry.name.holder(),
            until(entry),
            state(entry).to_owned(),
        ]);
    }
    println!("{rows}");
    Ok(())
}

/// The outcome of `gabion cert revoke` as a sentence.
fn revoked(serial: Serial, count: usize) -> String {
    match count {
        0 => format!("{serial} was revoked already"),
        1 => format!("{serial} is revoked"),
        _ => format!(
            "{serial} is revoked, with all {count} certificates of its line: the issued one and its renewals"
        ),
    }
}

/// Reports the ledger's unreadable lines.
fn warn_of_damage(register: &Register) {
    if let Some(first) = register.damaged.first() {
        let lines = counted(register.damaged.len() as u64, "line is", "lines are");
        let text = format!(
            "{lines} damaged in the authority's ledger, first line {first}; certificates in these lines may be missing \
            here, and join tokens issued before them are no longer accepted"
        );
        remark(text);
    }
}

fn until(entry: &Entry) -> String {
    let end = jiff::Timestamp::from_second(entry.until_s);
    end.map_or_else(|_| entry.until_s.to_string(), |end| end.to_string())
}

fn state(entry: &Entry) -> &'static str {
    match entry.state {
        EntryState::Used => "used",
        EntryState::Revoked { .. } => "revoked",
        EntryState::Valid if entry.until_s < wall_time().seconds => "expired",
        EntryState::Valid => "valid",
    }
}

/// The authority of the command.
fn open(option: &AuthorityOption, place: &Place) -> Result<Authority, Failure> {
    let directory = match (&option.authority, &place.dir) {
        (Some(directory), _) => directory.clone(),
        (None, Some(directory)) => of_cluster(directory)?,
        (None, None) => PathBuf::from(DEFAULT_AUTHORITY),
    };
    Ok(Authority::open(&directory)?)
}

fn of_cluster(directory: &Path) -> Result<PathBuf, Failure> {
    Ok(LocalCluster::open(directory)?.authority_directory())
}

/// The name for a new certificate.
fn name(authority: &Authority, holder: Holder, node: Option<u32>) -> Result<Name, Failure> {
    let role = match holder {
        Holder::Node => return Ok(Name::of_node(authority.cluster(), node.map(NodeId))),
        Holder::Client => Role::Client,
        Holder::Operator => Role::Operator,
        Holder::Coordinator => Role::Coordinator,
    };
    if node.is_some() {
        return Err(Failure::usage("--node is for certificates of nodes"));
    }
    Ok(Name::of(authority.cluster(), role))
}
