//! Inline files: their bytes and versions, repeated requests, and the move of their bytes to stripes.

use crate::fixture::{cluster_in, place, spec, take};
use gabion_layout::StripeId;
use gabion_meta::{
    ClusterId, Existing, FencingToken, FileRecord, Inline, InlineWrite, Inode, Limit, MemoryStore,
    Meta, MetaError, NewAttributes, PoolRecord, PoolSpec, PoolUse, PutId, QuotaChange, QuotaError,
    Rewrite, SizeChange, WallClock, WallTime,
};

/// The limit of the test's inline files.
const LIMIT: u64 = 2000;

fn cluster() -> (Meta<MemoryStore>, PoolRecord) {
    let (meta, _) = cluster_in(MemoryStore::new());
    let small = PoolSpec {
        name: "small".to_owned(),
        inline_bytes: LIMIT,
        ..spec()
    };
    let pool = meta.create_pool(&small).expect("a pool");
    (meta, pool)
}

fn put(
    meta: &Meta<MemoryStore>,
    pool: &PoolRecord,
    (name, existing): (&str, Existing),
    bytes: &[u8],
    number: u64,
) -> Result<PutId, MetaError> {
    let new = (name, existing, NewAttributes::FILE);
    let stored = meta.put_inline(new, pool.id, bytes, (number, 5));
    assert_eq!(meta.check(), Ok(Vec::new()));
    let (put, file) = stored?;
    assert_eq!(file, meta.file_of(put).ok(), "none if it is gone");
    Ok(put)
}

/// A cluster with the file `f` of these bytes.
fn with_file(bytes: &[u8]) -> (Meta<MemoryStore>, PoolRecord, PutId) {
    let (meta, pool) = cluster();
    let file = put(&meta, &pool, ("f", Existing::Stays), bytes, 1).expect("a free name");
    (meta, pool, file)
}

fn write(
    meta: &Meta<MemoryStore>,
    file: PutId,
    version: u64,
    (offset, bytes): (u64, &[u8]),
    number: u64,
) -> Result<FileRecord, MetaError> {
    let token = meta.exclusive(file)?.token;
    let write = InlineWrite {
        version,
        offset,
        bytes,
        token,
        number,
    };
    let written = meta.write_inline(file, &write);
    assert_eq!(meta.check(), Ok(Vec::new()));
    Ok(written?.expect("it is there"))
}

/// A change of extents of a file.
fn rewrite(offsets: &[u64], size: SizeChange, inline: Option<u64>) -> Rewrite {
    Rewrite {
        displaced: Vec::new(),
        offsets: offsets.to_vec(),
        copied: Vec::new(),
        size,
        inline,
        token: FencingToken::default(),
    }
}

fn used(meta: &Meta<MemoryStore>, pool: &PoolRecord) -> PoolUse {
    meta.quota(pool.id).expect("the pool is there").1
}

fn version(meta: &Meta<MemoryStore>, file: PutId) -> Option<Inline> {
    meta.file_of(file).expect("it is there").inline
}

const CHANGED: Result<(), MetaError> = Err(MetaError::FileChanged("its bytes have changed"));

#[test]
fn a_repeated_put_gives_the_same_file_whatever_has_become_of_it() {
    let (meta, pool, file) = with_file(b"first");
    let again = |number| put(&meta, &pool, ("f", Existing::Stays), b"first", number);
    assert_eq!(again(1), Ok(file));
    assert!(matches!(again(2), Err(MetaError::FileExists(_))));
    meta.rename((file, "f"), (0, 3), "g", Existing::Stays)
        .expect("g is free");
    assert_eq!(again(1), Ok(file));
    meta.remove_file("g", file, (1, 4)).expect("it is there");
    assert_eq!(again(1), Ok(file), "it was stored and removed");
    assert!(meta.files("", None, 9).unwrap().is_empty());
    let other = put(&meta, &pool, ("f", Existing::Stays), b"", 5).expect("the name is free");
    assert_ne!(other, file);
    assert_eq!(meta.inline_bytes(other), Ok(None));
}

