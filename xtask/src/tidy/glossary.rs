//! One word for one thing: GLOSSARY.md's tables are the rule, and this holds the code to them.
//!
//! Each term has a list of words that are *not* said for it. Identifiers, comments and texts under
//! `crates/` may not use them: `DataBlock`, `data_block` and "data blocks" all match `data block`.
//! A line that must use such a word, say to name another system's field, ends with
//! `// tidy: allow(word) reason`, or stands below a line that holds only that comment.

use super::markdown;
use super::problem::Problem;
use super::source::Source;
use super::tree::Tree;

/// The document that holds the tables.
const DOCUMENT: &str = "GLOSSARY.md";

/// The header of each table.
const HEADER: [&str; 4] = ["term", "meaning", "source", "not"];

/// Begin of an escape.
const ESCAPE: &str = "tidy: allow(";

/// The glossary's tables, read.
struct Glossary<'a> {
    /// Each term and its line.
    terms: Vec<(&'a str, usize)>,
    bans: Vec<Ban<'a>>,
    /// Faults of the tables themselves.
    problems: Vec<Problem>,
}

/// Words that are not said for a term.
struct Ban<'a> {
    /// As the glossary writes them.
    written: &'a str,
    /// In lower case, one by one. Invariant: not empty.
    words: Vec<String>,
    /// The term to use.
    term: &'a str,
    /// The term's line in the glossary.
    line: usize,
}

/// Permission to use one banned word on one line.
struct Escape<'a> {
    written: &'a str,
    has_reason: bool,
    /// The line of the comment.
    line: usize,
    /// The line that it is for.
    target: usize,
    is_used: bool,
}

/// Every banned word in `crates/`, and everything wrong with the glossary itself.
pub(crate) fn check(tree: &Tree, sources: &[Source<'_>]) -> Vec<Problem> {
    let Glossary {
        bans, mut problems, ..
    } = Glossary::read(tree);
    for source in sources
        .iter()
        .filter(|source| source.path.starts_with("crates/"))
    {
        problems.extend(check_source(source, &bans));
    }
    problems
}

impl<'a> Glossary<'a> {
    /// Reads the tables, and says what is wrong with them.
    fn read(tree: &'a Tree) -> Self {
        let mut glossary = Self {
            terms: Vec::new(),
            bans: Vec::new(),
            problems: Vec::new(),
        };
        let rows = markdown::table_rows(tree.text(DOCUMENT).unwrap_or_default(), &HEADER);
        if rows.is_empty() {
            let header = HEADER.join(" | ");
            let message =
                format!("there are no terms; write a table with the header `| {header} |`");
            glossary.report(1, message);
        }
        for row in &rows {
            glossary.add_row(row);
        }
        glossary.check_contradictions();
        glossary
    }

    fn report(&mut self, line: usize, message: impl Into<String>) {
        self.problems.push(Problem::new(DOCUMENT, line, message));
    }

    fn add_row(&mut self, row: &markdown::Row<'a>) {
        let &[term, meaning, source, not] = row.cells.as_slice() else {
            let (found, needed) = (row.cells.len(), HEADER.len());
            self.report(
                row.line,
                format!("a row has {found} cells; it needs {needed}"),
            );
            return;
        };
        if [term, meaning, source].iter().any(|cell| cell.is_empty()) {
            self.report(row.line, "an empty cell; a term has a meaning and a source");
        }
        if let Some(&(_, line)) = self.terms.iter().find(|(other, _)| *other == term) {
            let message = format!("`{term}` is also defined in line {line}; keep one meaning");
            self.report(row.line, message);
        }
        self.terms.push((term, row.line));
        let Some(listed) = markdown::code_list(not) else {
            let message =
                "the last cell is not readable; write words in backticks between commas, or `-`";
            self.report(row.line, message);
            return;
        };
        for written in listed {
            let words = words(written);
            if words.is_empty() {
                self.report(row.line, format!("`{written}` holds no word to ban"));
            } else if let Some(other) = self.bans.iter().find(|other| other.words == words) {
                let message = format!(
                    "`{written}` is also banned for `{}`; say it once",
                    other.term
                );
                self.report(row.line, message);
            } else {
                self.bans.push(Ban {
                    written,
                    words,
                    term,
                    line: row.line,
                });
            }
        }
    }

    /// A word cannot be both defined and banned.
    fn check_contradictions(&mut self) {
        for ban in &self.bans {
            let defined = self.terms.iter().find(|(term, _)| words(term) == ban.words);
            if let Some((term, line)) = defined {
                let message = format!(
                    "`{}` is banned but line {line} defines `{term}`; choose one",
                    ban.written
                );
                self.problems
                    .push(Problem::new(DOCUMENT, ban.line, message));
            }
        }
    }
}

fn check_source(source: &Source<'_>, bans: &[Ban<'_>]) -> Vec<Problem> {
    let mut escapes = escapes(source.text);
    let mut problems = Vec::new();
    for (line, text) in (1..).zip(source.text.lines()) {
        let said = split_escape(text).map_or(text, |(said, _)| said);
        for phrase in phrases(said) {
            for ban in bans.iter().filter(|ban| says(&phrase, &ban.words)) {
                let mut allowed = false;
                for escape in &mut escapes {
                    if escape.target == line && escape.written == ban.written {
                        escape.is_used = true;
                        allowed = true;
                    }
                }
                if !allowed {
                    let message = format!(
                        "`{}` is another word for `{}`; say that ({DOCUMENT}:{}), or give a reason: `// {ESCAPE}{}) reason`",
                        ban.written, ban.term, ban.line, ban.written
                    );
                    problems.push(Problem::new(source.path, line, message));
                }
            }
        }
    }
    for escape in escapes {
        let wrong = match escape {
            Escape { is_used: false, .. } => "allows what the line does not say; remove it",
            Escape {
                has_reason: false, ..
            } => "gives no reason; say why after the parenthesis",
            _ => continue,
        };
        let message = format!("`{ESCAPE}{})` {wrong}", escape.written);
        problems.push(Problem::new(source.path, escape.line, message));
    }
    problems
}

