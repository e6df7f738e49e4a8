//! All pairs of a role and a request, against the table in `docs/security.md`.

use super::*;
use gabion_layout::ClusterId;
use gabion_protocol::message::RunId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::fmt::Debug;

/// The table for people. It has each row once more, so a change here needs one there.
const DOCUMENT: &str = include_str!("../../../../docs/security.md");
const NODE_ID: NodeId = NodeId(0);

/// Each kind of sender with a certificate, by its name in the document.
fn proven() -> [(&'static str, Sender); 6] {
    let of = |role, node, is_token| Sender {
        role,
        node,
        is_token,
        is_proven: true,
    };
    [
        ("client", of(Role::Client, None, false)),
        ("operator", of(Role::Operator, None, false)),
        ("node", of(Role::Node, Some(NODE_ID), false)),
        ("new node", of(Role::Node, None, false)),
        ("coordinator", of(Role::Coordinator, None, false)),
        ("join token", of(Role::Node, None, true)),
    ]
}

/// One request of each kind, with the least in it: in postcard most types are zeros then.
fn one_of_each<T: Serialize + DeserializeOwned + Debug>() -> Vec<T> {
    let mut all = Vec::new();
    loop {
        let number = all.len();
        assert!(number < 128, "a variant's number has one byte");
        let mut bytes = vec![0; 4096];
        bytes[0] = number as u8;
        match postcard::take_from_bytes(&bytes) {
            Ok((request, _)) => all.push(request),
            Err(_) => return all,
        }
    }
}

/// The name of a request: the word with which its debug form begins.
fn name_of(request: &impl Debug) -> String {
    let text = format!("{request:?}");
    let end = text.find(|c: char| !c.is_ascii_alphanumeric());
    text[..end.unwrap_or(text.len())].to_owned()
}

fn names_of_each<T: Serialize + DeserializeOwned + Debug>() -> impl Iterator<Item = String> {
    one_of_each::<T>()
        .into_iter()
        .map(|request| name_of(&request))
}

fn check_row(name: &str, request: &impl Guarded) {
    let allowed: Vec<&str> = proven()
        .into_iter()
        .filter(|(_, sender)| request.may_come_from(sender).is_ok())
        .map(|(role, _)| role)
        .collect();
    let row = format!("| {name} | {} |", allowed.join(", "));
    let is_told = DOCUMENT.lines().any(|line| line == row);
    assert!(is_told, "docs/security.md lacks the row\n{row}");
}

#[test]
fn every_role_may_send_what_the_document_says_and_nothing_else() {
    let to_node: Vec<NodeRequest> = one_of_each();
    assert_eq!(to_node.len(), 31, "a request cannot be made of zeros");
    for request in &to_node {
        match request {
            NodeRequest::RunPart(part) => check_parts(part),
            request => check_row(&name_of(request), request),
        }
    }
    let to_coordinator: Vec<CoordinatorRequest> = one_of_each();
    assert_eq!(
        to_coordinator.len(),
        77,
        "a request cannot be made of zeros"
    );
    for request in &to_coordinator {
        check_row(&name_of(request), request);
    }
    for request in one_of_each::<CertificateRequest>() {
        check_row(&name_of(&request), &request);
    }
    let (run, value) = (RunId(1), gabion_plan::ValueId(1));
    let slice = Flow::Slice {
        run,
        value,
        slice: 0,
        purpose: gabion_protocol::message::Purpose::Update,
        bytes: bytes::Bytes::new(),
    };
    let credit = Flow::Credit {
        run,
        value,
        slices: 1,
    };
    for flow in [slice, credit, Flow::Abort { run }] {
        check_row(&name_of(&flow), &flow);
    }
}

/// The rows of the parts of plans, by their effects.
fn check_parts(part: &RunPart) {
    let (base, sequence, none) = (Sequence(0), Sequence(1), Vec::new());
    let effects = [
        ("reads", Effect::None, 0),
        ("installs a new chunk", Effect::Install { base }, 0),
        ("installs a chunk in a term", Effect::Install { base }, 1),
        (
            "installs a chunk as of an update",
            Effect::Install { base: sequence },
            0,
        ),
        (
            "records",
            Effect::Record {
                sequence,
                participants: none.clone(),
            },
            1,
        ),
        (
            "appends",
            Effect::Append {
                sequence,
                participants: none,
            },
            1,
        ),
        ("resumes", Effect::Resume { base }, 0),
        (
            "converts",
            Effect::Convert {
                sources: Vec::new(),
            },
            0,
        ),
        ("catches up", Effect::CatchUp { sequence }, 0),
    ];
    for (name, effect, epoch) in effects {
        let request = NodeRequest::RunPart(Box::new(RunPart {
            effect,
            epoch: Epoch(epoch),
            ..part.clone()
        }));
        check_row(&format!("RunPart, {name}"), &request);
    }
}

/// A client's request without a ticket tells or changes none of a stripe's bytes.
#[test]
fn each_request_of_users_is_for_a_stripe_and_needs_a_ticket_or_is_listed() {
    let users = [Role::Client, Role::Operator].map(|role| Sender {
        role,
        node: None,
        is_token: false,
        is_proven: true,
    });
    let mut without = BTreeSet::new();
    for request in one_of_each::<NodeRequest>() {
        let is_users = users.iter().any(|user| request.may_come_from(user).is_ok());
        if is_users && request.claim().is_none() {
            without.insert(name_of(&request));
        }
    }
    let listed = [
        "Attest",
        "Meter",
        "Probe",
        "Recollect",
        "ReservedBytes",
        "StoreCounts",
        "Unstage",
    ];
    assert_eq!(without, BTreeSet::from(listed.map(str::to_owned)));
    for (role, sender) in proven() {
        let is_member = ["node", "coordinator"].contains(&role);
        let expected = if is_member {
            Asker::Member
        } else {
            Asker::User
        };
        assert_eq!(sender.asker(), expected, "{role}");
    }
}

/// The document has no row for a request that is gone.
#[test]
fn every_row_of_the_document_is_a_request() {
    let mut names: BTreeSet<String> = names_of_each::<NodeRequest>().collect();
    names.extend(names_of_each::<CoordinatorRequest>());
    names.extend(names_of_each::<CertificateRequest>());
    names.extend(["Slice", "Credit", "Abort"].map(str::to_owned));
    let is_row = |line: &&str| line.starts_with("| ") && line.matches('|').count() == 3;
    let (_, table) = DOCUMENT
        .split_once("| request | may come from |")
        .expect("the document has the table");
    let rows = table.lines().skip(2).take_while(is_row);
    let mut count = 0;
    for row in rows {
        let name = row.trim_start_matches("| ").split([' ', ',']).next();
        let name = name.expect("a row has a name");
        assert!(names.contains(name), "there is no request {name}");
        count += 1;
    }
    assert_eq!(count, names.len() + 8, "RunPart has nine rows");
}

fn heartbeat(node: u32) -> CoordinatorRequest {
    let all: Vec<CoordinatorRequest> = one_of_each();
    let beat = all.into_iter().find_map(|request| match request {
        CoordinatorRequest::Heartbeat(beat) => Some(beat),
        _ => None,
    });
    let beat = beat.expect("heartbeats exist");
    CoordinatorRequest::Heartbeat(gabion_protocol::message::ask::Heartbeat {
        node: NodeId(node),
        ..beat
    })
}

#[test]
fn a_node_speaks_for_itself_alone() {
    let sender = |node, is_proven| Sender {
        role: Role::Node,
        node,
        is_token: false,
        is_proven,
    };
    for is_proven in [true, false] {
        let own = sender(Some(NodeId(3)), is_proven);
        assert_eq!(heartbeat(3).may_come_from(&own), Ok(()));
        let wrong = heartbeat(4).may_come_from(&own).unwrap_err();
        assert_eq!(wrong, "node 3 may not speak for node 4");
    }
    // Each request in which a node names itself.
    let claims: Vec<CoordinatorRequest> = one_of_each::<CoordinatorRequest>()
        .into_iter()
        .filter(|request| claimed_node(request).is_some())
        .collect();
    let names: Vec<String> = claims.iter().map(name_of).collect();
    let expected = [
        "TellChunks",
        "SetAside",
        "EndJoin",
        "Heartbeat",
        "EndMembership",
        "StoreFailed",
        "Acquire",
        "ReportDamage",
    ];
    assert_eq!(names, expected);
    for request in claims {
        assert_eq!(request.may_come_from(&sender(Some(NODE_ID), true)), Ok(()));
        request
            .may_come_from(&sender(Some(NodeId(3)), true))
            .unwrap_err();
    }
}

#[test]
fn without_tls_a_role_is_believed_and_bound_to_its_rows() {
    for (name, sender) in proven() {
        if sender.is_token || name == "new node" {
            continue;
        }
        let claims = Sender {
            is_proven: false,
            ..sender
        };
        for request in one_of_each::<NodeRequest>() {
            assert_eq!(
                request.may_come_from(&claims),
                request.may_come_from(&sender)
            );
        }
        for request in one_of_each::<CertificateRequest>() {
            request.may_come_from(&claims).unwrap_err();
        }
    }
}

#[test]
fn a_certificate_counts_more_than_a_hello() {
    let hello = Hello {
        cluster: None,
        role: Role::Coordinator,
        identity: crate::hello::PeerIdentity::default(),
    };
    let certified = Certified {
        name: crate::trust::Name::of(ClusterId(1), Role::Client),
        serial: None,
        issued: crate::trust::Issued::default(),
    };
    assert_eq!(Sender::new(&hello, Some(&certified)).role, Role::Client);
    assert_eq!(Sender::new(&hello, None).role, Role::Coordinator);
}