#[test]
fn a_write_needs_the_version_that_the_file_has() {
    let (meta, _, file) = with_file(b"0123456789");
    let written = write(&meta, file, 1, (12, b"ab"), 7).expect("it is the version");
    assert_eq!(written.size_bytes, 14);
    let bytes = || meta.inline_bytes(file).unwrap().unwrap();
    assert_eq!(bytes(), b"0123456789\0\0ab");
    // The answer was lost, and another client has written since.
    write(&meta, file, 2, (0, b"XY"), 8).expect("it is the version");
    write(&meta, file, 1, (12, b"ab"), 7).expect("it was made");
    assert_eq!(bytes(), b"XY23456789\0\0ab");
    let gone = InlineWrite {
        version: 1,
        offset: 0,
        bytes: b"",
        token: FencingToken::default(),
        number: 7,
    };
    assert_eq!(meta.write_inline(PutId(99), &gone), Ok(None), "it was made");
    // A late copy of a request that was not made.
    let late = write(&meta, file, 1, (0, b"--"), 9);
    assert_eq!(late.map(drop), CHANGED);
    // Growths and truncations change the version, too.
    meta.grow(file, 20, 0).expect("it grows");
    assert_eq!(write(&meta, file, 3, (0, b"--"), 10).map(drop), CHANGED);
    let cut = meta
        .begin_replacement(file, &rewrite(&[], SizeChange::Exactly(3), None), &[], 5)
        .expect("it can be cut");
    meta.commit_replacement(cut.id).expect("it is cut");
    assert_eq!(bytes(), b"XY2");
    assert_eq!(write(&meta, file, 4, (0, b"--"), 11).map(drop), CHANGED);
    meta.grow(file, 5, 1).expect("it grows");
    assert_eq!(bytes(), b"XY2", "bytes behind them are zero");
    assert_eq!(meta.check(), Ok(Vec::new()));
}

#[test]
fn a_file_that_is_too_large_is_refused_and_stays_as_it_is() {
    let (meta, pool, file) = with_file(b"small");
    let large = vec![1; LIMIT as usize + 1];
    let name = ("g", Existing::Stays);
    assert_eq!(
        put(&meta, &pool, name, &large, 2),
        Err(MetaError::NotInline)
    );
    let main = meta
        .pool_named("main")
        .expect("a pool without inline files");
    assert_eq!(put(&meta, &main, name, b"", 2), Err(MetaError::NotInline));
    put(&meta, &pool, name, &large[1..], 2).expect("it is as large as may be");
    let needs_stripes = Err(MetaError::FileChanged("it needs stripes"));
    for offset in [LIMIT, u64::MAX] {
        let refused = write(&meta, file, 1, (offset, b"x"), 3);
        assert_eq!(refused.map(drop), needs_stripes);
    }
    assert_eq!(version(&meta, file).map(|inline| inline.version), Some(1));
}

#[test]
fn stripes_take_the_place_of_the_version_that_they_have() {
    let (meta, pool, file) = with_file(b"small");
    let whole = |inline| rewrite(&[0], SizeChange::AtLeast(4096), inline);
    let begin = |inline| meta.begin_replacement(file, &whole(inline), &[place(0)], 5);
    assert_eq!(begin(None).map(drop), CHANGED, "they lack its bytes");
    assert_eq!(begin(Some(2)).map(drop), CHANGED);
    let late = begin(Some(1)).expect("it is the version");
    write(&meta, file, 1, (0, b"S"), 2).expect("it is the version");
    let refused = meta.commit_replacement(late.id);
    assert_eq!(refused.map(drop), CHANGED, "they lack the write");
    assert_eq!(meta.abort_put(late.id), Ok(true));
    let moved = begin(Some(2)).expect("it is the version");
    let other = begin(Some(2)).expect("it is the version");
    meta.commit_replacement(moved.id).expect("they have all");
    assert_eq!(
        (version(&meta, file), meta.inline_bytes(file)),
        (None, Ok(None))
    );
    assert_eq!(used(&meta, &pool).bytes, 2 * 4096, "one put is open");
    assert_eq!(meta.commit_replacement(other.id).map(drop), CHANGED);
    assert_eq!(meta.abort_put(other.id), Ok(true));
    assert_eq!(used(&meta, &pool).bytes, 4096);
    assert_eq!(write(&meta, file, 2, (0, b"s"), 3).map(drop), CHANGED);
    assert_eq!(meta.check(), Ok(Vec::new()));
    // A file of which all stripes are gone is not inline again.
    let stripe: StripeId = meta.layout_of(file).unwrap().1[0].1.id;
    let empty = Rewrite {
        displaced: vec![(0, take(&meta, &[stripe])[0])],
        ..rewrite(&[], SizeChange::Exactly(0), None)
    };
    let cut = meta
        .begin_replacement(file, &empty, &[], 5)
        .expect("it can be cut");
    meta.commit_replacement(cut.id).expect("it is cut");
    assert_eq!(version(&meta, file), None);
}

