//! Hard links, symbolic links and user attributes: requests that are repeated or late, and what each is told.

use crate::coordinator::bed::{Bed, cause};
use gabion_meta::{
    AttributeChange, DirectoryEntry, DirectoryId, Existing, Inode, InodeStatus, Kind,
    NewAttributes, PutId, RelativePath, SeenName,
};
use gabion_protocol::message::{Cause, CoordinatorReply, ask};
use std::collections::BTreeMap;

fn status(bed: &mut Bed, at: impl Into<RelativePath>) -> InodeStatus {
    match bed.ask(ask::LookupInode { at: at.into() }) {
        CoordinatorReply::Inode(status) => *status,
        other => panic!("{other:?}"),
    }
}

fn file(bed: &mut Bed, at: &str) -> PutId {
    match status(bed, at).inode {
        Inode::File(put) => put,
        Inode::Directory(id) => panic!("{id:?}"),
    }
}

fn link(file: PutId, generation: u64, to: &str) -> ask::Link {
    ask::Link {
        file,
        generation,
        number: number(1, generation, to),
        to: to.into(),
    }
}

fn remove(file: PutId, generation: u64, at: &str) -> ask::RemoveFile {
    ask::RemoveFile {
        at: at.into(),
        file,
        generation,
        number: number(2, generation, at),
    }
}

/// The number of a change: a request of another kind, with another name or generation is another change.
fn number(kind: u64, generation: u64, name: &str) -> u64 {
    let name: u64 = name.bytes().map(u64::from).sum();
    kind << 32 | generation << 16 | name
}

#[test]
fn a_file_goes_with_its_last_name_and_no_late_request_takes_another_name_away() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    let put = file(&mut bed, "f");
    for _ in 0..2 {
        // The first answer was lost.
        assert_eq!(bed.ask(link(put, 0, "d/g")), CoordinatorReply::Done);
    }
    assert_eq!(status(&mut bed, "d/g").link_count, 2);
    let found = bed.ask(ask::Lookup {
        name: "d/g".to_owned(),
    });
    let CoordinatorReply::File(found) = found else {
        panic!("{found:?}")
    };
    assert_eq!((found.file.put, found.file.name.as_str()), (put, "d/g"));
    assert_eq!(cause(bed.ask(link(put, 0, "h"))), Cause::Stale);
    assert_eq!(cause(bed.ask(link(put, 1, "f"))), Cause::Exists);
    for _ in 0..2 {
        let removed = bed.ask(remove(put, 1, "f"));
        assert_eq!(removed, CoordinatorReply::Done);
    }
    assert_eq!(status(&mut bed, "d/g").link_count, 1);
    // The file has the name again. A copy of the removal arrives, and another one that names the same state.
    assert_eq!(bed.ask(link(put, 2, "f")), CoordinatorReply::Done);
    let late = remove(put, 1, "f");
    assert_eq!(bed.ask(late.clone()), CoordinatorReply::Done);
    let other = ask::RemoveFile { number: 99, ..late };
    assert_eq!(cause(bed.ask(other)), Cause::Stale);
    assert_eq!(status(&mut bed, "f").link_count, 2);
    assert_eq!(bed.ask(remove(put, 3, "d/g")), CoordinatorReply::Done);
    bed.take_log();
    assert_eq!(bed.ask(remove(put, 4, "f")), CoordinatorReply::Done);
    assert_eq!(
        bed.ask(ask::StatInode(Inode::File(put))),
        CoordinatorReply::Gone
    );
    bed.pass(10_000);
    let log = bed.take_log();
    let words = crate::coordinator::bed::words(&log);
    let removed = words.iter().filter(|(_, word)| *word == "remove");
    assert_eq!(removed.count(), stripe.nodes.len());
}

