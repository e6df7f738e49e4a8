//! `gabion lab update-traffic` and `gabion lab bound` on the command line, held against exact counts.

use crate::support::{fails, run, trace};
use serde_json::{Value, json};

fn json(arguments: &[&str]) -> Value {
    let all = [&["--format=json", "lab"], arguments].concat();
    serde_json::from_str(&run(&all)).expect("JSON")
}

#[test]
fn wdev_1_costs_what_the_analysis_of_cau_says() {
    let Some(wdev_1) = trace("msr/wdev_1.csv") else {
        return;
    };
    let counted = json(&[
        "update-traffic",
        "--trace",
        &wdev_1,
        "--code=rs(6,3)",
        "--racks=3",
        "--layout=rotate",
        "--chunk=1MiB",
        "--scheme=baseline,parix,cau",
        "--us=2",
        "--grouping=off",
    ]);
    let cau = json!({"cross_rack_chunks": 1745, "replica": 1056, "commit": 689, "grouping": 0});
    assert_eq!(counted["schemes"]["cau"], cau);
    assert_eq!(
        counted["schemes"]["baseline"],
        json!({"cross_rack_chunks": 2400})
    );
    assert_eq!(
        counted["schemes"]["parix"],
        json!({"cross_rack_chunks": 2417})
    );
}

#[test]
fn grouping_is_counted_in_bytes_as_in_chunks() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let trace = directory.path().join("wdev_1.csv");
    let trace = trace.to_str().expect("a path in UTF-8");
    run(&["lab", "synth", "--volume=wdev_1", "--out", trace]);
    let of = |command: &[&str], rule: &str| {
        let grouping = format!("--grouping={rule}");
        let setting = ["--racks=3", "--code=rs(6,3)", "--chunk=4KiB", "--us=2"];
        let further = ["--scheme=cau", "--trace", trace, grouping.as_str()];
        json(&[command, &setting, &further].concat())
    };
    // The unit, the fields of what is moved and of all, and the bytes of one.
    let units = [
        ("--unit=bytes", "grouping_bytes", "cross_rack_bytes", 1),
        ("--unit=chunks", "grouping", "cross_rack_chunks", 4096),
    ];
    for (unit, moved, all, unit_bytes) in units {
        for rule in ["off", "authors"] {
            let counted = &of(&["update-traffic", unit], rule)["schemes"]["cau"];
            let is_grouped = counted[moved].as_u64() > Some(0);
            assert_eq!(is_grouped, rule == "authors", "{unit}: {counted}");
            let advised = &of(&["advise", unit], rule)[0];
            let counted_bytes = counted[all].as_u64().map(|count| count * unit_bytes);
            assert_eq!(
                advised["cross_rack_bytes"].as_u64(),
                counted_bytes,
                "{unit}, {rule}"
            );
        }
    }
}

#[test]
fn the_bound_of_the_papers_example_is_what_rackcu_sends() {
    let found = json(&["bound", "--code=rs(6,4)", "--layout=3x2+2x2"]);
    assert_eq!(found["bound"], 8.0);
    assert_eq!(
        found["schemes"],
        json!({"baseline": 24, "cau-selective": 12, "rackcu": 8})
    );
    let printed = run(&[
        "lab",
        "bound",
        "--code=rs(6,4)",
        "--layout=3x2+2x2",
        "--update=0,1",
    ]);
    assert!(printed.contains("at least 4 chunk transfers"), "{printed}");
}

#[test]
fn names_that_nothing_has_are_refused() {
    let arguments = [
        "lab",
        "update-traffic",
        "--trace=none",
        "--code=rs(6,3)",
        "--racks=3",
        "--grouping=sometimes",
    ];
    let message = fails(&arguments, 2);
    let words: Vec<&str> = message.split_whitespace().collect();
    let wanted = "there is no rule 'sometimes'; choose from algorithm-1, authors and off";
    assert!(words.join(" ").contains(wanted), "{message}");
    let message = fails(
        &[
            "lab",
            "bound",
            "--code=rs(6,4)",
            "--layout=3x2+2x2",
            "--update=7",
        ],
        2,
    );
    assert!(message.contains("data chunks 0 to 5"), "{message}");
}
