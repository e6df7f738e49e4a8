//! Directories, renames and attributes.

use crate::coordinator::bed::{Bed, cause, look_up, refused};
use gabion_meta::{AttributeChange, DirectoryId, Existing, Inode, NewAttributes, PutId, WallTime};
use gabion_protocol::message::{Cause, CoordinatorReply, ask};

#[test]
fn a_directory_moves_with_its_files_and_a_removal_by_the_old_path_spares_them() {
    let mut bed = Bed::three_racks();
    let path = |path: &str| path.to_owned();
    let make = |number| ask::MakeDirectory {
        at: "d/e".into(),
        attributes: NewAttributes::DIRECTORY,
        number,
    };
    for _ in 0..2 {
        // The first answer was lost.
        assert_eq!(bed.ask(make(1)), CoordinatorReply::Done);
    }
    bed.put("d/e/f", 1);
    assert_eq!(cause(bed.ask(make(2))), Cause::Exists);
    let CoordinatorReply::Inode(status) = bed.ask(ask::LookupInode { at: "d".into() }) else {
        panic!("it is there");
    };
    let generation = status.generation;
    let Inode::Directory(directory) = status.inode else {
        panic!("{status:?}");
    };
    let remove = ask::RemoveDirectory {
        directory,
        generation,
        number: 203,
    };
    assert_eq!(cause(bed.ask(remove.clone())), Cause::NotEmpty);
    let CoordinatorReply::File(file) = bed.ask(ask::Lookup {
        name: path("d/e/f"),
    }) else {
        panic!("it is there");
    };
    let rename = |to: &str| ask::RenameDirectory {
        directory,
        generation,
        number: 204,
        to: to.into(),
        existing: Existing::Stays,
    };
    for below_itself in ["d/e/x", "d/e/f/x"] {
        assert_eq!(cause(bed.ask(rename(below_itself))), Cause::Invalid);
    }
    for _ in 0..2 {
        assert_eq!(
            bed.ask(rename("g")),
            CoordinatorReply::Done,
            "may be repeated"
        );
    }
    let late = ask::RemoveFile {
        at: "d/e/f".into(),
        file: file.file.put,
        generation: 0,
        number: 205,
    };
    assert_eq!(cause(bed.ask(late)), Cause::Stale);
    assert_eq!(cause(bed.ask(remove)), Cause::Stale);
    assert!(matches!(
        bed.ask(ask::Lookup { name: path("g/e/f") }),
        CoordinatorReply::File(found) if found.file.put == file.file.put
    ));
    for (path, problem) in [
        ("g/e/f/h", Cause::NotADirectory),
        ("g/e", Cause::IsADirectory),
    ] {
        assert_eq!(cause(look_up(&mut bed, path)), problem);
    }
}

#[test]
fn a_change_of_attributes_that_arrives_again_undoes_no_later_one() {
    let mut bed = Bed::three_racks();
    bed.put("d/f", 1);
    for (at, path) in ["d/f", "d", ""].into_iter().enumerate() {
        let inode_of = |reply| match reply {
            CoordinatorReply::Inode(status) => (status.inode, status.attributes),
            other => panic!("{other:?}"),
        };
        let look_up = || ask::LookupInode { at: path.into() };
        let (inode, first) = inode_of(bed.ask(look_up()));
        let set = |seen, number, mode| ask::SetAttributes {
            inode,
            seen: first.version + seen,
            number: number + ((at as u64) << 40),
            change: AttributeChange {
                mode: Some(mode),
                ..AttributeChange::default()
            },
        };
        let mode = |reply| match reply {
            CoordinatorReply::Attributes(attributes) => attributes.mode,
            other => panic!("{other:?}"),
        };
        assert_eq!(mode(bed.ask(set(0, 7, 0o600))), 0o600);
        let unaware = bed.ask(set(0, 8, 0o640));
        assert_eq!(
            cause(unaware),
            Cause::Stale,
            "its sender has not seen the first"
        );
        assert_eq!(mode(bed.ask(set(1, 8, 0o640))), 0o640);
        // The answer of the first was lost, and its client asks again, with or without a new look-up.
        for seen in [0, 2] {
            assert_eq!(mode(bed.ask(set(seen, 7, 0o600))), 0o640);
        }
        // A copy that is too late to be remembered: the numbers of later changes have come to the row of its own.
        for other in 0..16 {
            let number = 7 + ((1 + other) << 18);
            assert_eq!(mode(bed.ask(set(2 + other, number, 0o644))), 0o644);
        }
        assert_eq!(cause(bed.ask(set(0, 7, 0o600))), Cause::Stale);
        let (_, last) = inode_of(bed.ask(look_up()));
        assert_eq!((last.mode, last.version), (0o644, first.version + 18));
        assert_eq!((last.owner, last.created), (first.owner, first.created));
        assert_eq!(cause(bed.ask(set(18, 9, 0o10000))), Cause::Invalid);
    }
}

