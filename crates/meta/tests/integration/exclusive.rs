//! Exclusive opens: each session has a higher token, and no change under another token is made.

use crate::fixture::{cluster, one_file};
use gabion_meta::{
    Existing, FencingToken, MemoryStore, Meta, MetaError, PutId, Rewrite, SessionId, SizeChange,
};

const FIRST: SessionId = SessionId(7);
const SECOND: SessionId = SessionId(8);

fn change(meta: &Meta<MemoryStore>, put: PutId, token: FencingToken) -> Result<(), MetaError> {
    let rewrite = Rewrite {
        displaced: vec![],
        offsets: vec![],
        copied: Vec::new(),
        size: SizeChange::AtLeast(5_000),
        inline: None,
        token,
    };
    let begun = meta.begin_replacement(put, &rewrite, &[], 5)?;
    meta.commit_replacement(begun.id).map(drop)
}

#[test]
fn changes_under_a_lower_token_are_refused_also_when_they_began_before() {
    let (meta, pool) = cluster();
    let file = one_file(&meta, &pool, "f");
    let none = FencingToken::default();
    let rewrite = Rewrite {
        displaced: vec![],
        offsets: vec![],
        copied: Vec::new(),
        size: SizeChange::AtLeast(5_000),
        inline: None,
        token: none,
    };
    let early = meta.begin_replacement(file.put, &rewrite, &[], 5).unwrap();
    let first = meta.open_exclusive(file.put, FIRST, none).unwrap();
    assert!(first > none);
    let refused = Err(MetaError::Superseded { current: first });
    assert_eq!(
        meta.commit_replacement(early.id).map(drop),
        refused,
        "it began before the session"
    );
    assert_eq!(change(&meta, file.put, none), refused);
    let append = meta.grow_from(file.put, (4_096, 9), (1, 0), none);
    assert_eq!(append.map(drop), refused);
    assert_eq!(change(&meta, file.put, first), Ok(()));
    assert!(
        meta.grow(file.put, 6_000, 0).unwrap().1,
        "zeros at the end take nothing from the writer"
    );
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn a_session_is_opened_once_and_displaced_by_who_has_seen_it() {
    let (meta, pool) = cluster();
    let file = one_file(&meta, &pool, "f");
    let none = FencingToken::default();
    let first = meta.open_exclusive(file.put, FIRST, none).unwrap();
    assert_eq!(
        meta.open_exclusive(file.put, FIRST, none),
        Ok(first),
        "the answer was lost"
    );
    assert_eq!(
        meta.open_exclusive(file.put, SECOND, none),
        Err(MetaError::Superseded { current: first }),
        "it has not seen the first"
    );
    let second = meta.open_exclusive(file.put, SECOND, first).unwrap();
    assert!(second > first);
    assert_eq!(meta.sessions(), Ok(vec![(file.put, SECOND)]));
    meta.close_exclusive(file.put, FIRST).unwrap();
    let present = meta.exclusive(file.put).unwrap();
    assert_eq!(
        (present.token, present.session),
        (second, Some(SECOND)),
        "a late message of a displaced session ends no other"
    );
    meta.close_exclusive(file.put, SECOND).unwrap();
    let present = meta.exclusive(file.put).unwrap();
    assert_eq!(
        (present.token, present.session),
        (second, None),
        "the token never goes back"
    );
}

#[test]
fn a_token_follows_its_file_and_ends_with_it() {
    let (meta, pool) = cluster();
    let file = one_file(&meta, &pool, "f");
    let token = meta
        .open_exclusive(file.put, FIRST, FencingToken::default())
        .unwrap();
    meta.rename((file.put, "f"), (0, 131), "g", Existing::Stays)
        .unwrap();
    assert_eq!(meta.exclusive(file.put).unwrap().token, token);
    let refused = meta.remove_file("g", file.put, (1, 129));
    assert_eq!(refused, Err(MetaError::InUse("g".to_owned())));
    meta.close_exclusive(file.put, FIRST).unwrap();
    meta.remove_file("g", file.put, (1, 130)).unwrap();
    assert_eq!(meta.sessions(), Ok(vec![]));
    meta.close_exclusive(file.put, FIRST).unwrap();
    assert_eq!(meta.check(), Ok(vec![]));
}
