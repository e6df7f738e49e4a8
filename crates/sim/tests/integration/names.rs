//! Views of names that clients may have, and views that they may not.

use gabion_meta::PutId;
use gabion_sim::names::{Misnomer, Names, Span};

const NAME: &str = "name";
const FILE: PutId = PutId(1);
const OTHER: PutId = PutId(2);

fn span(called_us: u64, answered_us: u64) -> Span {
    Span {
        called_us,
        answered_us,
    }
}

/// A file that was put from 10 to 20.
fn there() -> Names {
    let mut names = Names::default();
    names.putting(NAME, FILE, 10);
    names
        .is_there(NAME, FILE, span(10, 20))
        .expect("the file may be there");
    names
}

#[test]
fn files_come_and_go() {
    let mut names = there();
    assert_eq!(names.is_there(NAME, FILE, span(30, 31)), Ok(()));
    let removal = names.removing(NAME, FILE, 40);
    assert_eq!(names.is_there(NAME, FILE, span(41, 42)), Ok(()));
    assert_eq!(names.is_not_there(NAME, span(41, 43)), Ok(()));
    assert_eq!(names.removed(NAME, removal, 44), Ok(()));
    names.putting(NAME, OTHER, 50);
    assert_eq!(names.is_not_there(NAME, span(51, 52)), Ok(()));
    assert_eq!(names.is_there(NAME, OTHER, span(50, 60)), Ok(()));
}

#[test]
fn a_file_that_was_acknowledged_and_is_gone_is_missed() {
    let found = there().is_not_there(NAME, span(30, 31));
    assert!(matches!(found, Err(Misnomer::Gone { file: FILE, .. })));
    assert_eq!(
        there().is_not_there(NAME, span(19, 31)),
        Ok(()),
        "while it is put"
    );
}

#[test]
fn a_file_that_comes_back_is_found() {
    let mut names = there();
    let removal = names.removing(NAME, FILE, 40);
    names.removed(NAME, removal, 41).unwrap();
    let found = names.is_there(NAME, FILE, span(50, 51));
    assert!(matches!(found, Err(Misnomer::Again { file: FILE, .. })));

    let mut names = there();
    names.removing(NAME, FILE, 40);
    assert_eq!(names.is_not_there(NAME, span(50, 51)), Ok(()));
    let found = names.is_there(NAME, FILE, span(60, 61));
    assert!(matches!(found, Err(Misnomer::Again { file: FILE, .. })));
}

#[test]
fn a_removal_that_comes_to_light_in_the_middle_of_a_file_is_found() {
    let mut names = there();
    let removal = names.removing(NAME, FILE, 40);
    assert_eq!(names.is_there(NAME, FILE, span(50, 51)), Ok(()));
    let found = names.removed(NAME, removal, 45);
    assert!(matches!(found, Err(Misnomer::Again { file: FILE, .. })));
}

#[test]
fn a_put_without_an_answer_may_come_late_but_not_before_it_is_made() {
    let mut names = Names::default();
    names.putting(NAME, FILE, 10);
    assert_eq!(names.is_not_there(NAME, span(100, 101)), Ok(()));
    assert_eq!(names.is_there(NAME, FILE, span(200, 201)), Ok(()));
    let found = names.is_there(NAME, OTHER, span(202, 203));
    assert!(matches!(found, Err(Misnomer::Early { file: OTHER, .. })));
    names.putting(NAME, OTHER, 300);
    let found = names.is_there(NAME, OTHER, span(202, 203));
    assert!(matches!(found, Err(Misnomer::Early { file: OTHER, .. })));
}

#[test]
fn a_removal_takes_the_file_that_it_names_and_no_other() {
    let mut names = there();
    names.removing(NAME, OTHER, 25);
    let found = names.is_not_there(NAME, span(30, 31));
    assert!(matches!(found, Err(Misnomer::Gone { file: FILE, .. })));
}

#[test]
fn two_files_of_one_name_are_found() {
    let mut names = there();
    names.putting(NAME, OTHER, 30);
    let found = names.is_there(NAME, OTHER, span(30, 40));
    assert!(matches!(found, Err(Misnomer::Both { .. })), "{found:?}");

    let mut names = there();
    names.removing(NAME, FILE, 25);
    names.putting(NAME, OTHER, 30);
    assert_eq!(names.is_there(NAME, OTHER, span(30, 40)), Ok(()));
    let found = names.is_there(NAME, FILE, span(50, 51));
    assert!(matches!(found, Err(Misnomer::Both { .. })), "{found:?}");
}