#[test]
fn a_rename_changes_the_name_that_it_names() {
    let mut bed = Bed::three_racks();
    bed.put("a", 1);
    bed.put("x", 1);
    let put = file(&mut bed, "a");
    assert_eq!(bed.ask(link(put, 0, "b")), CoordinatorReply::Done);
    let rename = |generation, (from, to): (&str, &str), existing| ask::Rename {
        file: put,
        from: from.into(),
        generation,
        number: number(3, generation, to),
        to: to.into(),
        existing,
    };
    // Two names of one file stay, whichever is named first.
    let same = bed.ask(rename(1, ("a", "b"), Existing::IsReplaced));
    assert_eq!(same, CoordinatorReply::Done);
    assert_eq!(status(&mut bed, "a").link_count, 2);
    let missing = bed.ask(rename(1, ("c", "d"), Existing::Stays));
    assert_eq!(cause(missing), Cause::Stale);
    for _ in 0..2 {
        let renamed = bed.ask(rename(1, ("b", "x"), Existing::IsReplaced));
        assert_eq!(renamed, CoordinatorReply::Done);
    }
    assert_eq!(file(&mut bed, "x"), put);
    assert_eq!(file(&mut bed, "a"), put);
    let gone = bed.ask(ask::LookupInode { at: "b".into() });
    assert_eq!(cause(gone), Cause::NotFound);
}

#[test]
fn an_exchange_is_made_once_and_keeps_other_names() {
    let mut bed = Bed::three_racks();
    bed.put("a", 1);
    bed.put("d/x", 1);
    let (put, other) = (file(&mut bed, "a"), file(&mut bed, "d/x"));
    assert_eq!(bed.ask(link(put, 0, "b")), CoordinatorReply::Done);
    let seen = |bed: &mut Bed, at: &str| {
        let status = status(bed, at);
        SeenName {
            at: at.into(),
            inode: status.inode,
            generation: status.generation,
        }
    };
    let exchange = |names, number| ask::ExchangeNames { names, number };
    let names = [seen(&mut bed, "a"), seen(&mut bed, "b")];
    assert_eq!(bed.ask(exchange(names, 301)), CoordinatorReply::Done);
    let names = [seen(&mut bed, "b"), seen(&mut bed, "d/x")];
    for _ in 0..2 {
        // The first answer was lost.
        let exchanged = bed.ask(exchange(names.clone(), 302));
        assert_eq!(exchanged, CoordinatorReply::Done);
        assert_eq!(file(&mut bed, "b"), other);
        assert_eq!((file(&mut bed, "a"), file(&mut bed, "d/x")), (put, put));
    }
    assert_eq!(cause(bed.ask(exchange(names, 303))), Cause::Stale);
    // The file behind the directory's name has gone up, and the directory lies where it was.
    let names = [seen(&mut bed, "d"), seen(&mut bed, "b")];
    assert_eq!(bed.ask(exchange(names, 304)), CoordinatorReply::Done);
    assert_eq!((file(&mut bed, "d"), file(&mut bed, "b/x")), (other, put));
    let names = [seen(&mut bed, "b"), seen(&mut bed, "b/x")];
    assert_eq!(cause(bed.ask(exchange(names, 305))), Cause::Invalid);
}

#[test]
fn of_two_clients_that_change_a_name_alike_one_is_refused() {
    let mut bed = Bed::three_racks();
    bed.put("f", 1);
    let put = file(&mut bed, "f");
    let other = |number, link: ask::Link| ask::Link { number, ..link };
    assert_eq!(bed.ask(link(put, 0, "lock")), CoordinatorReply::Done);
    assert_eq!(cause(bed.ask(other(7, link(put, 0, "lock")))), Cause::Stale);
    // It looks again.
    assert_eq!(
        cause(bed.ask(other(7, link(put, 1, "lock")))),
        Cause::Exists
    );
    // The first one's answer was lost, and the file has one more name since.
    assert_eq!(bed.ask(link(put, 1, "more")), CoordinatorReply::Done);
    assert_eq!(bed.ask(link(put, 0, "lock")), CoordinatorReply::Done);
    let claim = |number, generation| ask::Rename {
        file: put,
        from: "f".into(),
        generation,
        number,
        to: "claimed".into(),
        existing: Existing::Stays,
    };
    assert_eq!(bed.ask(claim(8, 2)), CoordinatorReply::Done);
    assert_eq!(cause(bed.ask(claim(9, 2))), Cause::Stale);
    assert_eq!(bed.ask(claim(8, 2)), CoordinatorReply::Done);
    // Its name was changed, so it was not removed.
    let unlink = remove(put, 2, "f");
    assert_eq!(cause(bed.ask(unlink)), Cause::Stale);
    let twice = remove(put, 3, "more");
    assert_eq!(bed.ask(twice.clone()), CoordinatorReply::Done);
    let second = ask::RemoveFile {
        number: 10,
        ..twice
    };
    assert_eq!(cause(bed.ask(second)), Cause::Stale);
    let make = |number| ask::MakeDirectory {
        at: "d/e".into(),
        attributes: NewAttributes::DIRECTORY,
        number,
    };
    assert_eq!(bed.ask(make(11)), CoordinatorReply::Done);
    let Inode::Directory(directory) = status(&mut bed, "d/e").inode else {
        panic!("it was made");
    };
    let remove = |number| ask::RemoveDirectory {
        directory,
        generation: 0,
        number,
    };
    assert_eq!(bed.ask(remove(12)), CoordinatorReply::Done);
    assert_eq!(cause(bed.ask(remove(13))), Cause::NotFound);
    assert_eq!(bed.ask(remove(12)), CoordinatorReply::Done);
    // A late copy makes nothing again.
    assert_eq!(bed.ask(make(11)), CoordinatorReply::Done);
    assert_eq!(
        cause(bed.ask(ask::LookupInode { at: "d/e".into() })),
        Cause::NotFound
    );
}

