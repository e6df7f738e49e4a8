//! The command line of `cargo xtask`, and the answer to a wrong one.
//!
//! Parsing only: nothing here runs anything.

use std::fmt;

use crate::benches::{self, Bench};
use crate::conformance::{self, SUITES};
use crate::fuzz;
use crate::mutants::Choice;
use crate::sim::{Runs, Span};

/// Printed by `help` and after every usage error.
pub(crate) const USAGE: &str = "\
Usage: cargo xtask <command>

Commands:
  tidy                     check layers, sizes, names and the glossary's words
  lint                     cargo fmt --check, clippy with warnings denied, then tidy
  test                     every test of the workspace, documentation tests included
  sim --seed N             run the simulated cluster of one seed, with its event log if it fails
  sim --seconds S          run new seeds for S seconds; `--hostile` before either: peers send
                           altered messages, and no process may panic
  sim --races              run every two operations on one file at every step, and changes of
                           files with a crash at every step
  sim --model N [--seed S] compare N random operations of a client with a reference model,
                           in seeds from S on, or in new ones
  torture [ARGS...]        break clusters of real processes and check what clients saw;
                           --help lists minutes, seed, faults and format
  conformance [--short] [--cached] [SUITE...]
                           run external test suites on mounts and images of a cluster; docs/conformance.md
  fuzz [TARGET...] [--minutes N]
                           fuzz each target on libFuzzer for N minutes, 1 by default; --list prints the targets;
                           needs a C++ compiler
  mutants                  break the code in one place at a time, and show the check that fails
  mutants --only NAME...   run only these mutants
  mutants --list           print the mutants and their checks
  page                     build the console's page from its sources
  page --check             fail if the committed page differs
  bench [NAME] [ARGS...]   run one registered benchmark, or all of them
  ci                       lint, test, the page and two minutes of torture, as the project's CI does
  help                     print this text";

/// One invocation of `cargo xtask`.
#[derive(Debug, PartialEq)]
pub(crate) enum Command {
    /// Print [`USAGE`].
    Help,
    /// Check the rules of [`crate::tidy`].
    Tidy,
    /// Format check, clippy and tidy.
    Lint,
    /// Every test.
    Test,
    /// Lint, test and torture.
    Ci,
    /// Build the console's page, or only compare it.
    Page { checks: bool },
    /// Simulate clusters.
    Sim(Runs),
    /// Torture real processes, with these arguments.
    Torture(Vec<String>),
    /// Run suites of conformance.
    Conformance(conformance::Choice),
    /// Fuzz targets.
    Fuzz(fuzz::Choice),
    /// Try mutants.
    Mutants(Choice),
    /// Run benchmarks, passing `arguments` to each of them.
    Bench {
        benches: Vec<&'static Bench>,
        arguments: Vec<String>,
    },
}

/// A command line that means nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum UsageError {
    /// No command was given.
    NoCommand,
    /// There is no such command.
    UnknownCommand(String),
    /// The command takes no arguments.
    UnexpectedArgument { command: String, argument: String },
    /// There is no such benchmark.
    UnknownBench(String),
    /// There is no such suite of conformance.
    UnknownSuite(String),
    /// `sim` was told neither a seed nor a time.
    NoSpan,
    /// `fuzz` was told something that is neither a target nor a time.
    NoFuzzChoice,
    /// `mutants` was told something that chooses none.
    NoChoice,
}

impl fmt::Display for UsageError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCommand => write!(formatter, "no command was given"),
            Self::UnknownCommand(command) => write!(formatter, "there is no command `{command}`"),
            Self::UnexpectedArgument { command, argument } => {
                write!(
                    formatter,
                    "`{command}` takes no arguments, but `{argument}` was given"
                )
            }
            Self::UnknownBench(name) => {
                let known: Vec<&str> = benches::BENCHES.iter().map(|bench| bench.name).collect();
                write!(
                    formatter,
                    "there is no benchmark `{name}`; use one of: {}",
                    known.join(", ")
                )
            }
            Self::UnknownSuite(name) => {
                let known: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
                write!(
                    formatter,
                    "there is no suite `{name}`; use one of: {}",
                    known.join(", ")
                )
            }
            Self::NoFuzzChoice => write!(
                formatter,
                "`fuzz` takes names of targets and `--minutes N` with a number above 0, or `--list`"
            ),
            Self::NoChoice => write!(
                formatter,
                "`mutants` takes no arguments, `--only NAME...` or `--list`"
            ),
            Self::NoSpan => write!(
                formatter,
                "`sim` takes `--seed N` or `--seconds S`, with a whole number, and `--hostile` before it, or \
                `--races`, or `--model N` with `--seed S` behind it"
            ),
        }
    }
}

impl std::error::Error for UsageError {}

