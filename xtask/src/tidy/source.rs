//! One Rust source, taken apart once for all rules: its functions, its modules and its test code.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, Meta};

use super::tree::Tree;

/// One Rust source.
pub(crate) struct Source<'a> {
    /// Its path from the workspace's directory.
    pub(crate) path: &'a str,
    /// Its text.
    pub(crate) text: &'a str,
    /// Its functions and methods, nested ones included.
    pub(crate) functions: Vec<Function>,
    /// The modules that it declares, in files of their own or here: the line and the name of each.
    pub(crate) modules: Vec<(usize, String)>,
    /// The line at which `syn` could not read it, and the cause; the fields after this one are then empty.
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
    /// Its name.
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
            functions: outline.functions,
            modules: outline.modules,
            parse_error,
            test_lines: outline.test_lines,
            test_modules: outline.test_modules,
            all_test: !is_product(path),
        }
    }

    /// Returns the number of its lines that are not test code.
    pub(crate) fn product_line_count(&self) -> usize {
        let line_count = self.text.lines().count();
        (1..=line_count).filter(|&line| !self.is_test(line)).count()
    }

    /// The paths that the code names; see [`paths`]. None where the file cannot be parsed.
    pub(crate) fn paths(&self) -> Vec<Path> {
        self.text.parse().map(paths).unwrap_or_default()
    }

    /// Whether line `line` is test code, which may do what the product may not.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.all_test || self.test_lines.iter().any(|lines| lines.contains(&line))
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

/// The result of a walk over the syntax.
#[derive(Default)]
struct Outline {
    functions: Vec<Function>,
    modules: Vec<(usize, String)>,
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

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let line = module.ident.span().start().line;
        self.modules.push((line, module.ident.to_string()));
        visit::visit_item_mod(self, module);
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
pub(crate) struct Path {
    /// The line of its last segment.
    pub(crate) line: usize,
    /// Its names, in order.
    pub(crate) segments: Vec<String>,
}

/// Every path in `tokens`, those inside macros too; a lone name is a path of one segment.
///
/// A use tree gives one path for each leaf: `use a::{b, c::d}` gives `a::b` and `a::c::d`.
fn paths(tokens: TokenStream) -> Vec<Path> {
    let mut code = Vec::new();
    flatten(tokens, &mut code);
    let is = |index: usize, mark: char| matches!(code.get(index), Some(Word::Mark(found)) if *found == mark);
    let mut paths = Vec::new();
    // One entry for each open brace: the path before it in a use tree, nothing in a block.
    let mut prefixes: Vec<Vec<String>> = Vec::new();
    let mut index = 0;
    while let Some(token) = code.get(index) {
        index += 1;
        let (name, mut line) = match token {
            // The path of `pub(in a::b)` limits an item's visibility; the item does not need it.
            Word::Name(name, _) if name == "in" && is(index.wrapping_sub(2), '(') => {
                while !is(index, ')') {
                    index += 1;
                }
                continue;
            }
            Word::Name(name, line) => (name, *line),
            Word::Mark(mark) => {
                match mark {
                    '{' => prefixes.push(Vec::new()),
                    '}' => drop(prefixes.pop()),
                    _ => {}
                }
                continue;
            }
        };
        let mut segments = prefixes.last().cloned().unwrap_or_default();
        segments.push(name.clone());
        while is(index, ':') && is(index + 1, ':') {
            index += 2;
            let Some(Word::Name(next, next_line)) = code.get(index) else {
                break;
            };
            segments.push(next.clone());
            line = *next_line;
            index += 1;
        }
        let opens_group = is(index, '{') && is(index - 1, ':');
        if opens_group {
            prefixes.push(segments);
            index += 1;
        } else {
            paths.push(Path { line, segments });
        }
    }
    paths
}

/// The parts of paths.
enum Word {
    /// An identifier and its line.
    Name(String, usize),
    /// One character of punctuation, or a delimiter.
    Mark(char),
}

/// Appends the words of `tokens`, those inside groups too.
fn flatten(tokens: TokenStream, words: &mut Vec<Word>) {
    for token in tokens {
        match token {
            TokenTree::Ident(name) => {
                words.push(Word::Name(name.to_string(), name.span().start().line));
            }
            TokenTree::Punct(mark) => words.push(Word::Mark(mark.as_char())),
            TokenTree::Literal(_) => words.push(Word::Mark('"')),
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Brace => ('{', '}'),
                    _ => ('(', ')'),
                };
                words.push(Word::Mark(open));
                flatten(group.stream(), words);
                words.push(Word::Mark(close));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_paths(text: &str, expected: &[&str]) {
        let found: Vec<String> = paths(text.parse().expect("tokens"))
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
        check_paths("pub(in crate::a) b: c::D", &["pub", "b", "c::D"]);
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
}
