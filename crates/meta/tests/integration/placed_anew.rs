//! Stripes of an open put that are placed again.

use crate::fixture::{cluster, place, segments};
use gabion_meta::{Existing, MetaError, NewAttributes};

#[test]
fn a_stripe_that_is_placed_again_keeps_its_position_in_the_file() {
    let (meta, pool) = cluster();
    let places = [place(0), place(0), place(1)];
    let begin = |name| {
        meta.begin_put(
            (name, Existing::Stays, NewAttributes::FILE),
            pool.id,
            9000,
            &places,
            0,
        )
        .unwrap()
    };
    let (put, other) = (begin("a"), begin("b"));
    let old = put.stripes[1].clone();
    let anew = meta.place_anew(put.id, old.id, old.id, &old.nodes).unwrap();
    assert!(anew.id > other.stripes[2].id);
    assert_eq!(meta.garbage(None, 9), Ok(vec![old.clone()]));
    assert_eq!(meta.check(), Ok(vec![]));
    let again = meta.place_anew(put.id, old.id, old.id, &old.nodes);
    assert_eq!(again, Ok(anew.clone()), "the answer was lost");
    let of_another = meta.place_anew(put.id, other.stripes[0].id, old.id, &old.nodes);
    assert!(matches!(of_another, Err(MetaError::UnknownStripe(_))));
    let file = meta.commit_put(put.id, 1).unwrap();
    assert_eq!(
        segments(&meta, &file),
        [put.stripes[0].id, anew.id, put.stripes[2].id]
    );
    let aborted = other.stripes[0].clone();
    let last = meta.place_anew(other.id, aborted.id, aborted.id, &aborted.nodes);
    assert_eq!(meta.abort_put(other.id), Ok(true));
    let garbage = meta.garbage(None, 9).unwrap();
    assert!(garbage.len() == 5 && garbage.contains(&last.unwrap()));
    assert_eq!(meta.check(), Ok(vec![]));
    let late = meta.place_anew(put.id, old.id, anew.id, &old.nodes);
    assert_eq!(late, Err(MetaError::UnknownPut(put.id)));
}