/// A line's text before the comment that holds an escape, and what follows the escape's opening.
fn split_escape(line: &str) -> Option<(&str, &str)> {
    let (before, rest) = line.split_once(ESCAPE)?;
    Some((&before[..before.rfind("//")?], rest))
}

/// The escapes in a source.
fn escapes(text: &str) -> Vec<Escape<'_>> {
    let escape = |(line, text)| {
        let (said, rest) = split_escape(text)?;
        let (written, reason) = rest.split_once(')').unwrap_or((rest, ""));
        let stands_alone = said.trim().is_empty();
        Some(Escape {
            written: written.trim(),
            has_reason: !reason.trim().is_empty(),
            line,
            target: if stands_alone { line + 1 } else { line },
            is_used: false,
        })
    };
    (1..).zip(text.lines()).filter_map(escape).collect()
}

/// The runs of words in a line; punctuation other than a hyphen or a code mark ends a run.
fn phrases(line: &str) -> Vec<Vec<String>> {
    line.split(|c: char| !(c.is_alphanumeric() || c.is_whitespace() || "-_`*".contains(c)))
        .map(words)
        .filter(|phrase| !phrase.is_empty())
        .collect()
}

/// The words of a text in lower case; `snake_case` and `CamelCase` are taken apart.
fn words(text: &str) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    let mut words: Vec<String> = Vec::new();
    let mut inside = false;
    for (index, &character) in characters.iter().enumerate() {
        if !character.is_alphanumeric() {
            inside = false;
            continue;
        }
        let begins = match index.checked_sub(1).map(|before| characters[before]) {
            Some(before) if inside => begins_word(before, character, characters.get(index + 1)),
            _ => true,
        };
        if begins {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.extend(character.to_lowercase());
        }
        inside = true;
    }
    words
}

/// Whether `character` begins a new word inside an identifier, as the `C` of `RSCode` does.
fn begins_word(before: char, character: char, after: Option<&char>) -> bool {
    let turns_upper = character.is_uppercase() && !before.is_uppercase();
    let ends_acronym = character.is_uppercase()
        && before.is_uppercase()
        && after.is_some_and(|after| after.is_lowercase());
    let turns_digit = character.is_numeric() != before.is_numeric();
    turns_upper || ends_acronym || turns_digit
}

