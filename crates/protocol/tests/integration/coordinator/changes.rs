//! Changes of names and inodes that clients follow: none is left out, no request waits for ever, and what a coordinator
//! holds for them is bounded.

use crate::coordinator::bed::{Bed, cause};
use futures::FutureExt;
use gabion_layout::NodeId;
use gabion_meta::{
    AttributeChange, Changed, DirectoryId, Existing, Inode, MetaError, NewAttributes,
};
use gabion_protocol::message::{
    CHANGES_WAIT_MS, Cause, Change, ChangePage, ChangePlace, CoordinatorReply, ask,
};
use std::collections::BTreeSet;

const ROOT: Inode = Inode::Directory(DirectoryId::ROOT);
/// Changes that a coordinator keeps, and those of a reply.
const KEPT_COUNT: usize = 16_384;
const PAGE_COUNT: usize = 512;
/// Requests that may wait.
const ASKING_COUNT: usize = 4_096;

fn page(reply: CoordinatorReply) -> ChangePage {
    match reply {
        CoordinatorReply::Changes(page) => page,
        other => panic!("{other:?}"),
    }
}

/// The present place. It is answered at once, because the first question is behind no place.
fn here(bed: &mut Bed) -> ChangePlace {
    let first = page(bed.ask(ask::Changes(ChangePlace::default())));
    assert_eq!(first.changes, None, "earlier changes are unknown");
    first.place
}

fn set_mode(bed: &mut Bed, inode: Inode, mode: u32, number: u64) {
    let seen = match bed.ask(ask::StatInode(inode)) {
        CoordinatorReply::Inode(status) => status.attributes.version,
        other => panic!("{other:?}"),
    };
    let mode = Some(mode);
    let set = ask::SetAttributes {
        inode,
        seen,
        number,
        change: AttributeChange {
            mode,
            ..AttributeChange::default()
        },
    };
    let reply = bed.ask(set);
    assert!(
        matches!(reply, CoordinatorReply::Attributes(_)),
        "{reply:?}"
    );
}

fn make_directory(bed: &mut Bed, name: &str, number: u64) {
    let make = ask::MakeDirectory {
        at: name.into(),
        attributes: NewAttributes::DIRECTORY,
        number,
    };
    assert_eq!(bed.ask(make), CoordinatorReply::Done);
}

#[test]
fn a_request_is_answered_when_a_change_is_made_and_has_its_number() {
    let mut bed = Bed::three_racks();
    bed.put("f", 1);
    let place = here(&mut bed);
    let waiting = bed.begin(ask::Changes(place));
    bed.pass(1_000);
    assert_eq!(waiting.take(), None);
    set_mode(&mut bed, ROOT, 0o700, 77);
    bed.pass(100);
    let told = page(waiting.take().expect("there is a change"));
    let changed = Changed::Inode(ROOT);
    let number = Some(77);
    assert_eq!(told.changes, Some(vec![Change { number, changed }]));
    // From there on there is nothing, until the time of the request is over.
    let waiting = bed.begin(ask::Changes(told.place));
    bed.pass(CHANGES_WAIT_MS - 1_000);
    assert_eq!(waiting.take(), None);
    bed.pass(1_100);
    let none = page(waiting.take().expect("its time is over"));
    assert_eq!((none.place, none.changes), (told.place, Some(Vec::new())));
}

