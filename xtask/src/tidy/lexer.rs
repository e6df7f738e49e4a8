//! Rust source as identifiers, punctuation, comments and texts, each with its line.
//!
//! `syn` drops comments and does not look inside macros; tidy's rules on words need both. This is
//! not a full lexer: numbers and lifetimes are skipped, and nothing is rejected, because rustc has
//! already judged the file.

/// What a [`Token`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// A keyword, a name or a raw identifier (without its `r#`).
    Identifier,
    /// One line of a comment, delimiters included.
    Comment,
    /// A string literal of any kind, quotes included.
    Text,
    /// One character of punctuation.
    Punctuation,
}

/// A piece of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    /// What it is.
    pub(crate) kind: TokenKind,
    /// How it is written.
    pub(crate) text: &'a str,
    /// The line on which it begins, counted from 1.
    pub(crate) line: usize,
}

impl Token<'_> {
    /// Whether this is the punctuation character `text`.
    pub(crate) fn is_punctuation(&self, text: &str) -> bool {
        self.kind == TokenKind::Punctuation && self.text == text
    }
}

/// Splits `text` into tokens.
pub(crate) fn lex(text: &str) -> Vec<Token<'_>> {
    let mut lexer = Lexer {
        rest: text,
        line: 1,
        tokens: Vec::new(),
    };
    while let Some(first) = lexer.rest.chars().next() {
        lexer.next(first);
    }
    lexer.tokens
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    tokens: Vec<Token<'a>>,
}

impl<'a> Lexer<'a> {
    fn next(&mut self, first: char) {
        if self.rest.starts_with("//") {
            let byte_count = self.rest.find('\n').unwrap_or(self.rest.len());
            self.push(TokenKind::Comment, byte_count);
        } else if self.rest.starts_with("/*") {
            self.block_comment();
        } else if let Some(byte_count) = text_literal_bytes(self.rest) {
            self.push(TokenKind::Text, byte_count);
        } else if let Some(byte_count) = character_literal_bytes(self.rest) {
            self.skip(byte_count);
        } else if first.is_ascii_digit() {
            self.skip(word_bytes(self.rest));
        } else if is_word(first) {
            if self.rest.starts_with("r#") {
                self.skip(2);
            }
            self.push(TokenKind::Identifier, word_bytes(self.rest).max(1));
        } else if first.is_whitespace() {
            self.skip(first.len_utf8());
        } else {
            self.push(TokenKind::Punctuation, first.len_utf8());
        }
    }

    /// Takes `byte_count` bytes and keeps the line number right.
    fn skip(&mut self, byte_count: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(byte_count);
        self.line += taken.matches('\n').count();
        self.rest = rest;
        taken
    }

    fn push(&mut self, kind: TokenKind, byte_count: usize) {
        let line = self.line;
        let text = self.skip(byte_count);
        self.tokens.push(Token { kind, text, line });
    }

    /// A block comment, nested ones included, becomes one token a line.
    fn block_comment(&mut self) {
        let first_line = self.line;
        let mut depth = 0_usize;
        let mut byte_count = 0;
        loop {
            let rest = &self.rest[byte_count..];
            if rest.starts_with("/*") {
                depth += 1;
                byte_count += 2;
            } else if rest.starts_with("*/") {
                depth -= 1;
                byte_count += 2;
            } else {
                byte_count += rest.chars().next().map_or(0, char::len_utf8);
            }
            if depth == 0 || byte_count == self.rest.len() {
                break;
            }
        }
        let comment = self.skip(byte_count);
        for (index, text) in comment.split('\n').enumerate() {
            self.tokens.push(Token {
                kind: TokenKind::Comment,
                text,
                line: first_line + index,
            });
        }
    }
}

fn is_word(character: char) -> bool {
    character == '_' || character.is_alphanumeric()
}

/// The length of the run of word characters at the start of `rest`.
fn word_bytes(rest: &str) -> usize {
    rest.find(|character| !is_word(character))
        .unwrap_or(rest.len())
}