/// Understands `arguments`, the command line without the program's name.
pub(crate) fn parse(arguments: &[String]) -> Result<Command, UsageError> {
    let (name, rest) = arguments.split_first().ok_or(UsageError::NoCommand)?;
    let command = match name.as_str() {
        "help" | "--help" | "-h" => Command::Help,
        "tidy" => Command::Tidy,
        "lint" => Command::Lint,
        "test" => Command::Test,
        "ci" => Command::Ci,
        "page" if rest == ["--check"] => return Ok(Command::Page { checks: true }),
        "page" => Command::Page { checks: false },
        "sim" => return parse_sim(rest),
        "torture" => return Ok(Command::Torture(rest.to_vec())),
        "conformance" => return parse_conformance(rest),
        "fuzz" => return parse_fuzz(rest),
        "mutants" => return parse_mutants(rest),
        "bench" => return parse_bench(rest),
        _ => return Err(UsageError::UnknownCommand(name.clone())),
    };
    match rest.first() {
        None => Ok(command),
        Some(argument) => Err(UsageError::UnexpectedArgument {
            command: name.clone(),
            argument: argument.clone(),
        }),
    }
}

fn parse_sim(arguments: &[String]) -> Result<Command, UsageError> {
    let (has_hostile_peers, arguments) = match arguments {
        [only] if only == "--races" => {
            return Ok(Command::Sim(Runs {
                span: Span::Races,
                has_hostile_peers: false,
            }));
        }
        [name, rest @ ..] if name == "--model" => {
            return Ok(Command::Sim(Runs {
                span: parse_model(rest)?,
                has_hostile_peers: false,
            }));
        }
        [first, rest @ ..] if first == "--hostile" => (true, rest),
        all => (false, all),
    };
    let [name, value] = arguments else {
        return Err(UsageError::NoSpan);
    };
    let value = value.parse().map_err(|_| UsageError::NoSpan)?;
    let span = match name.as_str() {
        "--seed" => Span::Seed(value),
        "--seconds" => Span::Seconds(value),
        _ => return Err(UsageError::NoSpan),
    };
    Ok(Command::Sim(Runs {
        span,
        has_hostile_peers,
    }))
}

/// The number of operations, and the first seed if there is one.
fn parse_model(arguments: &[String]) -> Result<Span, UsageError> {
    let number = |word: &String| word.parse().map_err(|_| UsageError::NoSpan);
    match arguments {
        [count] => Ok(Span::Model {
            operation_count: number(count)?,
            first: None,
        }),
        [count, name, first] if name == "--seed" => Ok(Span::Model {
            operation_count: number(count)?,
            first: Some(number(first)?),
        }),
        _ => Err(UsageError::NoSpan),
    }
}

fn parse_conformance(arguments: &[String]) -> Result<Command, UsageError> {
    let has = |option: &str| arguments.iter().any(|word| word == option);
    let (is_short, is_cached) = (has("--short"), has("--cached"));
    let names: Vec<String> = arguments
        .iter()
        .filter(|&word| word != "--short" && word != "--cached")
        .cloned()
        .collect();
    let is_known = |name: &String| SUITES.iter().any(|suite| suite.name == name);
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        return Err(UsageError::UnknownSuite(unknown.clone()));
    }
    Ok(Command::Conformance(conformance::Choice {
        is_short,
        is_cached,
        names,
    }))
}

/// Names and a time in any order. The program that runs the targets knows their names.
fn parse_fuzz(arguments: &[String]) -> Result<Command, UsageError> {
    if arguments == ["--list"] {
        return Ok(Command::Fuzz(fuzz::Choice::List));
    }
    let (mut names, mut minutes) = (Vec::new(), 1.0);
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        if word == "--minutes" {
            let number = rest.next().and_then(|number| number.parse().ok());
            let is_time = |number: &f64| number.is_finite() && *number > 0.0;
            minutes = number.filter(is_time).ok_or(UsageError::NoFuzzChoice)?;
        } else if word.starts_with('-') {
            return Err(UsageError::NoFuzzChoice);
        } else {
            names.push(word.clone());
        }
    }
    Ok(Command::Fuzz(fuzz::Choice::Run { names, minutes }))
}

fn parse_mutants(arguments: &[String]) -> Result<Command, UsageError> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let choice = match words[..] {
        [] => Choice::All,
        ["--list"] => Choice::List,
        ["--only", ref names @ ..] if !names.is_empty() => {
            Choice::Only(names.iter().map(|&name| name.to_owned()).collect())
        }
        _ => return Err(UsageError::NoChoice),
    };
    Ok(Command::Mutants(choice))
}

