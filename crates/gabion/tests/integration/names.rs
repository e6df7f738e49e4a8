//! Names of stored files on clusters of real processes: lists, renames, files that take the name of another,
//! and parts of files.

use crate::support::{TestCluster, fails_on, path_text, pattern};
use futures::stream::{self, StreamExt, TryStreamExt};
use gabion_client::{ClientError, NewFile};
use gabion_meta::{AttributeChange, Existing};
use rustix::fs::{OFlags, fcntl_setfl};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, PipeReader, PipeWriter, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::time::{Duration, SystemTime};

fn names(listed: &Value) -> BTreeSet<String> {
    let rows = listed.as_array().expect("a list").iter();
    rows.map(|row| {
        let name = row.get("name").or(row.get("prefix"));
        name.and_then(Value::as_str).expect("a name").to_owned()
    })
    .collect()
}

fn set<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(str::to_owned).into()
}

fn cluster() -> TestCluster {
    let cluster = TestCluster::start(3, 2);
    cluster.run(&["pool", "create", "p", "--code=rs(2,1)", "--chunk=64KiB"]);
    cluster
}

#[test]
fn directories_are_made_moved_and_removed() {
    let cluster = cluster();
    cluster.put("in/the/file", b"bytes");
    cluster.run(&["mkdir", "empty/below"]);
    let list = |options: &[&str]| names(&cluster.json(&[&["ls"], options].concat()));
    assert_eq!(list(&["--delimiter=/"]), set(["empty/", "in/"]));
    assert_eq!(list(&[]), set(["in/the/file"]));
    for (arguments, code, words) in [
        (&["mkdir", "in/the"] as &[&str], 1, "is a directory already"),
        (&["mkdir", "in/the/file/x"], 1, "is a file, not a directory"),
        (&["mkdir", "a//b"], 2, "beside another one"),
        (&["rmdir", "in"], 1, "is not empty"),
        (&["rmdir", "none"], 1, "no directory 'none'"),
        (&["rmdir", "in/the/file"], 1, "is a file, not a directory"),
        (&["mv", "in", "in/the/new"], 2, "lies below"),
        (&["mv", "in", "empty/below"], 1, "is a directory already"),
        (&["mv", "in/the/file", "empty"], 1, "'empty' is a directory"),
        (&["mv", "none", "x"], 1, "no file and no directory 'none'"),
        (
            &["get", "in/the", "/dev/null"],
            1,
            "'in/the' is a directory",
        ),
        (&["rm", "in"], 1, "'in' is a directory"),
    ] {
        let error = fails_on(&cluster, arguments, code);
        assert!(error.contains(words), "{arguments:?}: {error}");
    }
    cluster.run(&["mv", "in/the", "out/of"]);
    assert!(cluster.get("out/of/file") == b"bytes");
    assert_eq!(list(&["--delimiter=/"]), set(["empty/", "in/", "out/"]));
    for path in ["in", "empty/below", "empty"] {
        cluster.run(&["rmdir", path]);
    }
    cluster.run(&["rm", "out/of/file"]);
    assert_eq!(list(&["--delimiter=/"]), set(["out/"]));
}