#[test]
fn what_is_gone_and_the_root_are_told_by_their_causes() {
    let mut bed = Bed::three_racks();
    bed.put("d/f", 1);
    let nowhere = ask::LookupInode { at: "d/g".into() };
    assert_eq!(cause(bed.ask(nowhere)), Cause::NotFound);
    let gone = ask::SetAttributes {
        inode: Inode::File(PutId(99)),
        seen: 0,
        number: 1,
        change: AttributeChange::default(),
    };
    assert_eq!(cause(bed.ask(gone)), Cause::Stale);
    let root = ask::RemoveDirectory {
        directory: DirectoryId::ROOT,
        generation: 0,
        number: 206,
    };
    assert_eq!(cause(bed.ask(root)), Cause::Invalid);
    let root = ask::RenameDirectory {
        directory: DirectoryId::ROOT,
        generation: 0,
        number: 207,
        to: "r".into(),
        existing: Existing::Stays,
    };
    assert_eq!(cause(bed.ask(root)), Cause::Invalid);
}

#[test]
fn attributes_that_no_inode_can_have_are_refused() {
    let mut bed = Bed::three_racks();
    let time = WallTime {
        seconds: 0,
        nanoseconds: 1_000_000_000,
    };
    for wrong in [
        NewAttributes {
            mode: 0o10000,
            ..NewAttributes::FILE
        },
        NewAttributes {
            owner: u32::MAX,
            ..NewAttributes::FILE
        },
        NewAttributes {
            group: u32::MAX,
            ..NewAttributes::FILE
        },
        NewAttributes {
            accessed: Some(time),
            ..NewAttributes::FILE
        },
        NewAttributes {
            modified: Some(time),
            ..NewAttributes::FILE
        },
    ] {
        let set = ask::SetAttributes {
            inode: Inode::Directory(DirectoryId::ROOT),
            seen: 0,
            number: 1,
            change: wrong.into(),
        };
        let refused = [
            bed.ask(set),
            bed.ask(ask::MakeDirectory {
                at: "x".into(),
                attributes: wrong,
                number: 1,
            }),
            bed.ask(ask::BeginPut {
                at: "x".into(),
                existing: Existing::Stays,
                pool: None,
                size_bytes: 1,
                attributes: wrong,
                whole: None,
                opener: None,
            }),
        ];
        assert_eq!(refused.map(cause), [Cause::Invalid; 3], "{wrong:?}");
    }
}

#[test]
fn a_renamed_file_is_found_by_its_new_name_and_by_its_put() {
    let mut bed = Bed::three_racks();
    let before = bed.put("f", 1);
    let CoordinatorReply::File(layout) = look_up(&mut bed, "f") else {
        panic!("it was stored")
    };
    let file = layout.file.put;
    let rename = |(from, generation): (&str, u64), to: &str| ask::Rename {
        file,
        from: from.into(),
        generation,
        number: generation << 8 | u64::from(to.as_bytes()[0]),
        to: to.into(),
        existing: Existing::Stays,
    };
    for _ in 0..2 {
        // The first answer was lost.
        assert_eq!(bed.ask(rename(("f", 0), "g")), CoordinatorReply::Done);
    }
    refused(&look_up(&mut bed, "f"), "there is no file 'f'");
    let CoordinatorReply::File(layout) = bed.ask(ask::LookupFile { file, offset: 0 }) else {
        panic!("it is still there")
    };
    assert_eq!((layout.file.name.as_str(), layout.stripes), ("g", before));
    bed.put("f", 1);
    refused(&bed.ask(rename(("g", 1), "f")), "file 'f' already exists");
    refused(
        &bed.ask(rename(("f", 0), "h")),
        "changed the names of 'g'; look it up again",
    );
}