#[test]
fn a_rename_over_a_file_tells_of_both_names_and_files() {
    let mut bed = Bed::three_racks();
    let put_of = |bed: &mut Bed, name: &str| {
        bed.put(name, 1);
        let name = name.to_owned();
        match bed.ask(ask::Lookup { name }) {
            CoordinatorReply::File(layout) => layout.file.put,
            other => panic!("{other:?}"),
        }
    };
    let (from, to) = (put_of(&mut bed, "from"), put_of(&mut bed, "to"));
    let place = here(&mut bed);
    let rename = ask::Rename {
        file: from,
        from: "from".into(),
        generation: 0,
        number: 5,
        to: "to".into(),
        existing: Existing::IsReplaced,
    };
    assert_eq!(bed.ask(rename), CoordinatorReply::Done);
    let told = page(bed.ask(ask::Changes(place))).changes.expect("all");
    let told: BTreeSet<Changed> = told.into_iter().map(|change| change.changed).collect();
    let name = |name: &str| Changed::Name {
        directory: DirectoryId::ROOT,
        name: name.to_owned(),
    };
    let files = [from, to].map(|put| Changed::Inode(Inode::File(put)));
    for changed in [name("from"), name("to")].iter().chain(&files) {
        assert!(told.contains(changed), "{changed:?} is not in {told:?}");
    }
}

#[test]
fn who_is_far_behind_gets_pages_or_is_told_that_anything_may_have_changed() {
    let mut bed = Bed::three_racks();
    let start = here(&mut bed);
    // Each makes a row of a directory, and one of the root if its time is another.
    let mut number = 0;
    let mut make = |bed: &mut Bed, count: usize| {
        for _ in 0..count {
            number += 1;
            make_directory(bed, &format!("d{number}"), number);
        }
    };
    make(&mut bed, PAGE_COUNT + 1);
    let first = page(bed.ask(ask::Changes(start)));
    assert_eq!(first.changes.expect("all are kept").len(), PAGE_COUNT);
    let mut place = first.place;
    let mut numbers = BTreeSet::new();
    loop {
        let next = page(bed.ask(ask::Changes(place)));
        let changes = next.changes.expect("all are kept");
        if changes.is_empty() {
            break;
        }
        numbers.extend(changes.into_iter().filter_map(|change| change.number));
        place = next.place;
    }
    assert!(
        numbers.contains(&(PAGE_COUNT as u64 + 1)),
        "the last is told"
    );
    make(&mut bed, KEPT_COUNT);
    let reply = page(bed.ask(ask::Changes(start)));
    assert_eq!(reply.changes, None, "the first are not kept");
    assert_ne!(reply.place, start);
}

#[test]
fn another_run_knows_nothing_of_the_changes_before() {
    let mut bed = Bed::three_racks();
    make_directory(&mut bed, "d", 1);
    let place = here(&mut bed);
    bed.restart();
    for node in 0..9 {
        bed.rejoin(NodeId(node), Vec::new());
    }
    let reply = page(bed.ask(ask::Changes(place)));
    assert_eq!(reply.changes, None);
    assert_ne!(reply.place.run, place.run);
}

#[test]
fn a_coordinator_that_may_not_lead_answers_no_one() {
    let mut bed = Bed::three_racks();
    let place = here(&mut bed);
    let waiting = bed.begin(ask::Changes(place));
    bed.store().depose(Some(MetaError::Away {
        reason: "test".to_owned(),
    }));
    bed.pass_in_silence(CHANGES_WAIT_MS + 1_000);
    let reply = waiting.take().expect("its time is over");
    assert!(matches!(reply, CoordinatorReply::Busy(_)), "{reply:?}");
}

#[test]
fn requests_that_wait_are_limited_and_counted() {
    let mut bed = Bed::three_racks();
    let place = here(&mut bed);
    let waiting: Vec<_> = (0..ASKING_COUNT)
        .map(|_| bed.begin(ask::Changes(place)))
        .collect();
    assert_eq!(cause(bed.ask(ask::Changes(place))), Cause::Failure);
    let count = |bed: &Bed| {
        let figures = bed.coordinator.figures().now_or_never();
        let figures = figures.expect("it waits for nothing");
        figures.expect("the metadata are whole").follower_count
    };
    assert_eq!(count(&bed), ASKING_COUNT as u64);
    make_directory(&mut bed, "d", 1);
    bed.pass(2_000);
    for slot in waiting {
        let told = page(slot.take().expect("there is a change"));
        assert!(!told.changes.expect("all are kept").is_empty());
    }
    assert_eq!(count(&bed), 0);
}