#[test]
fn modes_owners_and_times_are_kept_and_copied() {
    let cluster = cluster();
    let (source, copy) = (cluster.path("source"), cluster.path("copy"));
    fs::write(&source, b"bytes").expect("a directory of the test's own");
    let mode = fs::Permissions::from_mode(0o4751);
    fs::set_permissions(&source, mode).expect("the file is there");
    let then = SystemTime::UNIX_EPOCH + Duration::from_millis(1_000_000_000_500);
    let local = fs::File::options().write(true).open(&source);
    let local = local.expect("the file is there");
    local.set_modified(then).expect("a time");
    let of = |name: &str| cluster.json(&["stat", name])["attributes"].take();

    cluster.run(&["put", path_text(&source), "d/plain"]);
    let plain = of("d/plain");
    assert_eq!(plain["mode"], "0751", "rights of the runner are not copied");
    let user = fs::metadata(&source).expect("the file is there").uid();
    assert_eq!(
        (&plain["owner"], &of("d")["owner"]),
        (&json!(user), &json!(user))
    );
    assert_eq!(plain["modified"], plain["created"]);
    cluster.run(&["put", "--preserve", path_text(&source), "d/kept"]);
    let kept = of("d/kept");
    assert_eq!(kept["mode"], "4751");
    assert_eq!(kept["modified"], "2001-09-09T01:46:40.5Z");
    let listed = cluster.run(&["ls", "d/kept"]);
    assert!(listed.contains("2001-09-09 01:46:40"), "{listed}");

    cluster.run(&["get", "--preserve", "d/kept", path_text(&copy)]);
    let metadata = fs::metadata(&copy).expect("it was written");
    assert_eq!(metadata.mode() & 0o7777, 0o751);
    assert_eq!(metadata.modified().expect("a time"), then);

    let changed = cluster.run(&["chmod", "640", "d", "d/kept"]);
    assert_eq!(changed, "changed d\nchanged d/kept\n");
    cluster.run(&["chown", "7:8", "d/kept"]);
    cluster.run(&["chown", ":9", "d/kept"]);
    cluster.run(&["mv", "d/kept", "d/moved"]);
    cluster.run(&["append", "d/moved", path_text(&source)]);
    let moved = of("d/moved");
    assert_eq!(
        (&moved["mode"], &moved["owner"], &moved["group"]),
        (&json!("0640"), &json!(7), &json!(9))
    );
    assert_ne!(moved["modified"], kept["modified"], "it has grown");
    assert_eq!(moved["created"], kept["created"]);
    assert_eq!(of("d")["mode"], "0640");
    let before = of("d/moved");
    cluster.write("d/moved", 1, b"in place");
    assert!(text_of(&of("d/moved")["modified"]) > text_of(&before["modified"]));
    cluster.run(&["chmod", "1777", "/"]);
    assert_eq!(of("/")["mode"], "1777");
    let partly = cluster.output(&["--format=json", "chmod", "600", "d", "none", "d/plain"]);
    let changed: Value = serde_json::from_slice(&partly.stdout).expect("JSON");
    assert_eq!(
        (partly.status.code(), changed.as_array().map(Vec::len)),
        (Some(1), Some(1))
    );
    assert_eq!(
        of("d/plain")["mode"],
        "0751",
        "it is behind the one that is missing"
    );
}

fn text_of(value: &Value) -> &str {
    value.as_str().expect("a text")
}

#[test]
fn files_have_several_names_and_symbolic_links_lead_to_them() {
    let cluster = cluster();
    cluster.put("f", b"bytes");
    cluster.run(&["ln", "f", "d/g"]);
    let linked = cluster.run(&["ln", "-s", "../f", "d/l"]);
    assert!(linked.contains("a symbolic link to ../f"), "{linked}");
    for (arguments, code, words) in [
        (
            &["ln", "none", "x"] as &[&str],
            1,
            "no file and no directory 'none'",
        ),
        (&["ln", "d", "x"], 1, "cannot have hard links"),
        (&["ln", "f", "d/g"], 1, "already exists"),
        (&["ln", "-s", "x", "d/l"], 1, "already exists"),
        (&["ln", "-s", "", "x"], 2, "needs a target"),
        (&["ln", "f", "x", "--pool=p"], 2, "--symbolic"),
        (
            &["get", "d/l", "/dev/null"],
            1,
            "is a symbolic link to \"../f\"",
        ),
        (
            &["write", "d/l", "/dev/null", "--offset=0"],
            1,
            "symbolic link",
        ),
    ] {
        let error = fails_on(&cluster, arguments, code);
        assert!(error.contains(words), "{arguments:?}: {error}");
    }
    assert_eq!(names(&cluster.json(&["ls"])), set(["f", "d/g", "d/l"]));
    assert!(cluster.run(&["ls"]).contains("d/l -> ../f"));
    assert_eq!(cluster.json(&["stat", "d/l"])["symlink_to"], json!("../f"));
    assert!(cluster.run(&["stat", "d/g"]).contains("2 names"));
    cluster.run(&["rm", "f"]);
    assert_eq!(cluster.get("d/g"), b"bytes");
    cluster.run(&["mv", "d/g", "h"]);
    cluster.run(&["rm", "d/l", "h"]);
    assert_eq!(names(&cluster.json(&["ls"])), set([]));
}

