//! Tests of the authority.

use super::*;
use gabion_layout::NodeId;

const CLUSTER: ClusterId = ClusterId(7);

fn key() -> PublicKey {
    let key = KeyPair::generate().unwrap();
    PublicKey::new(key.public_key_raw().to_vec()).unwrap()
}

fn last(authority: &Authority) -> Entry {
    *authority.register().unwrap().entries.last().unwrap()
}

#[test]
fn an_authority_is_made_once_and_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let made = Authority::create(directory.path(), CLUSTER).unwrap();
    assert_eq!(
        Authority::open(directory.path()).unwrap().cluster(),
        CLUSTER
    );
    let again = Authority::create(directory.path(), CLUSTER).map(drop);
    assert!(matches!(again, Err(TrustError::AuthorityExists { .. })));
    // A certificate that it signs after it is opened is of the same authority.
    let own = directory.path().join("own");
    let name = Name::of(CLUSTER, Role::Coordinator);
    let opened = Authority::open(directory.path()).unwrap();
    opened.refresh(&own, name).unwrap();
    assert_eq!(*Credentials::open(&own).unwrap().name(), name);
    made.refresh(&own, name).unwrap();
    assert_eq!(made.register().unwrap().entries.len(), 1, "it is fresh");
    made.revoke(last(&made).serial).unwrap();
    made.refresh(&own, name).unwrap();
    assert_eq!(
        made.register().unwrap().entries.len(),
        2,
        "a revoked one is replaced"
    );
}

#[test]
fn a_certificate_replaces_only_one_of_the_same_process() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let authority = Authority::create(&at("ca"), CLUSTER).unwrap();
    let issue = |name: &str, to| authority.issue_into(&at(name), to, Authority::LIFETIME);
    let operator = Name::of(CLUSTER, Role::Operator);
    let node = |id| Name::of_node(CLUSTER, id);
    issue("operator", operator).unwrap();
    issue("operator", operator).unwrap();
    issue("node", node(None)).unwrap();
    issue("node", node(Some(NodeId(3)))).unwrap();
    issue("node", node(Some(NodeId(3)))).unwrap();
    // Without its number the node could not start on its data.
    let issued = issue("node", node(None));
    assert!(matches!(issued, Err(TrustError::Identified { .. })));
    let count = authority.register().unwrap().entries.len();
    let other_cluster = Name::of(gabion_layout::ClusterId(77), Role::Operator);
    for (place, name) in [
        ("operator", node(None)),
        ("operator", Name::of(CLUSTER, Role::Client)),
        ("operator", other_cluster),
        ("node", node(Some(NodeId(4)))),
        ("ca", operator),
    ] {
        let issued = issue(place, name);
        assert!(
            matches!(issued, Err(TrustError::Occupied { .. })),
            "{place} {name}"
        );
    }
    // A directory that cannot be made gets no certificate.
    std::fs::write(at("file"), "x").unwrap();
    assert!(matches!(
        issue("file", operator),
        Err(TrustError::Io { .. })
    ));
    assert_eq!(authority.register().unwrap().entries.len(), count);
    // Neither does one in which the certificate cannot be written.
    std::fs::create_dir_all(at("half/key.pem/x")).unwrap();
    assert!(matches!(
        issue("half", operator),
        Err(TrustError::Io { .. })
    ));
    let revoked = matches!(last(&authority).state, EntryState::Revoked { .. });
    assert!(revoked, "its key is lost");
    assert_eq!(
        *Credentials::open(&at("operator")).unwrap().name(),
        operator
    );
}

#[test]
fn a_token_is_exchanged_once_for_its_own_name() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::create(directory.path(), CLUSTER).unwrap();
    let name = Name::of_node(CLUSTER, None);
    let token = authority
        .issue_token(name, Authority::TOKEN_LIFETIME)
        .unwrap();
    let token: Token = token.to_string().parse().unwrap();
    let unpacked = token.unpack(&directory.path().join("token")).unwrap();
    assert_eq!(*unpacked.name(), name.as_token());
    assert!(unpacked.server_config().is_none(), "it is none of a server");
    authority.exchange(unpacked.serial(), &key()).unwrap();
    assert_eq!(last(&authority).name, name);
    let again = authority.exchange(unpacked.serial(), &key());
    assert!(matches!(again, Err(TrustError::TokenUsed)));
    // Neither is another certificate a token.
    let again = authority.exchange(last(&authority).serial, &key());
    assert!(matches!(again, Err(TrustError::TokenUsed)));
}

