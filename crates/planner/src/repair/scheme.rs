//! The register of repair schemes.

use super::descriptor::{Descriptor, Scheme};
use super::{conventional, cyclic, ppr, rp};
use crate::PlanError;
use gabion_layout::any_of;
use std::str::FromStr;

/// All repair schemes, in the order of [`Scheme`].
pub const SCHEMES: [Descriptor; 4] = [
    conventional::DESCRIPTOR,
    rp::DESCRIPTOR,
    ppr::DESCRIPTOR,
    cyclic::DESCRIPTOR,
];

const _: () = {
    let mut number = 0;
    while number < SCHEMES.len() {
        assert!(
            SCHEMES[number].scheme as usize == number,
            "each scheme is registered in the order of `Scheme`"
        );
        number += 1;
    }
};

/// The descriptor of a scheme.
pub const fn descriptor(scheme: Scheme) -> &'static Descriptor {
    const REGISTER: &[Descriptor] = &SCHEMES;
    &REGISTER[scheme as usize]
}

impl Scheme {
    /// Its name.
    pub const fn name(self) -> &'static str {
        descriptor(self).name
    }
}

impl FromStr for Scheme {
    type Err = PlanError;

    fn from_str(name: &str) -> Result<Self, PlanError> {
        let found = SCHEMES.iter().find(|known| known.name == name);
        found.map(|known| known.scheme).ok_or_else(|| {
            PlanError::Layout(format!(
                "'{name}' is not a repair scheme; use {}",
                any_of(SCHEMES.map(|known| known.name))
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_descriptors_say_what_a_scheme_is_in_one_line() {
        for known in &SCHEMES {
            assert_eq!(known.name.parse(), Ok(known.scheme));
            assert_eq!(known.scheme.name(), known.name);
            assert!(!known.help.is_empty() && known.help.len() < 80);
            assert!(!known.paper.is_empty(), "{}", known.name);
        }
        let unknown = "magic".parse::<Scheme>().unwrap_err().to_string();
        assert!(
            unknown.starts_with("'magic' is not a repair scheme; use conventional, pipeline, "),
            "{unknown}"
        );
    }
}