#[test]
fn an_empty_file_gets_stripes_without_a_version() {
    let (meta, _, file) = with_file(b"");
    let far = rewrite(&[8192], SizeChange::AtLeast(9000), None);
    let begun = meta
        .begin_replacement(file, &far, &[place(0)], 5)
        .expect("nothing is lost");
    let other = meta
        .begin_replacement(file, &far, &[place(0)], 5)
        .expect("nothing is lost");
    meta.commit_replacement(begun.id).expect("nothing is lost");
    assert_eq!(version(&meta, file), None);
    let refused = meta.commit_replacement(other.id);
    assert!(
        matches!(refused, Err(MetaError::FileChanged(_))),
        "{refused:?}"
    );
}

#[test]
fn a_snapshot_and_a_clone_have_bytes_of_their_own() {
    let (meta, pool, file) = with_file(b"as it was");
    let tokens = meta.freeze(&[file]).expect("it is there");
    let source = (Inode::File(file), &tokens);
    assert!(matches!(
        write(&meta, file, 1, (0, b"no"), 2),
        Err(MetaError::Superseded { .. })
    ));
    meta.snapshot(source, "snapshot", true, (3, 5))
        .expect("a free name");
    meta.snapshot(source, "clone", false, (4, 5))
        .expect("a free name");
    meta.thaw(&[file]).expect("it is there");
    let of = |name: &str| meta.file(name).expect("it is there").put;
    write(&meta, file, 1, (0, b"IS"), 5).expect("it is thawed");
    let clone = version(&meta, of("clone")).expect("it is inline").version;
    write(&meta, of("clone"), clone, (6, b"new"), 6).expect("clones can be written");
    let snapshot = version(&meta, of("snapshot"))
        .expect("it is inline")
        .version;
    let refused = write(&meta, of("snapshot"), snapshot, (0, b"no"), 7);
    assert!(
        matches!(refused, Err(MetaError::Snapshot(_))),
        "{refused:?}"
    );
    let bytes = |file| meta.inline_bytes(file).unwrap().unwrap();
    assert_eq!(bytes(file), b"IS it was");
    assert_eq!(bytes(of("clone")), b"as it new");
    assert_eq!(bytes(of("snapshot")), b"as it was");
    assert_eq!(used(&meta, &pool).bytes, 27);
    for (name, number) in [("f", 8), ("snapshot", 9), ("clone", 10)] {
        meta.remove_file(name, of(name), (0, number))
            .expect("it is there");
        assert_eq!(meta.check(), Ok(Vec::new()));
    }
    assert_eq!(used(&meta, &pool), PoolUse { bytes: 0, files: 0 });
}

#[test]
fn inline_bytes_count_against_the_quota() {
    let (meta, pool, file) = with_file(&[7; 600]);
    let change = QuotaChange {
        bytes: Some(Limit::AtMost(1000)),
        files: Some(Limit::AtMost(2)),
    };
    meta.set_quota("small", change).expect("the pool is there");
    let over = |result: Result<(), MetaError>| {
        let Err(MetaError::Quota(QuotaError::Bytes { used, more, .. })) = result else {
            panic!("not refused for its bytes: {result:?}");
        };
        (used, more)
    };
    let new = ("g", Existing::Stays);
    assert_eq!(
        over(put(&meta, &pool, new, &[1; 500], 2).map(drop)),
        (600, 500)
    );
    assert_eq!(
        over(write(&meta, file, 1, (600, &[1; 401]), 3).map(drop)),
        (600, 401)
    );
    write(&meta, file, 1, (0, &[1; 600]), 3).expect("it takes nothing more");
    put(&meta, &pool, new, &[1; 400], 2).expect("there is room");
    let full = put(&meta, &pool, ("h", Existing::Stays), b"", 4);
    assert!(
        matches!(full, Err(MetaError::Quota(QuotaError::Files { .. }))),
        "{full:?}"
    );
    put(&meta, &pool, ("f", Existing::IsReplaced), &[1; 600], 4).expect("the old bytes go");
    assert_eq!(
        used(&meta, &pool),
        PoolUse {
            bytes: 1000,
            files: 2
        }
    );
}

#[test]
fn a_late_copy_of_a_refused_request_has_no_effect() {
    let (meta, pool, file) = with_file(b"bytes");
    let new = ("f", Existing::Stays);
    let refused = put(&meta, &pool, new, b"other", 2);
    assert!(
        matches!(refused, Err(MetaError::FileExists(_))),
        "{refused:?}"
    );
    assert_eq!(meta.refuse(2), Ok(false));
    assert_eq!(meta.refuse(3), Ok(false));
    meta.remove_file("f", file, (0, 4)).expect("it is there");
    assert_eq!(
        put(&meta, &pool, new, b"other", 2),
        Err(MetaError::WasRefused)
    );
    let other = put(&meta, &pool, new, b"other", 5).expect("the name is free");
    assert_eq!(
        write(&meta, other, 1, (0, b"O"), 3).map(drop),
        Err(MetaError::WasRefused)
    );
    assert_eq!(meta.refuse(5), Ok(true), "it was made");
    assert_eq!(put(&meta, &pool, new, b"other", 5), Ok(other));
    assert_eq!(meta.file_made_by(2), Ok(None));
}

