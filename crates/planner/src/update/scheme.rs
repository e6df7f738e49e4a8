//! The register of update schemes, and its consequences for pools.

use super::descriptor::{Descriptor, UpdatePlanner};
use super::{cau, fl, fo, parix, pl, plr, rackcu};
use crate::PlanError;
use gabion_codec::Code;
use gabion_layout::{AppendSpec, ReserveSpec, UpdateScheme, any_of};
use gabion_plan::Keepings;

/// All update schemes, in the order of their numbers in records.
pub const SCHEMES: [Descriptor; UpdateScheme::NAMES.len()] = [
    fo::DESCRIPTOR,
    fl::DESCRIPTOR,
    pl::DESCRIPTOR,
    plr::DESCRIPTOR,
    parix::DESCRIPTOR,
    cau::DESCRIPTOR,
    rackcu::DESCRIPTOR,
    cau::SELECTIVE,
];

const _: () = {
    let mut number = 0;
    while number < SCHEMES.len() {
        assert!(
            SCHEMES[number].scheme as usize == number,
            "each scheme is registered at its number"
        );
        number += 1;
    }
};

/// The descriptor of a scheme.
pub const fn descriptor(scheme: UpdateScheme) -> &'static Descriptor {
    const REGISTER: &[Descriptor] = &SCHEMES;
    &REGISTER[scheme as usize]
}

/// The planner of a scheme.
pub fn scheme(name: UpdateScheme) -> &'static dyn UpdatePlanner {
    descriptor(name).planner
}

/// The names of the schemes for which this holds, for a sentence: `plr or rackcu`.
pub fn names(is_meant: impl Fn(&Descriptor) -> bool) -> String {
    let meant = SCHEMES.iter().filter(|scheme| is_meant(scheme));
    any_of(meant.map(|meant| meant.scheme.name()))
}

/// Checks that a pool has reserved space and append phases if its scheme needs them, and not otherwise.
///
/// # Errors
/// [`PlanError::Pool`].
pub fn check_pool(
    name: UpdateScheme,
    reserve: Option<ReserveSpec>,
    append: Option<AppendSpec>,
) -> Result<(), PlanError> {
    let descriptor = descriptor(name);
    let wrong = match (descriptor.reserves_space(), reserve.is_some()) {
        (true, false) => format!("the update scheme {name} needs reserved space"),
        (false, true) => format!(
            "the update scheme {name} has no reserved space; use {}, or omit the reserve",
            names(Descriptor::reserves_space)
        ),
        _ => match (descriptor.appends(), append.is_some()) {
            (true, false) => format!("the update scheme {name} needs append phases"),
            (false, true) => format!(
                "the update scheme {name} has no append phases; use {}, or omit their limits",
                names(Descriptor::appends)
            ),
            _ => return Ok(()),
        },
    };
    Err(PlanError::Pool(wrong))
}

/// Returns the keepings of records in new chunks of `chunk_bytes`, in a pool of this scheme and reserve.
///
/// ```
/// use gabion_layout::{Keeping, ReserveSpec, UpdateScheme};
/// use gabion_planner::update::keepings;
///
/// let keepings = keepings(UpdateScheme::Plr, Some(ReserveSpec::default()), 1 << 20);
/// assert_eq!(keepings.data, Keeping::InPlace);
/// assert_eq!(keepings.parity, Keeping::Reserve { bytes: 1 << 20 });
/// ```
pub fn keepings(name: UpdateScheme, reserve: Option<ReserveSpec>, chunk_bytes: u64) -> Keepings {
    let reserve_bytes = reserve.map_or(0, |spec| spec.initial_bytes(chunk_bytes));
    scheme(name).keepings(reserve_bytes)
}

/// Returns the number of failures that stripes of a pool survive while updates of them wait for their parity; none if
/// parity follows at once.
///
/// ```
/// use gabion_layout::{AppendSpec, UpdateScheme};
/// use gabion_planner::update::phase_survives;
///
/// let code = "rs(6,3)".parse().unwrap();
/// let append = Some(AppendSpec::default());
/// assert_eq!(phase_survives(UpdateScheme::Cau, append, &code), Some(1));
/// assert_eq!(phase_survives(UpdateScheme::Plr, None, &code), None);
/// ```
pub fn phase_survives(
    name: UpdateScheme,
    append: Option<AppendSpec>,
    code: &Code,
) -> Option<usize> {
    let appending = scheme(name).appending()?;
    Some(appending.survives(code, &append?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_has_what_its_scheme_needs_and_nothing_more() {
        let (reserve, append) = (Some(ReserveSpec::default()), Some(AppendSpec::default()));
        for known in &SCHEMES {
            let right = (
                reserve.filter(|_| known.reserves_space()),
                append.filter(|_| known.appends()),
            );
            for asked in [
                (None, None),
                (reserve, None),
                (None, append),
                (reserve, append),
            ] {
                let checked = check_pool(known.scheme, asked.0, asked.1);
                assert_eq!(
                    checked.is_ok(),
                    asked == right,
                    "{}: {asked:?}",
                    known.scheme
                );
            }
        }
        let refused = |scheme, reserve, append| check_pool(scheme, reserve, append).unwrap_err();
        let reserving = names(Descriptor::reserves_space);
        assert!(reserving.starts_with("plr, rackcu"), "{reserving}");
        assert_eq!(
            refused(UpdateScheme::Fo, reserve, None).to_string(),
            format!(
                "the update scheme fo has no reserved space; use {reserving}, or omit the reserve"
            )
        );
        let appending = names(Descriptor::appends);
        assert!(appending.starts_with("parix"), "{appending}");
        assert_eq!(
            refused(UpdateScheme::Fl, None, append).to_string(),
            format!(
                "the update scheme fl has no append phases; use {appending}, or omit their limits"
            )
        );
    }

    #[test]
    fn descriptors_say_what_a_scheme_is_in_one_line() {
        for known in &SCHEMES {
            assert_eq!(descriptor(known.scheme).scheme, known.scheme);
            assert!(
                !known.help.is_empty() && known.help.len() < 80,
                "{}",
                known.scheme
            );
            assert!(!known.paper.is_empty(), "{}", known.scheme);
        }
        let first = |known: &Descriptor| known.scheme <= UpdateScheme::Pl;
        assert_eq!(names(first), "fo, fl or pl");
        assert_eq!(names(|known| known.scheme == UpdateScheme::Fo), "fo");
    }
}
