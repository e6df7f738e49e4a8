//! The text form of codes: `rs(6,3)`, `lrc(12,2,2)`, `rep(3)`.

use std::fmt;
use std::str::FromStr;

use crate::code::Code;
use crate::error::CodeError;
use crate::families::Family;

impl fmt::Display for Family {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReedSolomon { k, m } => write!(formatter, "rs({k},{m})"),
            Self::Cauchy { k, m } => write!(formatter, "cauchy({k},{m})"),
            Self::Polynomial { k, m } => write!(formatter, "polynomial({k},{m})"),
            Self::Powers { k, m } => write!(formatter, "powers({k},{m})"),
            Self::Rdp { k } => write!(formatter, "rdp({k})"),
            Self::EvenOdd { k } => write!(formatter, "evenodd({k})"),
            Self::Lrc { k, l, g } => write!(formatter, "lrc({k},{l},{g})"),
            Self::Rotated { k, m, r } => write!(formatter, "rotated({k},{m},{r})"),
            Self::Replication { n } => write!(formatter, "rep({n})"),
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.family().to_string())
    }
}

impl FromStr for Family {
    type Err = CodeError;

    /// Reads a family's name and its numbers. Blanks around the numbers are ignored; [`Code::new`]
    /// checks whether the parameters are supported.
    fn from_str(text: &str) -> Result<Self, CodeError> {
        let (name, rest) = text.split_once('(').unwrap_or((text, ""));
        let name = name.trim();
        let expected = match name {
            "rs" => "rs(k,m)",
            "cauchy" => "cauchy(k,m)",
            "polynomial" => "polynomial(k,m)",
            "powers" => "powers(k,m)",
            "rdp" => "rdp(k)",
            "evenodd" => "evenodd(k)",
            "lrc" => "lrc(k,l,g)",
            "rotated" => "rotated(k,m,r)",
            "rep" => "rep(n)",
            _ => {
                return Err(CodeError::UnknownFamily {
                    name: name.to_owned(),
                });
            }
        };
        let malformed = || CodeError::Malformed {
            text: text.to_owned(),
            expected,
        };
        let inside = rest.trim_end().strip_suffix(')').ok_or_else(malformed)?;
        let numbers: Vec<usize> = inside
            .split(',')
            .map(|number| number.trim().parse().map_err(|_| malformed()))
            .collect::<Result<_, _>>()?;
        match (name, numbers.as_slice()) {
            ("rs", &[k, m]) => Ok(Self::ReedSolomon { k, m }),
            ("cauchy", &[k, m]) => Ok(Self::Cauchy { k, m }),
            ("polynomial", &[k, m]) => Ok(Self::Polynomial { k, m }),
            ("powers", &[k, m]) => Ok(Self::Powers { k, m }),
            ("rdp", &[k]) => Ok(Self::Rdp { k }),
            ("evenodd", &[k]) => Ok(Self::EvenOdd { k }),
            ("lrc", &[k, l, g]) => Ok(Self::Lrc { k, l, g }),
            ("rotated", &[k, m, r]) => Ok(Self::Rotated { k, m, r }),
            ("rep", &[n]) => Ok(Self::Replication { n }),
            _ => Err(malformed()),
        }
    }
}

impl FromStr for Code {
    type Err = CodeError;

    /// Reads a code's text form and builds the code.
    ///
    /// # Errors
    /// [`CodeError::UnknownFamily`], [`CodeError::Malformed`],
    /// [`CodeError::UnsupportedParameters`]: each one sentence for the user.
    fn from_str(text: &str) -> Result<Self, CodeError> {
        Self::new(text.parse()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_of_a_code_is_read_back() {
        for text in [
            "rs(6,3)",
            "cauchy(6,3)",
            "polynomial(6,3)",
            "powers(6,3)",
            "rdp(4)",
            "evenodd(4)",
            "lrc(12,2,2)",
            "rotated(6,3,4)",
            "rep(3)",
        ] {
            let code: Code = text.parse().unwrap();
            assert_eq!(code.to_string(), text);
            assert_eq!(code.to_string().parse::<Code>().unwrap(), code);
        }
        assert_eq!(
            " rs( 6 , 3 ) ".parse::<Code>().unwrap().to_string(),
            "rs(6,3)"
        );
    }

    #[test]
    fn errors_state_the_allowed_values() {
        let check = |text: &str, sentence: &str| {
            assert_eq!(text.parse::<Code>().unwrap_err().to_string(), sentence);
        };
        check(
            "reed(6,3)",
            "there is no code family \"reed\": use rs(k,m), cauchy(k,m), polynomial(k,m), powers(k,m), rdp(k), \
             evenodd(k), lrc(k,l,g), rotated(k,m,r) or rep(n)",
        );
        for text in [
            "rs",
            "rs(",
            "rs(6)",
            "rs(6,3,1)",
            "rs(6,-3)",
            "rs(6,3",
            "rs(6,3)x",
            "rs()",
        ] {
            check(
                text,
                &format!(
                    "\"{text}\" is not a code: write rs(k,m), with whole numbers in parentheses \
                     and commas between them"
                ),
            );
        }
        check(
            "rs(250,6)",
            "there is no code rs(250,6): k and m must be at least 1, and k + m at most 255",
        );
        check(
            "rs(0,3)",
            "there is no code rs(0,3): k and m must be at least 1, and k + m at most 255",
        );
        check(
            "rdp(31)",
            "there is no code rdp(31): k must be at least 1 and at most 30",
        );
        check(
            "evenodd(32)",
            "there is no code evenodd(32): k must be at least 1 and at most 31",
        );
        check(
            "lrc(4,5,1)",
            "there is no code lrc(4,5,1): l must be at least 1 and at most k, and k + l + g at most \
             255",
        );
        check(
            "rotated(12,4,3)",
            "there is no code rotated(12,4,3): k and m must be at least 1, r a power of two from 2, m \
             to the power of r at most 4096, k * r at most 512, and k + m at most 255",
        );
        check(
            "rep(1)",
            "there is no code rep(1): n must be at least 2 and at most 255",
        );
        let huge = format!("rs({0},{0})", usize::MAX);
        assert!(matches!(
            huge.parse::<Code>(),
            Err(CodeError::UnsupportedParameters { .. })
        ));
    }
}