/// The answer to the first request may be lost.
#[test]
fn a_repetition_of_a_refused_request_hears_the_reason_as_long_as_it_holds() {
    let (meta, pool, file) = with_file(b"bytes");
    let new = ("f", Existing::Stays);
    let taken = Err(MetaError::FileExists("f".to_owned()));
    assert_eq!(put(&meta, &pool, new, b"other", 2), taken);
    assert_eq!(meta.refuse(2), Ok(false));
    assert_eq!(put(&meta, &pool, new, b"other", 2), taken);

    let limit = |most: Limit| {
        let change = QuotaChange {
            bytes: Some(most),
            files: None,
        };
        meta.set_quota("small", change).expect("it is there");
    };
    limit(Limit::AtMost(8));
    let is_full = |refused: &MetaError| matches!(refused, MetaError::Quota(_));
    let put_more = || put(&meta, &pool, ("g", Existing::Stays), b"more", 3);
    let write_more = || write(&meta, file, 1, (5, b"more"), 4).map(drop);
    for _ in 0..2 {
        let refused = put_more().expect_err("the quota is full");
        assert!(is_full(&refused), "{refused:?}");
        assert_eq!(meta.refuse(3), Ok(false));
        let refused = write_more().expect_err("the quota is full");
        assert!(is_full(&refused), "{refused:?}");
        assert_eq!(meta.refuse(4), Ok(false));
    }
    limit(Limit::Unlimited);
    assert_eq!(put_more(), Err(MetaError::WasRefused));
    assert_eq!(write_more(), Err(MetaError::WasRefused));
    assert!(meta.file("g").is_err());
    assert_eq!(meta.inline_bytes(file), Ok(Some(b"bytes".to_vec())));
}

#[test]
fn an_append_gets_its_bytes_when_the_file_grows() {
    let (meta, pool, file) = with_file(b"log");
    let change = QuotaChange {
        bytes: Some(Limit::AtMost(103)),
        files: None,
    };
    meta.set_quota("small", change).expect("the pool is there");
    let token = FencingToken::default();
    let grow =
        |from: u64, by: u64, number: u64| meta.grow_from(file, (from, by), (number, 0), token);
    let refused = grow(3, 101, 1);
    assert!(matches!(refused, Err(MetaError::Quota(_))), "{refused:?}");
    let (grown, is_done) = grow(3, 100, 1).expect("there is room");
    assert_eq!(
        (grown.size_bytes, is_done, used(&meta, &pool).bytes),
        (103, true, 103)
    );
    let seen = grown.inline.expect("it is inline");
    assert_eq!(seen.length_bytes, 103);
    write(&meta, file, seen.version, (3, &[1; 100]), 2).expect("the bytes are its own");
    // One that outgrows the limit gets stripes, and a hole until then.
    let change = QuotaChange {
        bytes: Some(Limit::Unlimited),
        files: None,
    };
    meta.set_quota("small", change).expect("the pool is there");
    let (grown, _) = grow(103, LIMIT, 3).expect("there is no quota");
    assert_eq!(grown.inline.map(|inline| inline.length_bytes), Some(103));
    // Its inline bytes may be overwritten, and no others written.
    let version = grown.inline.expect("it is inline").version;
    write(&meta, file, version, (0, &[2; 103]), 4).expect("it takes nothing more");
    let needs_stripes = Err(MetaError::FileChanged("it needs stripes"));
    assert_eq!(
        write(&meta, file, version + 1, (1, &[3; 103]), 5).map(drop),
        needs_stripes
    );
}

#[test]
fn a_restarted_coordinator_finds_the_bytes_and_the_numbers() {
    let (meta, pool, file) = with_file(b"bytes");
    let meta = Meta::open(meta.into_store(), WallClock::stopped(WallTime::default()))
        .expect("the cluster");
    assert_eq!(meta.cluster(), ClusterId(0xfeed));
    assert_eq!(meta.inline_bytes(file), Ok(Some(b"bytes".to_vec())));
    assert_eq!(
        put(&meta, &pool, ("f", Existing::Stays), b"bytes", 1),
        Ok(file)
    );
    assert_eq!(meta.file_made_by(1), Ok(Some(file)));
    assert_eq!(meta.file_made_by(2), Ok(None));
}