#[test]
fn a_certificate_is_renewed_under_its_own_name_when_it_is_due() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::create(directory.path(), CLUSTER).unwrap();
    let node = Name::of_node(CLUSTER, Some(NodeId(3)));
    let sign = |name, lifetime| authority.sign(&key(), name, lifetime).unwrap().0;
    let long = sign(node, Authority::LIFETIME);
    let early = authority.renew(long, node, &key()).unwrap_err();
    assert!(early.to_string().contains("not due"), "{early}");
    // It was made five minutes ago, by its own words.
    let short = sign(node, Duration::from_mins(1));
    authority.renew(short, node, &key()).unwrap();
    for other in [
        Name::of_node(CLUSTER, Some(NodeId(4))),
        Name::of(CLUSTER, Role::Operator),
        Name::of_node(CLUSTER, None),
    ] {
        let error = authority.renew(short, other, &key()).unwrap_err();
        assert!(error.to_string().contains("another name"), "{error}");
    }
    // It is valid as long as the one before.
    let (renewed, held) = (last(&authority), Duration::from_mins(1));
    assert_eq!(renewed.parent, Some(short));
    let span = Duration::from_secs((renewed.until_s - renewed.from_s) as u64);
    assert_eq!(span, held + CLOCK_TOLERANCE);
    authority.revoke(short).unwrap();
    let error = authority.renew(short, node, &key()).unwrap_err();
    assert!(error.to_string().contains("revoked"), "{error}");
}

#[test]
fn a_certificate_of_a_new_node_admits_one_node() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::create(directory.path(), CLUSTER).unwrap();
    let node = |number| Name::of_node(CLUSTER, Some(NodeId(number)));
    let new = Name::of_node(CLUSTER, None);
    let (new, _) = authority.sign(&key(), new, Authority::LIFETIME).unwrap();
    assert!(authority.renew(new, node(3), &key()).is_err());
    assert_eq!(authority.admitted(new).unwrap(), None);
    for _ in 0..2 {
        authority.admit(new, NodeId(3)).unwrap();
        assert_eq!(authority.admitted(new).unwrap(), Some(NodeId(3)));
    }
    authority.renew(new, node(3), &key()).unwrap();
    let error = authority.admit(new, NodeId(4)).unwrap_err().to_string();
    assert!(error.contains("admits one node"), "{error}");
    assert!(authority.renew(new, node(4), &key()).is_err());
}

#[test]
fn a_line_of_certificates_is_revoked_as_a_whole() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::create(directory.path(), CLUSTER).unwrap();
    let client = Name::of(CLUSTER, Role::Client);
    let short = Duration::from_mins(1);
    let (first, _) = authority.sign(&key(), client, short).unwrap();
    let (other, _) = authority.sign(&key(), client, short).unwrap();
    authority.renew(first, client, &key()).unwrap();
    let second = last(&authority).serial;
    authority.renew(second, client, &key()).unwrap();
    let third = last(&authority).serial;
    // Whichever of them is named.
    assert_eq!(authority.revoke(second).unwrap(), 3);
    assert_eq!(authority.revoke(first).unwrap(), 0, "it is revoked already");
    let listed =
        |authority: &Authority| serials_of_list(Some(&authority.revoked().unwrap())).unwrap();
    assert_eq!(listed(&authority), [first, second, third].into());
    assert!(authority.renew(third, client, &key()).is_err());
    authority.renew(other, client, &key()).unwrap();
    // A damaged line's certificate stays on the list.
    let ledger = directory.path().join("ledger");
    let text = std::fs::read_to_string(&ledger).unwrap();
    std::fs::write(&ledger, text.replace("revoked", "revokod")).unwrap();
    let renewed = last(&authority).serial;
    assert_eq!(authority.revoke(renewed).unwrap(), 2);
    let all = [first, second, third, other, renewed].into();
    assert_eq!(listed(&authority), all);
}