#[test]
fn a_symbolic_link_is_no_file_to_open_and_takes_no_bytes() {
    let mut bed = Bed::three_racks();
    bed.put("f", 1);
    let make = |number, target: &str| ask::MakeSymlink {
        at: "l".into(),
        target: target.to_owned(),
        pool: None,
        attributes: NewAttributes::FILE,
        number,
    };
    for _ in 0..2 {
        assert_eq!(bed.ask(make(1, "../f")), CoordinatorReply::Done);
    }
    assert_eq!(cause(bed.ask(make(2, "../f"))), Cause::Exists);
    let removed = file(&mut bed, "l");
    assert_eq!(bed.ask(remove(removed, 0, "l")), CoordinatorReply::Done);
    // A copy of the first request arrives when the link is gone: it was made once.
    assert_eq!(bed.ask(make(1, "../f")), CoordinatorReply::Done);
    let gone = bed.ask(ask::LookupInode { at: "l".into() });
    assert_eq!(cause(gone), Cause::NotFound);
    assert_eq!(bed.ask(make(3, "../f")), CoordinatorReply::Done);
    for wrong in ["", "a\0b", &"x".repeat(4096)] {
        assert_eq!(cause(bed.ask(make(4, wrong))), Cause::Invalid);
    }
    let known = status(&mut bed, "l");
    assert_eq!((known.kind, known.size_bytes), (Kind::Symlink, 4));
    let put = file(&mut bed, "l");
    let target = bed.ask(ask::ReadLink(put));
    assert_eq!(target, CoordinatorReply::Target(Some("../f".to_owned())));
    let name = "l".to_owned();
    assert_eq!(cause(bed.ask(ask::Lookup { name })), Cause::IsASymlink);
    let grown = bed.ask(ask::Grow {
        file: put,
        size_bytes: 10,
        truncation_count: 0,
        from: None,
        token: gabion_meta::FencingToken::default(),
    });
    assert_eq!(cause(grown), Cause::IsASymlink);
    let other = file(&mut bed, "f");
    assert_eq!(
        bed.ask(ask::ReadLink(other)),
        CoordinatorReply::Target(None)
    );
}

/// The names in a directory, one page a name.
fn names_in(bed: &mut Bed, directory: DirectoryId) -> Vec<String> {
    let (mut names, mut after) = (Vec::new(), None);
    loop {
        let page = bed.ask(ask::ReadDirectory {
            directory,
            after,
            limit: 1,
        });
        let CoordinatorReply::Entries { entries, is_cut } = page else {
            panic!("{page:?}")
        };
        after = entries.last().map(DirectoryEntry::place);
        names.extend(entries.into_iter().map(|entry| entry.name));
        if !is_cut {
            break;
        }
    }
    names
}

