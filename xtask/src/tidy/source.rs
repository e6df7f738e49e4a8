//! One Rust source, taken apart once for all rules: its tokens, its functions and its test code.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, Meta};

use super::lexer::{self, Token, TokenKind};
use super::tree::Tree;

/// One Rust source.
pub(crate) struct Source<'a> {
    /// Its path from the workspace's directory.
    pub(crate) path: &'a str,
    /// Its text.
    pub(crate) text: &'a str,
    /// Its text as tokens.
    pub(crate) tokens: Vec<Token<'a>>,
    /// Its functions and methods, nested ones included.
    pub(crate) functions: Vec<Function>,
    /// Where and why `syn` could not read it; the fields after this one are then empty.
    pub(crate) parse_error: Option<(usize, String)>,
    /// The lines of items that are compiled for tests only.
    test_lines: Vec<RangeInclusive<usize>>,
    /// Modules in files of their own that are compiled for tests only.
    test_modules: Vec<String>,
    /// Whether the whole file is test code.
    all_test: bool,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// What it is called.
    pub(crate) name: String,
    /// The line of its signature.
    pub(crate) line: usize,
    /// Lines from the signature to the closing brace, both included.
    pub(crate) line_count: usize,
}

impl<'a> Source<'a> {
    fn parse(path: &'a str, text: &'a str) -> Self {
        let mut outline = Outline::default();
        let mut parse_error = None;
        match syn::parse_file(text) {
            Ok(file) => outline.visit_file(&file),
            Err(error) => parse_error = Some((error.span().start().line, error.to_string())),
        }
        Self {
            path,
            text,
            tokens: lexer::lex(text),
            functions: outline.functions,
            parse_error,
            test_lines: outline.test_lines,
            test_modules: outline.test_modules,
            all_test: !is_product(path),
        }
    }

    /// Whether line `line` is test code, which may do what the product may not.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.all_test || self.test_lines.iter().any(|lines| lines.contains(&line))
    }

    /// The paths that the code names; see [`paths`].
    pub(crate) fn paths(&self) -> Vec<Path<'a>> {
        paths(&self.tokens)
    }
}

/// Takes apart every Rust source of `tree`.
pub(crate) fn parse_all(tree: &Tree) -> Vec<Source<'_>> {
    let mut sources: Vec<Source<'_>> = tree
        .rust_files()
        .map(|(path, text)| Source::parse(path, text))
        .collect();
    let test_stems: BTreeSet<String> = sources.iter().flat_map(test_stems).collect();
    for source in &mut sources {
        source.all_test |= test_stems.iter().any(|stem| {
            source
                .path
                .strip_prefix(stem.as_str())
                .is_some_and(begins_module)
        });
    }
    sources
}

/// Whether what follows a module's path without extension is its file or something inside it.
fn begins_module(rest: &str) -> bool {
    rest == ".rs" || rest.starts_with('/')
}

/// The paths, without extension, of the modules that `source` declares for tests only.
fn test_stems(source: &Source<'_>) -> Vec<String> {
    let stem = source.path.strip_suffix(".rs").unwrap_or(source.path);
    let (directory, name) = stem.rsplit_once('/').unwrap_or(("", stem));
    let parent = if matches!(name, "lib" | "main" | "mod") {
        directory
    } else {
        stem
    };
    source
        .test_modules
        .iter()
        .map(|module| format!("{parent}/{module}"))
        .collect()
}

/// Whether the file goes into a library or a binary, as against tests, benches, examples and build scripts.
fn is_product(path: &str) -> bool {
    let mut parts = path.split('/');
    match parts.next() {
        Some("crates") => parts.nth(1) == Some("src"),
        _ => parts.next() == Some("src"),
    }
}

/// What a walk over the syntax finds.
#[derive(Default)]
struct Outline {
    functions: Vec<Function>,
    test_lines: Vec<RangeInclusive<usize>>,
    test_modules: Vec<String>,
}

impl Outline {
    fn add_function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let line = signature.span().start().line;
        let end = block.brace_token.span.close().end().line;
        let name = signature.ident.to_string();
        self.functions.push(Function {
            name,
            line,
            line_count: end + 1 - line,
        });
    }
}

impl<'ast> Visit<'ast> for Outline {
    fn visit_item(&mut self, item: &'ast Item) {
        if attributes(item).iter().any(is_for_tests) {
            let span = item.span();
            self.test_lines.push(span.start().line..=span.end().line);
            if let Item::Mod(module) = item
                && module.content.is_none()
            {
                self.test_modules.push(module.ident.to_string());
            }
        }
        visit::visit_item(self, item);
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.add_function(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.add_function(&function.sig, &function.block);
        if function.attrs.iter().any(is_for_tests) {
            let span = function.span();
            self.test_lines.push(span.start().line..=span.end().line);
        }
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.add_function(&function.sig, block);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

/// The attributes of the kinds of item that tests commonly consist of.
fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether the attribute is `#[test]`, `#[cfg(test)]` or `#[cfg(all(test, ...))]`.
fn is_for_tests(attribute: &Attribute) -> bool {
    match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string().replace(' ', "");
            condition == "test" || condition.starts_with("all(test,")
        }
        _ => false,
    }
}

/// A path in the code, such as `std::net::TcpStream`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Path<'a> {
    /// The line of its last segment.
    pub(crate) line: usize,
    /// Its names, in order.
    pub(crate) segments: Vec<&'a str>,
}