#[test]
fn an_authority_that_went_back_takes_in_what_was_revoked() {
    let directory = tempfile::tempdir().unwrap();
    let (ca, own) = (directory.path().join("ca"), directory.path().join("own"));
    let authority = Authority::create(&ca, CLUSTER).unwrap();
    let name = Name::of(CLUSTER, Role::Coordinator);
    let client = Name::of(CLUSTER, Role::Client);
    let (one, _) = authority.sign(&key(), client, Authority::LIFETIME).unwrap();
    authority.refresh(&own, name).unwrap();
    let copy = ["ledger", "revoked.pem"].map(|file| std::fs::read(ca.join(file)).unwrap());
    authority.revoke(one).unwrap();
    authority.refresh(&own, name).unwrap();
    for (file, bytes) in ["ledger", "revoked.pem"].iter().zip(copy) {
        std::fs::write(ca.join(file), bytes).unwrap();
    }
    let known = Credentials::open(&own).unwrap();
    let old = known.keep_revoked(&authority.revoked().unwrap());
    assert!(matches!(old, Err(TrustError::OldList { .. })));
    authority.give_revoked(&known).unwrap();
    let list = authority.revoked().unwrap();
    assert_eq!(serials_of_list(Some(&list)).unwrap(), [one].into());
    assert_eq!(
        Credentials::open(&own).unwrap().revoked_text(),
        Some(&*list)
    );
}

#[test]
fn a_revocation_counts_also_after_the_clock_was_set_back() {
    let directory = tempfile::tempdir().unwrap();
    let (ca, own) = (directory.path().join("ca"), directory.path().join("own"));
    let authority = Authority::create(&ca, CLUSTER).unwrap();
    let name = Name::of(CLUSTER, Role::Coordinator);
    let client = Name::of(CLUSTER, Role::Client);
    let sign = || authority.sign(&key(), client, Authority::LIFETIME).unwrap();
    let (one, two) = (sign().0, sign().0);
    let listed = || {
        authority.refresh(&own, name).unwrap();
        let known = Credentials::open(&own).unwrap();
        serials_of_list(known.revoked_text()).unwrap()
    };
    let ahead = OffsetDateTime::now_utc() + Duration::from_hours(240);
    let earlier = authority.revoked().unwrap();
    authority
        .write_revoked(&authority.register().unwrap(), None, ahead)
        .unwrap();
    assert_eq!(listed(), [].into());
    authority.revoke(one).unwrap();
    assert_eq!(listed(), [one].into());
    // Also if the authority's own list is that of an earlier copy.
    std::fs::write(ca.join("revoked.pem"), earlier).unwrap();
    authority.revoke(two).unwrap();
    assert_eq!(listed(), [one, two].into());
}

#[test]
fn a_certificate_of_a_clock_that_was_ahead_is_due_and_replaces_none_that_is_valid() {
    let directory = tempfile::tempdir().unwrap();
    let (ca, own) = (directory.path().join("ca"), directory.path().join("own"));
    let authority = Authority::create(&ca, CLUSTER).unwrap();
    let name = Name::of(CLUSTER, Role::Coordinator);
    let ahead = OffsetDateTime::now_utc() + Duration::from_hours(240);
    let early_key = KeyPair::generate().unwrap();
    let signed = authority.sign_locked(&early_key, name, Authority::LIFETIME, None, ahead);
    let (serial, early) = signed.unwrap();
    let pem = early_key.serialize_pem();
    write_credentials(&own, &pem, &early, &authority.certificate, None).unwrap();
    assert!(Credentials::open(&own).unwrap().is_due());
    authority.renew(serial, name, &key()).unwrap();
    authority.refresh(&own, name).unwrap();
    let valid = Credentials::open(&own).unwrap();
    assert!(!valid.is_due());
    let replaced = valid.replace_in(&own, &early_key, &early);
    assert!(matches!(replaced, Err(TrustError::NotYetValid { .. })));
    assert_eq!(Credentials::open(&own).unwrap().serial(), valid.serial());
    // One that ends soon is replaced: other machines' clocks may be ahead, too.
    let short = Duration::from_mins(1);
    authority.issue_into(&own, name, short).unwrap();
    let ending = Credentials::open(&own).unwrap();
    ending.replace_in(&own, &early_key, &early).unwrap();
    assert_eq!(Credentials::open(&own).unwrap().serial(), serial);
}

#[test]
fn another_key_than_a_point_is_not_signed() {
    for point in [vec![], vec![4; 64], vec![2; 65]] {
        assert!(PublicKey::new(point).is_err());
    }
}