#[test]
fn names_in_a_directory_are_found_whatever_its_path_is_by_now() {
    let mut bed = Bed::three_racks();
    bed.put("d/f", 1);
    let known = status(&mut bed, "d");
    let Inode::Directory(directory) = known.inode else {
        panic!("{known:?}");
    };
    let rename = ask::RenameDirectory {
        directory,
        generation: known.generation,
        number: 1,
        to: "e".into(),
        existing: Existing::Stays,
    };
    assert_eq!(bed.ask(rename), CoordinatorReply::Done);
    let below = |path: &str| RelativePath::new(directory, path);
    let put = file(&mut bed, "e/f");
    assert_eq!(status(&mut bed, below("f")).inode, Inode::File(put));
    assert_eq!(status(&mut bed, below("")).inode, known.inode);
    for name in ["a", "g"] {
        let made = bed.ask(ask::MakeDirectory {
            at: below(name),
            attributes: NewAttributes::DIRECTORY,
            number: number(4, 0, name),
        });
        assert_eq!(made, CoordinatorReply::Done);
    }
    assert_eq!(names_in(&mut bed, directory), ["a", "f", "g"]);
    for name in ["a", "g"] {
        let Inode::Directory(directory) = status(&mut bed, below(name)).inode else {
            panic!("it was made");
        };
        let removed = bed.ask(ask::RemoveDirectory {
            directory,
            generation: 0,
            number: number(5, 0, name),
        });
        assert_eq!(removed, CoordinatorReply::Done);
    }
    assert_eq!(bed.ask(remove(put, 0, "e/f")), CoordinatorReply::Done);
    let removed = bed.ask(ask::RemoveDirectory {
        directory,
        generation: 1,
        number: 2,
    });
    assert_eq!(removed, CoordinatorReply::Done);
    let begun = bed.ask(ask::BeginPut {
        at: below("f"),
        existing: Existing::Stays,
        pool: None,
        size_bytes: 0,
        attributes: NewAttributes::FILE,
        whole: None,
        opener: None,
    });
    assert_eq!(cause(begun), Cause::NotFound, "the directory is gone");
    let read = bed.ask(ask::ReadDirectory {
        directory,
        after: None,
        limit: 9,
    });
    assert_eq!(cause(read), Cause::NotFound);
}

#[test]
fn user_attributes_have_limits_and_go_with_their_inode() {
    let mut bed = Bed::three_racks();
    bed.put("d/f", 1);
    for path in ["d/f", "d"] {
        let inode = status(&mut bed, path).inode;
        let all = |bed: &mut Bed| match bed.ask(ask::UserAttributes(inode)) {
            CoordinatorReply::UserAttributes { version, user } => (version, user),
            other => panic!("{other:?}"),
        };
        let mut number = path.len() as u64 * 100;
        let mut set = |bed: &mut Bed, name: &str, value: Option<Vec<u8>>| {
            number += 1;
            let seen = all(bed).0;
            let user = BTreeMap::from([(name.to_owned(), value)]);
            bed.ask(ask::SetAttributes {
                inode,
                seen,
                number,
                change: AttributeChange {
                    user,
                    ..AttributeChange::default()
                },
            })
        };
        let most = vec![7; (64 << 10) - 1];
        for (name, value) in [("a", most.clone()), ("a", vec![1]), ("b", vec![])] {
            let done = set(&mut bed, name, Some(value));
            assert!(matches!(done, CoordinatorReply::Attributes(_)), "{done:?}");
        }
        let both = BTreeMap::from([("a".to_owned(), vec![1]), ("b".to_owned(), vec![])]);
        assert_eq!(all(&mut bed).1, both);
        assert_eq!(cause(set(&mut bed, "c", Some(most))), Cause::TooLarge);
        for wrong in ["", "x\0", &"n".repeat(256)] {
            assert_eq!(cause(set(&mut bed, wrong, Some(vec![]))), Cause::Invalid);
        }
        let gone = set(&mut bed, "a", None);
        assert!(matches!(gone, CoordinatorReply::Attributes(_)), "{gone:?}");
        assert_eq!(all(&mut bed).1.into_keys().collect::<Vec<_>>(), ["b"]);
    }
    let put = file(&mut bed, "d/f");
    assert_eq!(bed.ask(remove(put, 0, "d/f")), CoordinatorReply::Done);
    let gone = bed.ask(ask::UserAttributes(Inode::File(put)));
    assert_eq!(cause(gone), Cause::Stale);
}
