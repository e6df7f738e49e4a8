//! The shape of a file: its header, its length, its functions' lengths and its modules' names.

use super::problem::Problem;
use super::source::Source;

/// The most lines of a function, from its signature to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;

/// The most lines of a file, without its tests.
const FILE_LINES_MAX: usize = 600;

/// Module names that say nothing of what is inside.
const EMPTY_NAMES: [&str; 8] = [
    "common",
    "helpers",
    "misc",
    "miscellaneous",
    "util",
    "utilities",
    "utils",
    "shared",
];

/// Every breach of shape in `sources`.
pub(crate) fn check(sources: &[Source<'_>]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for source in sources {
        let mut report = |line, message: String| {
            problems.push(Problem::new(source.path, line, message));
        };
        if let Some((line, message)) = &source.parse_error {
            report(
                *line,
                format!("cannot be parsed: {message}; tidy reads what rustc accepts"),
            );
        }
        if !source.text.trim_start().starts_with("//!") {
            let message = "no `//!` at the top; say what the file is and what it is not";
            report(1, message.to_owned());
        }
        let line_count = source.product_line_count();
        if line_count > FILE_LINES_MAX {
            let message = format!(
                "{line_count} lines without tests; a file has at most {FILE_LINES_MAX}, so split it"
            );
            report(FILE_LINES_MAX + 1, message);
        }
        for function in source
            .functions
            .iter()
            .filter(|f| f.line_count > FUNCTION_LINES_MAX)
        {
            let message = format!(
                "function `{}` has {} lines; a function has at most {FUNCTION_LINES_MAX}",
                function.name, function.line_count
            );
            report(function.line, message);
        }
        for (line, name) in source.modules.iter().filter(|(_, name)| says_nothing(name)) {
            let message = format!(
                "module `{name}` does not say what it holds; name it after its one subject"
            );
            report(*line, message);
        }
    }
    problems
}

/// Whether a module's name is one of [`EMPTY_NAMES`] or a bare version such as `v2`.
fn says_nothing(name: &str) -> bool {
    let is_version = name.strip_prefix('v').is_some_and(|number| {
        !number.is_empty() && number.chars().all(|digit| digit.is_ascii_digit())
    });
    is_version || EMPTY_NAMES.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::super::tree::Tree;
    use super::*;

    fn check_text(text: &str, expected: &[(usize, &str)]) {
        let tree = Tree::of(&[("crates/x/src/lib.rs", text)]);
        let problems = check(&source::parse_all(&tree));
        assert_eq!(problems.len(), expected.len(), "{problems:#?}");
        for (problem, (line, start)) in problems.iter().zip(expected) {
            assert_eq!(problem.line, *line, "{problem}");
            assert!(problem.message.starts_with(start), "{problem}");
        }
    }

    /// A file whose one function has `line_count` lines.
    fn with_function(line_count: usize) -> String {
        format!(
            "//! X.\nimpl X {{\n    fn long() {{\n{}    }}\n}}\n",
            "\n".repeat(line_count - 2)
        )
    }

    #[test]
    fn a_file_opens_with_its_description() {
        check_text("//! What this is.\n", &[]);
        check_text("\n//! What this is.\n", &[]);
        check_text("// Not a description.\n", &[(1, "no `//!` at the top")]);
        check_text("#![allow(x)]\n//! Late.\n", &[(1, "no `//!` at the top")]);
        check_text("", &[(1, "no `//!` at the top")]);
    }

    #[test]
    fn functions_have_at_most_70_lines() {
        check_text(&with_function(70), &[]);
        check_text(&with_function(71), &[(3, "function `long` has 71 lines")]);
    }

    #[test]
    fn files_have_at_most_600_lines() {
        let file = |line_count: usize| format!("//! X.\n{}", "\n".repeat(line_count - 1));
        check_text(&file(600), &[]);
        check_text(&file(601), &[(601, "601 lines without tests")]);
    }

    #[test]
    fn tests_do_not_count_as_lines_of_a_file() {
        let with_tests = |line_count: usize| {
            format!(
                "//! X.\n{}#[cfg(test)]\nmod tests {{\n{}}}\n",
                "\n".repeat(line_count - 1),
                "\n".repeat(600)
            )
        };
        check_text(&with_tests(600), &[]);
        check_text(&with_tests(601), &[(601, "601 lines without tests")]);
        let tests = format!("//! X.\n{}", "\n".repeat(900));
        let tree = Tree::of(&[("crates/x/tests/integration/all.rs", &tests)]);
        assert_eq!(check(&source::parse_all(&tree)), []);
    }

    #[test]
    fn modules_are_named_after_a_subject() {
        for name in EMPTY_NAMES.into_iter().chain(["v2", "v10"]) {
            check_text(
                &format!("//! X.\npub mod {name};\n"),
                &[(2, &format!("module `{name}`"))],
            );
        }
        check_text(
            "//! X.\nmod helper;\nmod vandermonde;\nmod v;\nfn utils() {}\n// mod utils\n",
            &[],
        );
    }

    #[test]
    fn a_file_that_does_not_parse_is_reported_where_it_breaks() {
        check_text("//! X.\nfn a() {}\nfn {}\n", &[(3, "cannot be parsed")]);
    }
}