impl Path<'_> {
    /// Whether `names` occur in the path, one directly after another.
    pub(crate) fn contains(&self, names: &[&str]) -> bool {
        self.segments
            .windows(names.len())
            .any(|window| window == names)
    }
}

/// Every path in `tokens`, those inside macros too; a lone name is a path of one segment.
///
/// A use tree gives one path for each leaf: `use a::{b, c::d}` gives `a::b` and `a::c::d`.
fn paths<'a>(tokens: &[Token<'a>]) -> Vec<Path<'a>> {
    let code: Vec<&Token<'a>> = tokens
        .iter()
        .filter(|token| matches!(token.kind, TokenKind::Identifier | TokenKind::Punctuation))
        .collect();
    let is = |index: usize, text: &str| {
        code.get(index)
            .is_some_and(|token: &&Token<'_>| token.is_punctuation(text))
    };
    let mut paths = Vec::new();
    // One entry for each open brace: the path before it in a use tree, nothing in a block.
    let mut prefixes: Vec<Vec<&str>> = Vec::new();
    let mut index = 0;
    while let Some(token) = code.get(index) {
        index += 1;
        if token.is_punctuation("{") {
            prefixes.push(Vec::new());
        } else if token.is_punctuation("}") {
            prefixes.pop();
        }
        if token.kind != TokenKind::Identifier {
            continue;
        }
        let mut segments = prefixes.last().cloned().unwrap_or_default();
        segments.push(token.text);
        let mut line = token.line;
        while is(index, ":") && is(index + 1, ":") {
            index += 2;
            match code.get(index) {
                Some(next) if next.kind == TokenKind::Identifier => {
                    segments.push(next.text);
                    line = next.line;
                    index += 1;
                }
                _ => break,
            }
        }
        let opens_group = is(index, "{") && is(index - 1, ":");
        if opens_group {
            prefixes.push(segments);
            index += 1;
        } else {
            paths.push(Path { line, segments });
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_paths(text: &str, expected: &[&str]) {
        let found: Vec<String> = paths(&lexer::lex(text))
            .iter()
            .map(|path| path.segments.join("::"))
            .collect();
        assert_eq!(found, expected, "{text:?}");
    }

    #[test]
    fn paths_of_use_trees_and_expressions() {
        check_paths(
            "use std::{net, io::{self, Read}};",
            &["use", "std::net", "std::io::self", "std::io::Read"],
        );
        check_paths("use a::*; b", &["use", "a", "b"]);
        check_paths("{ x::y(z) }", &["x::y", "z"]);
        check_paths("f::<T>()", &["f", "T"]);
        check_paths("struct A { b: c::D }", &["struct", "A", "b", "c::D"]);
        check_paths("m!({ std::net::X })", &["m", "std::net::X"]);
    }

    #[test]
    fn functions_are_measured_from_signature_to_brace() {
        let text = "\
/// Doc.
#[inline]
fn a(
    b: u8,
) {
    fn nested() {}
}
impl T {
    fn m() {
    }
}
trait U {
    fn declared();
    fn given() {}
}
";
        let source = Source::parse("crates/x/src/lib.rs", text);
        let found: Vec<_> = source
            .functions
            .iter()
            .map(|function| (function.name.as_str(), function.line, function.line_count))
            .collect();
        assert_eq!(
            found,
            [("a", 3, 5), ("nested", 6, 1), ("m", 9, 2), ("given", 14, 1)]
        );
    }

    #[test]
    fn test_code_is_known() {
        let tree = Tree::of(&[
            (
                "crates/x/src/lib.rs",
                "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() {}\n}\nfn c() {}\n#[cfg(all(test, unix))]\nmod proofs;\n#[cfg(not(test))]\nfn d() {}\n",
            ),
            ("crates/x/src/proofs.rs", "#[cfg(test)]\nmod inner;\n"),
            ("crates/x/src/proofs/deep.rs", ""),
            ("crates/x/src/proofs_of.rs", ""),
            ("crates/x/src/y.rs", "#[cfg(test)]\nmod proofs;\n"),
            ("crates/x/src/y/proofs.rs", ""),
            ("crates/x/tests/all.rs", ""),
            ("xtask/src/main.rs", ""),
        ]);
        let sources = parse_all(&tree);
        let is_test = |path: &str, line| {
            let source = sources.iter().find(|source| source.path == path);
            source.expect("the file is in the tree").is_test(line)
        };
        for (line, expected) in [
            (1, false),
            (2, true),
            (4, true),
            (5, true),
            (6, false),
            (10, false),
        ] {
            assert_eq!(
                is_test("crates/x/src/lib.rs", line),
                expected,
                "line {line}"
            );
        }
        assert!(is_test("crates/x/src/proofs.rs", 1));
        assert!(is_test("crates/x/src/proofs/deep.rs", 1));
        assert!(!is_test("crates/x/src/proofs_of.rs", 1));
        assert!(!is_test("crates/x/src/y.rs", 9));
        assert!(is_test("crates/x/src/y/proofs.rs", 1));
        assert!(is_test("crates/x/tests/all.rs", 1));
        assert!(!is_test("xtask/src/main.rs", 1));
    }

    #[test]
    fn a_file_that_does_not_parse_keeps_its_tokens() {
        let source = Source::parse("crates/x/src/lib.rs", "fn a() {}\nfn {}\n");
        assert_eq!(source.parse_error.as_ref().map(|(line, _)| *line), Some(2));
        assert!(!source.tokens.is_empty());
    }
}