#[test]
fn copies_are_whole_and_have_the_holes_of_their_originals() {
    let cluster = cluster();
    let bytes = pattern(300_000, 8);
    cluster.put("d/f", &bytes);
    cluster.run(&["chmod", "4604", "d/f"]);
    let of = |name: &str| cluster.json(&["stat", name]);
    cluster.run(&["cp", "d/f", "copy"]);
    assert!(cluster.get("copy") == bytes);
    assert_eq!(of("copy")["attributes"]["mode"], "0604");
    cluster.run(&["cp", "--preserve", "d/f", "e/kept"]);
    let (kept, original) = (of("e/kept"), of("d/f"));
    for key in ["mode", "owner", "group", "accessed", "modified"] {
        assert_eq!(
            kept["attributes"][key], original["attributes"][key],
            "{key}"
        );
    }
    let error = fails_on(&cluster, &["cp", "d/f", "copy"], 1);
    assert!(error.contains("'copy' already exists"), "{error}");

    cluster.run(&["create", "sparse", "--size=1GiB"]);
    cluster.write("sparse", 700_000_000, b"an island");
    cluster.run(&["cp", "--replace", "--preserve", "sparse", "copy"]);
    let (copy, original) = (of("copy"), of("sparse"));
    for key in ["bytes", "hole_bytes"] {
        assert_eq!(copy[key], original[key], "{key}");
    }
    assert_eq!(
        copy["attributes"]["modified"],
        original["attributes"]["modified"]
    );
    let part = ["get", "copy", "-", "--offset=699999990", "--length=20"];
    let expected = [&[0; 10][..], b"an island", &[0]].concat();
    assert!(cluster.output(&part).stdout == expected);
    let all = names(&cluster.json(&["ls"]));
    assert_eq!(
        all,
        set(["copy", "d/f", "e/kept", "sparse"]),
        "nothing else is left"
    );

    for (arguments, code, words) in [
        (&["cp", "none", "x"] as &[&str], 1, "no file 'none'"),
        (&["cp", "d", "x"], 1, "'d' is a directory"),
        (&["cp", "d/f", "e"], 1, "'e' is a directory"),
        (
            &["cp", "--replace", "d/f", "d/f"],
            2,
            "is the source itself",
        ),
        (&["cp", "--replace", "d/f", "e"], 1, "'e' is a directory"),
        (&["cp", "--replace", "sparse", "e"], 1, "'e' is a directory"),
        (&["cp", "--pool=none", "d/f", "x"], 1, "no pool 'none'"),
        (&["cp", "d/f", "a//b"], 2, "beside another one"),
    ] {
        let error = fails_on(&cluster, arguments, code);
        assert!(error.contains(words), "{arguments:?}: {error}");
    }
    assert_eq!(names(&cluster.json(&["ls"])), all);
}