/// The length of the string literal at the start of `rest`, if there is one.
fn text_literal_bytes(rest: &str) -> Option<usize> {
    let unprefixed = rest.trim_start_matches(['b', 'c']);
    let prefix_bytes = rest.len() - unprefixed.len();
    if prefix_bytes > 1 {
        return None;
    }
    let raw = unprefixed.strip_prefix('r').and_then(|after| {
        let quoted = after.trim_start_matches('#');
        let hash_count = after.len() - quoted.len();
        quoted.starts_with('"').then_some((quoted, hash_count))
    });
    if let Some((quoted, hash_count)) = raw {
        let end = format!("\"{}", "#".repeat(hash_count));
        let body = &quoted[1..];
        let body_bytes = body
            .find(&end)
            .map_or(body.len(), |found| found + end.len());
        return Some(rest.len() - body.len() + body_bytes);
    }
    let body = unprefixed.strip_prefix('"')?;
    let mut escaped = false;
    for (index, character) in body.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(prefix_bytes + 1 + index + 1),
            _ => {}
        }
    }
    Some(rest.len())
}

/// The length of the character or byte literal at the start of `rest`, if there is one.
///
/// A quote that opens a lifetime or a label is a literal of length one: only the quote is skipped.
fn character_literal_bytes(rest: &str) -> Option<usize> {
    let unprefixed = rest
        .strip_prefix('b')
        .filter(|after| after.starts_with('\''))
        .unwrap_or(rest);
    let prefix_bytes = rest.len() - unprefixed.len();
    let body = unprefixed.strip_prefix('\'')?;
    let mut characters = body.chars();
    let first = characters.next()?;
    if first == '\\' {
        // The character after the backslash may itself be a quote.
        let escape_bytes = 1 + characters.next().map_or(0, char::len_utf8);
        let end = body[escape_bytes..].find('\'')?;
        return Some(prefix_bytes + 1 + escape_bytes + end + 1);
    }
    if characters.next() == Some('\'') {
        return Some(prefix_bytes + 1 + first.len_utf8() + 1);
    }
    Some(prefix_bytes + 1)
}

#[cfg(test)]
mod tests {
    use super::TokenKind::{Comment, Identifier, Punctuation, Text};
    use super::*;

    fn check(text: &str, expected: &[(TokenKind, &str, usize)]) {
        let tokens: Vec<_> = lex(text)
            .iter()
            .map(|token| (token.kind, token.text, token.line))
            .collect();
        assert_eq!(tokens, expected, "{text:?}");
    }

    #[test]
    fn words_and_punctuation() {
        check(
            "a::b_1\n+ 0x1F_u8",
            &[
                (Identifier, "a", 1),
                (Punctuation, ":", 1),
                (Punctuation, ":", 1),
                (Identifier, "b_1", 1),
                (Punctuation, "+", 2),
            ],
        );
        check(
            "r#type café",
            &[(Identifier, "type", 1), (Identifier, "café", 1)],
        );
    }

    #[test]
    fn comments_keep_their_lines() {
        check(
            "x // y /* z\nw",
            &[
                (Identifier, "x", 1),
                (Comment, "// y /* z", 1),
                (Identifier, "w", 2),
            ],
        );
        check(
            "/* a /* b */\n c */ d",
            &[
                (Comment, "/* a /* b */", 1),
                (Comment, " c */", 2),
                (Identifier, "d", 2),
            ],
        );
        check("/* never closed", &[(Comment, "/* never closed", 1)]);
    }

    #[test]
    fn texts_hide_what_looks_like_code() {
        check(
            r#""a // \" b" c"#,
            &[(Text, r#""a // \" b""#, 1), (Identifier, "c", 1)],
        );
        check(
            r##"r#"a " b"# c"##,
            &[(Text, r##"r#"a " b"#"##, 1), (Identifier, "c", 1)],
        );
        check(
            r#"b"x" c"y" br"\" z"#,
            &[
                (Text, r#"b"x""#, 1),
                (Text, r#"c"y""#, 1),
                (Text, r#"br"\""#, 1),
                (Identifier, "z", 1),
            ],
        );
        check(
            "\"two\nlines\" x",
            &[(Text, "\"two\nlines\"", 1), (Identifier, "x", 2)],
        );
    }

    #[test]
    fn characters_are_not_lifetimes() {
        check(r"'a' '\'' '\u{1F}' b'x' '/' d", &[(Identifier, "d", 1)]);
        check(
            "&'a str",
            &[
                (Punctuation, "&", 1),
                (Identifier, "a", 1),
                (Identifier, "str", 1),
            ],
        );
        check("'\"' e", &[(Identifier, "e", 1)]);
    }
}