/// Whether `phrase` contains `banned`, the last word perhaps in the plural.
fn says(phrase: &[String], banned: &[String]) -> bool {
    let Some((last, first)) = banned.split_last() else {
        return false;
    };
    phrase.windows(banned.len()).any(|window| {
        let (said_last, said_first) = (&window[first.len()], &window[..first.len()]);
        let ending = said_last.strip_prefix(last.as_str());
        said_first == first && matches!(ending, Some("" | "s" | "es"))
    })
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    const GLOSSARY: &str = "\
| term | meaning | source | not |
|---|---|---|---|
| helper | sends slices | ECPipe 2.2 | `provider` |
| data chunk | user's bytes | CAU 2.2 | `data block`, `data shard` |
| rack | a room | CAU 2.1 | - |
";

    fn problems(glossary: &str, path: &str, text: &str) -> Vec<Problem> {
        let tree = Tree::of(&[(DOCUMENT, glossary), (path, text)]);
        check(&tree, &source::parse_all(&tree))
    }

    /// Checks a crate's source against [`GLOSSARY`]: which words are found in which lines.
    fn check_text(text: &str, expected: &[(usize, &str)]) {
        let path = "crates/x/src/lib.rs";
        let problems = problems(GLOSSARY, path, text);
        assert_eq!(problems.len(), expected.len(), "{text:?}: {problems:#?}");
        for (problem, (line, word)) in problems.iter().zip(expected) {
            assert_eq!(
                (problem.path.as_str(), problem.line),
                (path, *line),
                "{problem}"
            );
            assert!(
                problem.message.starts_with(&format!("`{word}`")),
                "{problem}"
            );
        }
    }

    #[test]
    fn banned_words_are_found_however_they_are_written() {
        check_text("fn provider() {}", &[(1, "provider")]);
        check_text("struct KeyProviders;", &[(1, "provider")]);
        check_text("fn a(data_block: u8) {}", &[(1, "data block")]);
        check_text(
            "struct DataBlock;\nconst DATA_BLOCKS: u8 = 1;",
            &[(1, "data block"), (2, "data block")],
        );
        check_text(
            "// Two data-blocks, or `data` blocks.",
            &[(1, "data block"), (1, "data block")],
        );
        check_text(
            "/// A data block\n/// Data Shard.",
            &[(1, "data block"), (2, "data shard")],
        );
        check_text("const A: &str = \"the provider\";", &[(1, "provider")]);
        check_text("m!(provider);", &[(1, "provider")]);
        check_text("fn data_block2() {}", &[(1, "data block")]);
    }

    #[test]
    fn other_words_are_left_alone() {
        check_text(
            "// A block of data. Data: block by block. Provide, provided.",
            &[],
        );
        check_text(
            "fn metadata_block() {} fn spawn_blocking() {} fn data() { block() }",
            &[],
        );
        check_text("// data\n// block", &[]);
        assert_eq!(
            problems(GLOSSARY, "xtask/src/main.rs", "fn provider() {}"),
            []
        );
    }

    #[test]
    fn an_escape_allows_its_word_on_its_line() {
        check_text(
            "fn provider() {} // tidy: allow(provider) another system's name",
            &[],
        );
        check_text(
            "// tidy: allow(provider) another system's name\nfn provider() {}",
            &[],
        );
        check_text(
            "fn provider() {} // tidy: allow(provider)",
            &[(1, "tidy: allow(provider)")],
        );
        check_text(
            "fn a() {} // tidy: allow(provider) no need",
            &[(1, "tidy: allow(provider)")],
        );
        let elsewhere = "fn a() {} // tidy: allow(provider) wrong line\nfn provider() {}";
        check_text(elsewhere, &[(2, "provider"), (1, "tidy: allow(provider)")]);
        let other = "fn provider() {} // tidy: allow(data block) wrong word";
        check_text(other, &[(1, "provider"), (1, "tidy: allow(data block)")]);
    }

    #[test]
    fn the_message_says_what_to_say() {
        let found = problems(GLOSSARY, "crates/x/src/lib.rs", "fn provider() {}");
        let expected = "crates/x/src/lib.rs:1: `provider` is another word for `helper`; say that (GLOSSARY.md:3), or give a reason: `// tidy: allow(provider) reason`";
        assert_eq!(
            found.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [expected]
        );
    }

    #[test]
    fn a_broken_glossary_is_reported() {
        let cases = [
            (
                "| helper | again | here | - |",
                "`helper` is also defined in line 3",
            ),
            ("| node | a machine | - |", "a row has 3 cells"),
            ("| node | | CAU 2.1 | - |", "an empty cell"),
            (
                "| node | a machine | CAU 2.1 | server |",
                "the last cell is not readable",
            ),
            (
                "| node | a machine | CAU 2.1 | `provider` |",
                "`provider` is also banned for `helper`",
            ),
            (
                "| node | a machine | CAU 2.1 | `rack` |",
                "`rack` is banned but line 5 defines `rack`",
            ),
            ("| node | a machine | CAU 2.1 | `-` |", "`-` holds no word"),
        ];
        for (row, start) in cases {
            let found = problems(&format!("{GLOSSARY}{row}\n"), "xtask/src/main.rs", "");
            assert_eq!(found.len(), 1, "{row}: {found:#?}");
            assert_eq!(
                (found[0].path.as_str(), found[0].line),
                (DOCUMENT, 6),
                "{row}"
            );
            assert!(found[0].message.starts_with(start), "{row}: {found:#?}");
        }
        let found = problems("# No table\n", "xtask/src/main.rs", "");
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(found[0].line, 1);
    }
}
