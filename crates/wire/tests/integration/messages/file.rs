//! The file of encodings, and the rules by which it changes.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

const INTRODUCTION: &str = "\
# The encodings of all messages of the wire; see CONTRIBUTING.md (\"Change the wire\"). A test writes this file.
# The members of a struct are encoded in this order. A variant of an enum has its place as its number, and before its
# name the version that added it.
";

/// The versions of the wire that a release speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Release {
    pub(super) newest: u16,
    pub(super) oldest: u16,
}

/// A member of a type: its encoding as text, and the version that added it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Member {
    since: u16,
    text: String,
}

/// The contents of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct File {
    release: Release,
    types: BTreeMap<String, Vec<Member>>,
}

impl File {
    /// The version that added a variant.
    pub(super) fn since(&self, title: &str, number: usize) -> u16 {
        self.types[title][number].since
    }

    /// Reads the file; none if it is malformed.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let lines = text.lines();
        let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let newest = lines.next()?.strip_prefix("newest ")?.parse().ok()?;
        let oldest = lines.next()?.strip_prefix("oldest ")?.parse().ok()?;
        let mut types = BTreeMap::<String, Vec<Member>>::new();
        let mut title = String::new();
        for line in lines {
            if let Some(member) = line.strip_prefix("  ") {
                let (since, text) = member.split_once(' ')?;
                types.get_mut(&title)?.push(Member {
                    since: since.parse().ok()?,
                    text: text.to_owned(),
                });
            } else {
                line.clone_into(&mut title);
                types.insert(title.clone(), Vec::new());
            }
        }
        let release = Release { newest, oldest };
        Some(Self { release, types })
    }
}

impl fmt::Display for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(INTRODUCTION)?;
        writeln!(f, "newest {}", self.release.newest)?;
        writeln!(f, "oldest {}", self.release.oldest)?;
        for (title, members) in &self.types {
            writeln!(f, "\n{title}")?;
            for Member { since, text } in members {
                writeln!(f, "  {since} {text}")?;
            }
        }
        Ok(())
    }
}

/// The differences between the messages of two releases, each as a line.
#[derive(Default)]
struct Differences {
    changed: String,
    added: String,
}

impl Differences {
    /// The members of a type now; `before` are those in the file, if it has the type.
    fn members(
        &mut self,
        title: &str,
        (before, now): (Option<&[Member]>, &[String]),
        version: u16,
    ) -> Vec<Member> {
        let is_known = before.is_some();
        let before = before.unwrap_or_default();
        for gone in before.iter().skip(now.len()) {
            let _ = write!(self.changed, "\n  {title}: no longer {}", gone.text);
        }
        let members = now.iter().enumerate().map(|(at, text)| {
            let same = before.get(at).filter(|member| member.text == *text);
            if is_known && same.is_none() {
                let is_appended = at >= before.len() && title.starts_with("enum ");
                let lines = if is_appended {
                    &mut self.added
                } else {
                    &mut self.changed
                };
                let _ = write!(lines, "\n  {title}: {text}");
            }
            Member {
                since: same.map_or(version, |member| member.since),
                text: text.clone(),
            }
        });
        members.collect()
    }
}

/// The file of a release whose messages have these types.
///
/// # Errors
/// A sentence, if the release encodes a message in another way than a version that it still speaks, or adds to a
/// version that has been there before.
pub(super) fn updated(
    known: Option<&File>,
    release: Release,
    types: &BTreeMap<String, Vec<String>>,
) -> Result<File, String> {
    let mut differences = Differences::default();
    let all = types.iter().map(|(title, now)| {
        let before = known.and_then(|file| file.types.get(title));
        let both = (before.map(Vec::as_slice), now.as_slice());
        let members = differences.members(title, both, release.newest);
        (title.clone(), members)
    });
    let now = File {
        release,
        types: all.collect(),
    };
    let Some(File {
        release: last,
        types: earlier,
    }) = known
    else {
        return Ok(now);
    };
    let Differences { mut changed, added } = differences;
    for title in earlier.keys().filter(|title| !types.contains_key(*title)) {
        let _ = write!(changed, "\n  no longer {title}");
    }
    let last = last.newest;
    if !changed.is_empty() && release.oldest <= last {
        return Err(format!(
            "these encodings differ from version {last}; append variants to enums instead, or raise VERSION and \
            OLDEST_VERSION above {last}:{changed}"
        ));
    }
    if !added.is_empty() && release.newest <= last {
        return Err(format!(
            "version {last} lacks these variants; raise VERSION above {last}:{added}"
        ));
    }
    Ok(now)
}

/// Types with members that are separated by commas.
fn types(all: &[(&str, &str)]) -> BTreeMap<String, Vec<String>> {
    let members = |text: &str| text.split(", ").map(str::to_owned).collect();
    let all = all.iter();
    all.map(|(title, text)| ((*title).to_owned(), members(text)))
        .collect()
}

const FIRST: Release = Release {
    newest: 26,
    oldest: 26,
};
const SECOND: Release = Release {
    newest: 27,
    oldest: 26,
};

fn first() -> File {
    let types = types(&[("enum Ask", "A: (), B: Body"), ("struct Body", "x: u64")]);
    updated(None, FIRST, &types).expect("there is nothing to compare")
}

#[test]
fn the_file_is_read_as_it_was_written() {
    let text = first().to_string();
    assert_eq!(File::parse(&text), Some(first()));
    assert!(text.ends_with("enum Ask\n  26 A: ()\n  26 B: Body\n\nstruct Body\n  26 x: u64\n"));
}

#[test]
fn a_variant_is_appended_in_a_new_version() {
    let more = types(&[
        ("enum Ask", "A: (), B: Body, C: More"),
        ("enum More", "M: ()"),
        ("struct Body", "x: u64"),
    ]);
    let error = updated(Some(&first()), FIRST, &more).unwrap_err();
    assert!(error.starts_with("version 26 lacks"), "{error}");
    assert!(error.ends_with("\n  enum Ask: C: More"), "{error}");
    let file = updated(Some(&first()), SECOND, &more).unwrap();
    let since = [0, 1, 2].map(|number| file.since("enum Ask", number));
    assert_eq!(since, [26, 26, 27]);
    assert_eq!(file.since("enum More", 0), 27);
}

#[test]
fn another_encoding_needs_another_oldest_version() {
    let third = Release {
        newest: 27,
        oldest: 27,
    };
    for changed in [
        // Another order, another type, another name, a variant in between, none any more.
        [("enum Ask", "B: Body, A: ()"), ("struct Body", "x: u64")],
        [("enum Ask", "A: (), B: Body"), ("struct Body", "x: u32")],
        [("enum Ask", "A: (), C: Body"), ("struct Body", "x: u64")],
        [
            ("enum Ask", "A: (), C: (), B: Body"),
            ("struct Body", "x: u64"),
        ],
        [("enum Ask", "A: ()"), ("struct Body", "x: u64")],
        // A struct has no length, so a field cannot be appended either.
        [
            ("enum Ask", "A: (), B: Body"),
            ("struct Body", "x: u64, y: u64"),
        ],
        [("enum Ask", "A: (), B: Body"), ("struct Other", "x: u64")],
    ] {
        let changed = types(&changed);
        for release in [FIRST, SECOND] {
            let error = updated(Some(&first()), release, &changed).unwrap_err();
            assert!(
                error.contains("raise VERSION and OLDEST_VERSION above 26"),
                "{error}"
            );
        }
        updated(Some(&first()), third, &changed).unwrap();
    }
}