/// A first word without a dash names the benchmark; all else is the benchmark's own.
fn parse_bench(arguments: &[String]) -> Result<Command, UsageError> {
    if arguments
        .iter()
        .any(|argument| argument == "--help" || argument == "-h")
    {
        return Ok(Command::Help);
    }
    let (benches, rest) = match arguments.split_first() {
        Some((name, rest)) if !name.starts_with('-') => {
            let bench =
                benches::find(name).ok_or_else(|| UsageError::UnknownBench(name.clone()))?;
            (vec![bench], rest)
        }
        _ => (benches::BENCHES.iter().collect(), arguments),
    };
    // Cargo's habit of `--` before a program's own arguments is understood, not required.
    let rest = match rest.split_first() {
        Some((dashes, rest)) if dashes == "--" => rest,
        _ => rest,
    };
    Ok(Command::Bench {
        benches,
        arguments: rest.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &Result<Command, UsageError>) {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        assert_eq!(&parse(&arguments), expected, "{line:?}");
    }

    #[test]
    fn commands_are_understood() {
        check("tidy", &Ok(Command::Tidy));
        check("lint", &Ok(Command::Lint));
        check("test", &Ok(Command::Test));
        check("ci", &Ok(Command::Ci));
        check("page", &Ok(Command::Page { checks: false }));
        check("page --check", &Ok(Command::Page { checks: true }));
        check("help", &Ok(Command::Help));
        check("--help", &Ok(Command::Help));
    }

    #[test]
    fn bench_takes_a_name_and_arguments() {
        let all: Vec<&Bench> = benches::BENCHES.iter().collect();
        let first = &benches::BENCHES[0];
        let quick = vec!["--quick".to_owned()];
        check(
            "bench",
            &Ok(Command::Bench {
                benches: all.clone(),
                arguments: vec![],
            }),
        );
        check(
            "bench --quick",
            &Ok(Command::Bench {
                benches: all,
                arguments: quick.clone(),
            }),
        );
        check("bench --help", &Ok(Command::Help));
        for line in [
            format!("bench {} --quick", first.name),
            format!("bench {} -- --quick", first.name),
        ] {
            check(
                &line,
                &Ok(Command::Bench {
                    benches: vec![first],
                    arguments: quick.clone(),
                }),
            );
        }
    }

    #[test]
    fn sim_takes_a_seed_or_a_time() {
        let sim = |span, has_hostile_peers| {
            Ok(Command::Sim(Runs {
                span,
                has_hostile_peers,
            }))
        };
        check("sim --seed 7", &sim(Span::Seed(7), false));
        check("sim --seconds 60", &sim(Span::Seconds(60), false));
        check("sim --hostile --seed 7", &sim(Span::Seed(7), true));
        check("sim --races", &sim(Span::Races, false));
        let model = |first| Span::Model {
            operation_count: 1_000_000,
            first,
        };
        check("sim --model 1000000", &sim(model(None), false));
        check("sim --model 1000000 --seed 7", &sim(model(Some(7)), false));
        for line in [
            "sim",
            "sim 7",
            "sim --hostile",
            "sim --hostile --races",
            "sim --races 7",
            "sim --seed 7 --hostile",
            "sim --seed",
            "sim --seed x",
            "sim --seed 7 8",
            "sim --model",
            "sim --model x",
            "sim --model 7 --seed",
            "sim --model 7 --seconds 8",
            "sim --hostile --model 7",
        ] {
            check(line, &Err(UsageError::NoSpan));
        }
    }

    #[test]
    fn torture_understands_its_arguments_itself() {
        let arguments = ["--minutes", "60", "--seed", "7"].map(str::to_owned);
        check(
            "torture --minutes 60 --seed 7",
            &Ok(Command::Torture(arguments.to_vec())),
        );
        check("torture", &Ok(Command::Torture(Vec::new())));
    }

    #[test]
    fn fuzz_takes_targets_and_a_time() {
        let runs = |names: &[&str], minutes| {
            let names = names.iter().map(|&name| name.to_owned()).collect();
            Ok(Command::Fuzz(fuzz::Choice::Run { names, minutes }))
        };
        check("fuzz", &runs(&[], 1.0));
        check(
            "fuzz hello --minutes 0.5 frames",
            &runs(&["hello", "frames"], 0.5),
        );
        check("fuzz --list", &Ok(Command::Fuzz(fuzz::Choice::List)));
        for line in [
            "fuzz --minutes",
            "fuzz --minutes 0",
            "fuzz --minutes -1",
            "fuzz --minutes x",
            "fuzz --list hello",
            "fuzz --jobs 2",
        ] {
            check(line, &Err(UsageError::NoFuzzChoice));
        }
    }

    #[test]
    fn mutants_takes_names_or_lists_them() {
        check("mutants", &Ok(Command::Mutants(Choice::All)));
        check("mutants --list", &Ok(Command::Mutants(Choice::List)));
        let only = Choice::Only(vec!["a-b".to_owned(), "c".to_owned()]);
        check("mutants --only a-b c", &Ok(Command::Mutants(only)));
        for line in ["mutants a-b", "mutants --only", "mutants --list x"] {
            check(line, &Err(UsageError::NoChoice));
        }
    }

    #[test]
    fn wrong_command_lines_are_named() {
        check("", &Err(UsageError::NoCommand));
        check(
            "tiddy",
            &Err(UsageError::UnknownCommand("tiddy".to_owned())),
        );
        check(
            "bench no-such",
            &Err(UsageError::UnknownBench("no-such".to_owned())),
        );
        check(
            "ci --fast",
            &Err(UsageError::UnexpectedArgument {
                command: "ci".to_owned(),
                argument: "--fast".to_owned(),
            }),
        );
    }

    #[test]
    fn an_unknown_benchmark_is_answered_with_the_known_ones() {
        let message = UsageError::UnknownBench("x".to_owned()).to_string();
        for bench in benches::BENCHES {
            assert!(message.contains(bench.name), "{message}");
        }
    }
}
