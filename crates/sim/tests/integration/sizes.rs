//! Which sizes of a file clients may see, and which not.

use gabion_meta::PutId;
use gabion_sim::sizes::{Missized, SizeSeen, Sizes};

const FILE: PutId = PutId(1);

/// A file of 100 bytes, put from 0 to 1.
fn file() -> Sizes {
    let mut sizes = Sizes::default();
    sizes.putting(FILE, 100, 0);
    sizes.made(FILE, 0, 1);
    sizes
}

fn see(sizes: &mut Sizes, size_bytes: u64, called_us: u64) -> Result<(), Missized> {
    let answered_us = called_us + 1;
    let seen = SizeSeen {
        size_bytes,
        called_us,
        answered_us,
    };
    sizes.seen(FILE, seen)
}

fn grow(sizes: &mut Sizes, to: u64, from_us: u64, to_us: u64) {
    let number = sizes.growing(FILE, to, from_us);
    sizes.made(FILE, number, to_us);
}

fn truncate(sizes: &mut Sizes, to: u64, from_us: u64, to_us: u64) {
    let number = sizes.truncating(FILE, to, from_us);
    sizes.made(FILE, number, to_us);
}

fn extend(sizes: &mut Sizes, from: u64, by: u64, at_us: u64) -> Result<(), Missized> {
    let number = sizes.extending(FILE, by, at_us);
    sizes.extended(FILE, number, from..from + by, at_us + 1)
}

#[test]
fn acknowledged_growth_stays() {
    let mut sizes = file();
    assert_eq!(see(&mut sizes, 100, 2), Ok(()));
    grow(&mut sizes, 300, 10, 20);
    assert_eq!(see(&mut sizes, 300, 21), Ok(()));
    let lost = see(&mut sizes, 100, 21);
    assert!(matches!(lost, Err(Missized::Lost { to_bytes: 300, .. })));
    // A look that was called before the answer may miss it.
    assert_eq!(see(&mut sizes, 100, 19), Ok(()));
}

#[test]
fn a_truncation_takes_growth_unless_it_came_before() {
    let mut sizes = file();
    grow(&mut sizes, 300, 10, 20);
    sizes.truncating(FILE, 50, 15);
    assert_eq!(see(&mut sizes, 100, 21), Ok(()));
    let mut sizes = file();
    truncate(&mut sizes, 50, 5, 9);
    grow(&mut sizes, 300, 10, 20);
    assert!(matches!(
        see(&mut sizes, 50, 21),
        Err(Missized::Lost { .. })
    ));
    // Nor does one to more than that.
    sizes.truncating(FILE, 350, 30);
    assert!(matches!(
        see(&mut sizes, 50, 31),
        Err(Missized::Lost { .. })
    ));
}

#[test]
fn a_size_that_no_operation_asked_for_is_found() {
    let mut sizes = file();
    sizes.growing(FILE, 300, 10);
    assert_eq!(see(&mut sizes, 300, 11), Ok(()));
    assert!(matches!(
        see(&mut sizes, 301, 11),
        Err(Missized::Excess {
            most_bytes: 300,
            ..
        })
    ));
    sizes.extending(FILE, 10, 12);
    assert_eq!(see(&mut sizes, 310, 13), Ok(()));
}

#[test]
fn a_truncated_file_does_not_regain_its_size() {
    let mut sizes = file();
    grow(&mut sizes, 300, 10, 20);
    truncate(&mut sizes, 50, 30, 40);
    assert_eq!(see(&mut sizes, 50, 41), Ok(()));
    assert!(matches!(
        see(&mut sizes, 300, 41),
        Err(Missized::Excess { .. })
    ));
    // Growth that has not ended may come after it.
    sizes.growing(FILE, 200, 25);
    assert_eq!(see(&mut sizes, 200, 41), Ok(()));
}

#[test]
fn two_extensions_with_the_same_bytes_are_found() {
    let mut sizes = file();
    assert_eq!(extend(&mut sizes, 100, 20, 10), Ok(()));
    assert_eq!(extend(&mut sizes, 120, 20, 12), Ok(()));
    // Both were called before any was acknowledged, so the size alone shows nothing.
    let [one, other] = [(); 2].map(|()| sizes.extending(FILE, 20, 20));
    assert_eq!(sizes.extended(FILE, one, 140..160, 30), Ok(()));
    let shared = sizes.extended(FILE, other, 140..160, 30);
    assert!(matches!(shared, Err(Missized::Shared { .. })), "{shared:?}");
    // An extension begins at the size of the file.
    let early = extend(&mut file(), 80, 20, 10);
    assert!(matches!(early, Err(Missized::Lost { .. })), "{early:?}");
    // After a truncation, the same bytes may be given again.
    let mut sizes = file();
    assert_eq!(extend(&mut sizes, 100, 20, 10), Ok(()));
    truncate(&mut sizes, 100, 20, 30);
    assert_eq!(extend(&mut sizes, 100, 20, 40), Ok(()));
}
