//! Measures HDFS: has Maven run the measurement of the plugin's project, and reads its report. The measurement starts
//! `DataNode`s, agents of this program and network namespaces, and removes them; this file starts Maven and, when it is
//! interrupted, has all of that end.

use super::steps::Turn;
use crate::LabError;
use crate::experiments::{HdfsBench, HdfsTimes};
use gabion_testbed::TestbedError;
use rustix::process::{Pid, Signal, geteuid, kill_process_group};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::{Child, Command};

/// The class that measures, and its file below the project.
const CLASS: &str = "LimitedLinksMeasurement";
const SOURCE: &str = "src/test/java/gabion/hdfs/LimitedLinksMeasurement.java";
/// Commands that the measurement uses, and what installs them.
const COMMANDS: [(&str, &str); 5] = [
    ("mvn", "Maven"),
    ("javac", "a JDK, 11 or later"),
    ("ip", "iproute2"),
    ("tc", "iproute2"),
    ("python3", "Python 3"),
];
/// Lines of Maven's log that an error shows.
const SHOWN_LINES: usize = 6;

/// The first missing prerequisite of the measurement by the project in `directory`, in one line.
pub(super) fn missing(directory: &Path) -> Option<String> {
    let path = env::var_os("PATH").unwrap_or_default();
    missing_among(directory, &path, geteuid().is_root())
}

/// The same for commands in the directories of `path`.
fn missing_among(directory: &Path, path: &OsStr, is_root: bool) -> Option<String> {
    if !directory.join(SOURCE).is_file() {
        return Some(format!(
            "{} is not the plugin of HDFS; name the directory hdfs of Gabion's sources with --hdfs",
            directory.display()
        ));
    }
    let is_command = |command: &str| {
        let in_directory = |directory: PathBuf| {
            let found = fs::metadata(directory.join(command));
            found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        };
        env::split_paths(path).any(in_directory)
    };
    if let Some((command, package)) = COMMANDS.iter().find(|(name, _)| !is_command(name)) {
        return Some(format!(
            "the command {command} is missing; install {package}"
        ));
    }
    (!is_root).then(|| "only root can limit links; run this as root".to_owned())
}

/// Runs the measurement until it is done or interrupted.
pub(super) async fn measure(directory: &Path, bench: &HdfsBench) -> Result<HdfsTimes, LabError> {
    let mut turn = Turn::begin().await?;
    let absolute = |path: &Path| std::path::absolute(path).map_err(|e| file("find", path, e));
    let project = absolute(directory)?;
    let own = absolute(&bench.directory)?;
    let (report, log) = (own.join("report.txt"), own.join("maven.txt"));
    let mut maven = start(&project, bench, &report, &log)?;
    let ended = tokio::select! {
        biased;
        () = turn.ended() => {
            end(&mut maven).await;
            return Err(TestbedError::Stopped.into());
        }
        ended = maven.wait() => ended.map_err(|e| file("wait for", Path::new("mvn"), e))?,
    };
    if !ended.success() {
        let log = fs::read_to_string(&log).unwrap_or_default();
        return Err(LabError::Cluster(format!(
            "Maven has failed: {}",
            shown(&log)
        )));
    }
    let text = fs::read_to_string(&report).map_err(|e| file("read", &report, e))?;
    HdfsTimes::parse(&text)
}

fn start(project: &Path, bench: &HdfsBench, report: &Path, log: &Path) -> Result<Child, LabError> {
    let out = File::create(log).map_err(|e| file("create", log, e))?;
    let errors = out.try_clone().map_err(|e| file("open", log, e))?;
    let program = env::current_exe().map_err(|e| file("find", Path::new("this program"), e))?;
    Command::new("mvn")
        .args(["-q", "-B", "test", "-f"])
        .arg(project.join("pom.xml"))
        .args(properties(bench, report, &program))
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(errors)
        // Ctrl-C reaches this program alone, which then ends all of them.
        .process_group(0)
        .spawn()
        .map_err(|e| file("start", Path::new("mvn"), e))
}

fn properties(bench: &HdfsBench, report: &Path, program: &Path) -> Vec<OsString> {
    let number = |name: &str, value: u32| OsString::from(format!("-Dgabion.{name}={value}"));
    let path = |name: &str, value: &Path| {
        let mut property = OsString::from(format!("-Dgabion.{name}="));
        property.push(value);
        property
    };
    vec![
        format!("-Dtest={CLASS}").into(),
        path("binary", program),
        path("report", report),
        number("k", bench.k),
        number("m", bench.m),
        number("groups", bench.group_count),
        number("mib", bench.block_mib),
        number("single-mib", bench.single_mib),
        format!("-Dgabion.rate={}mbit", bench.link_mbit).into(),
    ]
}

/// Ends Maven and all that it has started; the measurement removes its namespaces before it ends.
async fn end(maven: &mut Child) {
    let group = maven.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    if let Some(group) = group {
        // It may have ended just now.
        let _ = kill_process_group(group, Signal::TERM);
    }
    let _ = maven.wait().await;
}

/// The first errors of Maven's log in one line.
fn shown(log: &str) -> String {
    let errors = log.lines().filter(|line| line.contains("ERROR"));
    let lines: Vec<&str> = errors.map(str::trim).take(SHOWN_LINES).collect();
    if lines.is_empty() {
        "its log has no errors".to_owned()
    } else {
        lines.join(" ")
    }
}

fn file(operation: &'static str, path: &Path, source: io::Error) -> LabError {
    LabError::File {
        operation,
        path: path.display().to_string(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_prerequisite_is_named_in_one_line() {
        let directory = tempfile::tempdir().unwrap();
        let (project, bin) = (directory.path().join("hdfs"), directory.path().join("bin"));
        fs::create_dir(&bin).unwrap();
        let check = |is_root: bool, expected: Option<&str>| {
            let line = missing_among(&project, bin.as_os_str(), is_root);
            match (line, expected) {
                (None, None) => {}
                (Some(line), Some(expected)) => {
                    assert!(line.contains(expected), "{line}");
                    assert_eq!(line.lines().count(), 1);
                }
                (line, expected) => panic!("{line:?} and not {expected:?}"),
            }
        };
        check(
            true,
            Some("is not the plugin of HDFS; name the directory hdfs"),
        );
        let source = project.join(SOURCE);
        fs::create_dir_all(source.parent().unwrap()).unwrap();
        File::create(source).unwrap();
        check(true, Some("the command mvn is missing; install Maven"));
        for (command, _) in COMMANDS {
            let path = bin.join(command);
            File::create(&path).unwrap();
            check(true, Some("the command "));
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        check(false, Some("run this as root"));
        check(true, None);
    }

    #[test]
    fn an_error_shows_what_maven_says_in_one_line() {
        let log = "Picked up\n[ERROR] Tests run: 1\n[ERROR]   one.ppr is not repaired\n";
        assert_eq!(
            shown(log),
            "[ERROR] Tests run: 1 [ERROR]   one.ppr is not repaired"
        );
        assert_eq!(shown(""), "its log has no errors");
    }
}