#[test]
fn wrong_attributes_are_refused_in_one_sentence() {
    let cluster = cluster();
    cluster.put("d/f", b"bytes");
    for (arguments, code, words) in [
        (
            &["chmod", "888", "d"] as &[&str],
            2,
            "an octal number of at most 7777",
        ),
        (
            &["chmod", "10000", "d"],
            2,
            "an octal number of at most 7777",
        ),
        (&["chmod", "", "d"], 2, "an octal number of at most 7777"),
        (&["chmod", "640"], 2, "required"),
        (&["chmod", "640", "none"], 1, "no directory 'none'"),
        (&["chown", "root", "d"], 2, "are numbers"),
        (&["chown", ":", "d"], 2, "are numbers"),
        (&["chown", "1:-1", "d"], 2, "are numbers"),
        (&["chown", "4294967295", "d"], 2, "are numbers"),
        (&["chmod", "640", "//"], 2, "beside another one"),
        (
            &["put", "--preserve", "/dev/null", "x"],
            2,
            "not a regular file",
        ),
        (
            &["get", "--preserve", "d/f", "/dev/null"],
            2,
            "keep no mode",
        ),
        (&["stat", "none"], 1, "no directory 'none'"),
    ] {
        let error = fails_on(&cluster, arguments, code);
        assert!(error.contains(words), "{arguments:?}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn attributes_of_an_open_file_are_its_own_under_any_name() {
    let cluster = cluster();
    let (one, other) = (cluster.client().await, cluster.client().await);
    cluster.put("f", b"first");
    let file = one.open("f").await.expect("it is there");
    other
        .rename("f", "g", Existing::Stays)
        .await
        .expect("it is free");
    cluster.put("f", b"second");
    let change = AttributeChange {
        mode: Some(0o400),
        ..AttributeChange::default()
    };
    let set = file.set_attributes(&change).await.expect("it is there");
    assert_eq!(file.attributes().await.expect("it is there"), set);
    let mode = async |name: &str| {
        other
            .inode(name)
            .await
            .expect("it is there")
            .attributes
            .mode
    };
    assert_eq!(mode("g").await, 0o400);
    assert_ne!(mode("f").await, 0o400);
    other.rm("g").await.expect("it is there");
    let gone = file.set_attributes(&change).await;
    assert!(matches!(gone, Err(ClientError::FileGone(_))), "{gone:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_renames_of_a_file_at_one_moment_one_is_refused() {
    let cluster = cluster();
    let (one, other) = (cluster.client().await, cluster.client().await);
    cluster.run(&["create", "file-0"]);
    let mut name = "file-0".to_owned();
    for round in 0..1_000 {
        let [first, second] = ["a", "b"].map(|side| format!("file-{round}-{side}"));
        // The second look-up is at another moment of the first rename each time.
        let apart = Duration::from_micros(50 * (round % 60));
        let later = async {
            tokio::time::sleep(apart).await;
            other.rename(&name, &second, Existing::Stays).await
        };
        let (to_first, to_second) =
            futures::join!(one.rename(&name, &first, Existing::Stays), later);
        assert!(
            to_first.is_ok() != to_second.is_ok(),
            "round {round}: {to_first:?} and {to_second:?}"
        );
        name = if to_first.is_ok() { first } else { second };
    }
    let names = one.ls("").await.expect("the cluster answers");
    assert_eq!(
        names.into_iter().map(|file| file.name).collect::<Vec<_>>(),
        [name]
    );
}

#[test]
fn files_are_listed_by_pages_and_directories_and_removed_by_prefix() {
    let cluster = cluster();
    for name in ["a", "d/1", "d/2/x", "d/2/y", "e"] {
        cluster.put(name, name.as_bytes());
    }
    let list = |options: &[&str]| names(&cluster.json(&[&["ls"], options].concat()));
    assert_eq!(list(&["--delimiter=/"]), set(["a", "d/", "e"]));
    assert_eq!(list(&["d/", "--delimiter=/"]), set(["d/1", "d/2/"]));
    assert_eq!(list(&["--after=d/1", "--limit=2"]), set(["d/2/x", "d/2/y"]));
    let table = cluster.run(&["ls", "--delimiter=/"]);
    assert!(table.contains("d/") && !table.contains("d/1"), "{table}");
    cluster.run(&["rm", "--prefix=d/"]);
    assert_eq!(list(&[]), set(["a", "e"]));
    cluster.run(&["rm", "a", "e"]);
    assert_eq!(list(&[]), set([]));
    let error = fails_on(&cluster, &["rm", "--prefix=d/"], 2);
    assert!(error.contains("has the prefix 'd/'"), "{error}");
    fails_on(&cluster, &["rm"], 2);
    fails_on(&cluster, &["ls", "--limit=0"], 2);
}

/// A pipe that is full of empty lines: who writes to it waits until it is read.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    fcntl_setfl(&writer, OFlags::NONBLOCK).expect("it is open");
    while writer.write(&[b'\n'; 4096]).is_ok() {}
    fcntl_setfl(&writer, OFlags::empty()).expect("it is open");
    (reader, writer)
}

/// 2,500 names are three pages of the list.
#[tokio::test(flavor = "multi_thread")]
async fn files_are_removed_by_prefix_while_another_client_removes_some_of_them() {
    let cluster = cluster();
    let client = cluster.client().await;
    let name = |number: u32| format!("d/{number:04}");
    let made = (0..2_500).map(|number| {
        let (client, name) = (&client, name(number));
        async move { client.create(NewFile::named(&name)).await.map(drop) }
    });
    let made = stream::iter(made).buffer_unordered(64);
    made.try_collect::<()>().await.expect("there is room");
    client.create(NewFile::named("e")).await.expect("it is new");
    let mut command = cluster.command(&["rm", "--prefix=d/"]);
    let (reader, writer) = full_pipe();
    let mut removal = command.stdout(writer).spawn().expect("it starts");
    // It has an end to write to.
    drop(command);
    // The command has the whole first page when it removes a name. It waits then until that is read, with few more
    // removals in flight.
    while client.ls("d/00").await.expect("the cluster answers").len() == 100 {
        let ended = removal.try_wait().expect("the child is ours");
        assert_eq!(ended, None, "it waits until it is read");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let removed = (900..1_000).map(|number| {
        let (client, name) = (&client, name(number));
        async move { client.rm(name.as_str()).await }
    });
    let removed = stream::iter(removed).buffer_unordered(64);
    removed.try_collect::<()>().await.expect("they are there");
    let by_other = 100;
    let lines = BufReader::new(reader)
        .lines()
        .map(|line| line.expect("text"));
    let lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
    let deleted = lines.iter().filter(|line| line.starts_with("deleted "));
    let deleted: BTreeSet<&String> = deleted.collect();
    assert!(removal.wait().expect("it ends").success());
    assert_eq!(
        deleted.len() + by_other,
        2_500,
        "{by_other} by another client"
    );
    assert_eq!(names(&cluster.json(&["ls"])), set(["e"]));
    for number in 0..3 {
        client
            .create(NewFile::named(&name(number)))
            .await
            .expect("it is new");
    }
    let removed = cluster.json(&["rm", "--prefix=d/"]);
    let all = json!({ "prefix": "d/", "deleted_count": 3, "gone_count": 0, "failure": null });
    assert_eq!(removed, all);
}

#[test]
fn a_removal_goes_on_after_a_name_that_is_refused_and_tells_what_it_has_removed() {
    let cluster = cluster();
    for name in ["a", "b"] {
        cluster.put(name, b"bytes");
    }
    let output = cluster.output(&["rm", "a", "none", "b", "--format=json"]);
    assert_eq!(output.status.code(), Some(1));
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(told["deleted"], json!(["a", "b"]));
    let failures = told["failures"].as_array().expect("a list");
    let [failure] = &failures[..] else {
        panic!("{failures:?}");
    };
    assert!(failure.as_str().expect("a sentence").contains("'none'"));
    assert_eq!(names(&cluster.json(&["ls"])), set([]));
}

#[test]
fn a_file_is_renamed_and_replaced_as_a_whole() {
    let cluster = cluster();
    let (first, second) = (pattern(300_000, 1), pattern(200_000, 2));
    cluster.put("draft", &first);
    cluster.put("final", &second);
    let error = fails_on(&cluster, &["mv", "draft", "final"], 1);
    assert!(error.contains("'final' already exists"), "{error}");
    assert!(cluster.get("final") == second);
    cluster.run(&["mv", "--replace", "draft", "final"]);
    assert!(cluster.get("final") == first);
    assert_eq!(names(&cluster.json(&["ls"])), set(["final"]));
    fails_on(&cluster, &["mv", "draft", "other"], 1);
    // In place writes reach the file by its new name.
    cluster.write("final", 70_000, b"new");
    let expected = [&first[..70_000], b"new", &first[70_003..]].concat();
    assert!(cluster.get("final") == expected);

    let source = cluster.path("source");
    fs::write(&source, &second).expect("a directory of the test's own");
    let error = fails_on(&cluster, &["put", path_text(&source), "final"], 1);
    assert!(error.contains("'final' already exists"), "{error}");
    cluster.run(&["put", "--replace", path_text(&source), "final"]);
    assert!(cluster.get("final") == second);
    cluster.run(&["put", "--replace", path_text(&source), "another"]);
    assert!(cluster.get("another") == second);
    cluster.assert_no_damage();
}

#[test]
fn two_names_are_exchanged() {
    let cluster = cluster();
    let (first, second) = (pattern(300_000, 1), pattern(200_000, 2));
    cluster.put("blue", &first);
    cluster.put("d/green", &second);
    cluster.run(&["mv", "--exchange", "blue", "d/green"]);
    assert!(cluster.get("blue") == second);
    assert!(cluster.get("d/green") == first);
    let told = cluster.json(&["mv", "--exchange", "d", "blue"]);
    assert_eq!(told["exchanged"], serde_json::json!(["d", "blue"]));
    assert!(cluster.get("blue/green") == first);
    assert!(cluster.get("d") == second);
    let error = fails_on(&cluster, &["mv", "--exchange", "blue/green", "blue"], 2);
    assert!(error.contains("lies below the directory"), "{error}");
    let error = fails_on(&cluster, &["mv", "--exchange", "d", "none"], 1);
    assert!(error.contains("none"), "{error}");
}

#[test]
fn a_part_of_a_file_is_read_alone() {
    let cluster = cluster();
    let bytes = pattern(300_000, 3);
    cluster.put("f", &bytes);
    let target = cluster.path("part");
    let get = |options: &[&str]| {
        cluster.run(&[&["get", "f", path_text(&target)], options].concat());
        fs::read(&target).expect("it was written")
    };
    assert!(get(&["--offset=131000", "--length=5000"]) == bytes[131_000..136_000]);
    assert!(get(&["--offset=299990"]) == bytes[299_990..]);
    assert!(get(&["--length=7"]) == bytes[..7]);
    assert!(get(&["--offset=300000"]).is_empty());
    fs::remove_file(&target).expect("it is there");
    for range in [&["--offset=300001"][..], &["--offset=1", "--length=300000"]] {
        let arguments = [&["get", "f", path_text(&target)], range].concat();
        let error = fails_on(&cluster, &arguments, 2);
        assert!(error.contains("has 300000 bytes"), "{error}");
        assert!(!target.exists(), "{error}");
    }
    let piped = cluster.output(&["get", "f", "-", "--length=9"]);
    assert!(piped.stdout == bytes[..9]);
}

#[tokio::test]
async fn a_file_is_removed_by_its_name_only_while_the_name_is_its_own() {
    let cluster = cluster();
    let client = cluster.client().await;
    let first = client
        .create(NewFile::named("f"))
        .await
        .expect("a new file");
    client.rm("f").await.expect("it is there");
    let second = client
        .create(NewFile::named("f"))
        .await
        .expect("a new file");
    let removed = first.remove().await;
    assert!(
        matches!(removed, Err(ClientError::FileGone(_))),
        "{removed:?}"
    );
    second.remove().await.expect("it has the name");
    assert!(client.find("f").await.expect("an answer").is_none());
}
