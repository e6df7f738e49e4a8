//! Mutants of commands: the files that they write, the directory of a cluster, and its status.

use super::super::mutant::{Mutant, command, process, unit};

/// All of them.
pub(super) const MUTANTS: &[Mutant] = &[
    // Files that a command writes.
    Mutant {
        name: "a-download-goes-through-a-part-file",
        file: "crates/gabion/src/output_file.rs",
        text: "let (file, name) = create_temporary(&directory)?;",
        replacement: "let path = PathBuf::from(format!(\"{}.part\", target.display()));\n        let (file, name) = match create_temporary(&directory)? {\n            (_, None) => (File::create(&path)?, Some(TemporaryName(path))),\n            named => named,\n        };",
        check: process("output::get_writes_where_its_target_leads_and_destroys_nothing"),
    },
    Mutant {
        name: "a-download-takes-the-place-of-a-link",
        file: "crates/gabion/src/output_file.rs",
        text: "let target = fs::canonicalize(path).context(doing())?;",
        replacement: "let target = path.to_owned();",
        check: command("output_file::tests::a_link_stays_and_what_it_leads_to_is_replaced"),
    },
    Mutant {
        name: "a-directory-is-refused-after-the-download",
        file: "crates/gabion/src/output_file.rs",
        text: "if found.is_dir() {",
        replacement: "if found.is_dir() {\n            return Self::beside(path, path.to_owned(), None).context(doing());\n        }\n        if found.ino() == 0 {",
        check: command("output_file::tests::a_device_is_written_and_a_directory_refused"),
    },
    Mutant {
        name: "a-reader-that-has-gone-is-an-error",
        file: "crates/gabion/src/output.rs",
        text: "if error.kind() == ErrorKind::BrokenPipe {",
        replacement: "if error.kind() == ErrorKind::BrokenPipe && error.raw_os_error().is_none() {",
        check: process("output::a_full_stdout_and_a_reader_that_has_gone_end_a_command_quietly"),
    },
    Mutant {
        name: "a-full-stdout-is-passed-over",
        file: "crates/gabion/src/output.rs",
        text: "let _ = STDOUT_FAILURE.set(write_failure(&\"stdout\", &error));",
        replacement: "drop(write_failure(&\"stdout\", &error));",
        check: process("output::a_full_stdout_and_a_reader_that_has_gone_end_a_command_quietly"),
    },
    // The directory of a cluster.
    Mutant {
        name: "two-commands-start-one-cluster-at-once",
        file: "crates/gabion/src/commands/cluster.rs",
        text: "let _lock = lock(&directory)?;",
        replacement: "let _lock = lock(&directory);",
        check: process("cluster_directory::a_directory_that_is_locked_is_left_alone"),
    },
    Mutant {
        name: "options-that-differ-from-a-cluster-s-are-passed-over",
        file: "crates/testbed/src/cluster/shape.rs",
        text: "self.is_given(has.0) && has != wants",
        replacement: "self.is_given(has.0) && has.0 != wants.0",
        check: process("cluster_directory::options_that_differ_from_the_clusters_are_refused"),
    },
    Mutant {
        name: "nodes-of-a-stopped-cluster-start-one-after-the-other",
        file: "crates/testbed/src/cluster/mod.rs",
        text: "(0..self.node_count()).partition(was_made);",
        replacement: "(0..self.node_count()).partition(|node| was_made(node) && *node > 1 << 20);",
        check: process("cluster_directory::a_cluster_comes_up_again_whatever_ports_its_nodes_get"),
    },
    Mutant {
        name: "a-process-that-was-killed-just-now-counts-as-running",
        file: "crates/testbed/src/cluster/process.rs",
        text: "has_kill(\"ShdPnd:\") || has_kill(\"SigPnd:\") || field",
        replacement: "has_kill(\"none\") || field",
        check: unit(
            "gabion-testbed",
            "cluster::process::tests::a_process_is_ending_once_it_is_killed",
        ),
    },
    // The status.
    Mutant {
        name: "a-status-is-as-old-as-its-newest-report",
        file: "crates/console/src/view/health.rs",
        text: ".max()",
        replacement: ".min()",
        check: unit(
            "gabion-console",
            "view::health::tests::green_means_no_problem",
        ),
    },
    Mutant {
        name: "a-status-does-not-say-how-old-it-is",
        file: "crates/gabion/src/commands/health.rs",
        text: "repair is due; {age}\"",
        replacement: "repair is due\"",
        check: process("health::status_and_log_tell_of_a_node_that_dies_and_of_repairs"),
    },
];
