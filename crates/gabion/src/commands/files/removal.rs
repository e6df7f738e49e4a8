//! `gabion rm`: removes names one after another, or all files with a prefix, page by page and several at a time.

use crate::arguments::Place;
use crate::commands::connect;
use crate::failure::Failure;
use crate::output::{Format, Shown, counted, print_json, say, say_failure};
use futures::stream::{FuturesUnordered, StreamExt};
use gabion_client::{Cause, Client, ClientError};
use serde_json::json;
use std::io::{self, IsTerminal as _};

/// Names of one page of the list. The coordinator returns no more at once.
const PAGE_COUNT: u64 = 1_000;
/// Most removals in flight.
const AT_ONCE_COUNT: usize = 16;

pub(crate) async fn rm(
    names: Vec<String>,
    prefix: Option<String>,
    place: &Place,
    format: Format,
) -> Result<(), Failure> {
    let client = connect(place).await?;
    match prefix {
        Some(prefix) => remove_prefix(&client, &prefix, format).await,
        None => remove_names(&client, names, format).await,
    }
}

/// Removes these names, except those whose removal the coordinator refuses. Any other failure is the last step.
async fn remove_names(client: &Client, names: Vec<String>, format: Format) -> Result<(), Failure> {
    let (mut deleted, mut failures) = (Vec::new(), Vec::new());
    for name in names {
        match client.rm(name.as_str()).await {
            Ok(()) => {
                if format == Format::Text {
                    println!("deleted {name}");
                }
                deleted.push(name);
            }
            Err(error) => {
                let is_refused = matches!(error, ClientError::Refused(_));
                failures.push(error);
                if !is_refused {
                    break;
                }
            }
        }
    }
    if format == Format::Json {
        let sentences: Vec<_> = failures.iter().map(ToString::to_string).collect();
        print_json(&json!({ "deleted": deleted, "failures": sentences }))?;
    }
    let Some(last) = failures.pop() else {
        return Ok(());
    };
    for error in failures {
        say_failure(error);
    }
    Err(last.into())
}

/// Removes all files with this prefix.
async fn remove_prefix(client: &Client, prefix: &str, format: Format) -> Result<(), Failure> {
    let prints_names = format == Format::Text;
    // Names on a terminal show the progress.
    let is_shown = prints_names && io::stdout().is_terminal();
    let spinner = (!is_shown).then(|| Shown::spinner("deleting files"));
    let list = async |after: Option<String>| {
        let page = client.list(prefix, after.as_deref(), None, PAGE_COUNT);
        let page = page.await?;
        let names = page.files.into_iter().map(|file| file.name);
        Ok::<_, ClientError>(Page {
            names: names.collect(),
            is_cut: page.is_cut,
        })
    };
    let remove = async |name: &str| client.rm(name).await;
    let note = |name: &str, deleted_count: u64| {
        if prints_names {
            println!("deleted {name}");
        }
        if let Some(spinner) = &spinner {
            spinner.say(&format!(
                "deleted {}",
                counted(deleted_count, "file", "files")
            ));
        }
    };
    let removed = remove_listed(list, remove, note).await;
    drop(spinner);
    if removed.found_count == 0 && removed.failure.is_none() {
        return Err(Failure::usage(format!(
            "no file has the prefix '{prefix}'; 'gabion ls' lists all names"
        )));
    }
    if prints_names && removed.gone_count > 0 {
        say(format!(
            "{} removed by other clients",
            counted(removed.gone_count, "file was", "files were")
        ));
    }
    if format == Format::Json {
        print_json(&json!({
            "prefix": prefix,
            "deleted_count": removed.deleted_count,
            "gone_count": removed.gone_count,
            "failure": removed.failure.as_ref().map(ToString::to_string),
        }))?;
    }
    removed.failure.map_or(Ok(()), |error| Err(error.into()))
}

/// A part of the list of names.
struct Page {
    names: Vec<String>,
    /// Whether more follow.
    is_cut: bool,
}

/// The result of a removal of listed files.
#[derive(Default)]
struct Removed {
    found_count: u64,
    deleted_count: u64,
    /// Files that other clients have removed since the list was made.
    gone_count: u64,
    /// The first failure. No further removal began behind it.
    failure: Option<ClientError>,
}

/// Removes what `list` returns behind a name, page by page. `note` gets the name of each removed file and their number.
async fn remove_listed(
    list: impl AsyncFn(Option<String>) -> Result<Page, ClientError>,
    remove: impl AsyncFn(&str) -> Result<(), ClientError>,
    note: impl Fn(&str, u64),
) -> Removed {
    let mut removed = Removed::default();
    let mut after = None;
    loop {
        let page = match list(after.take()).await {
            Ok(page) => page,
            Err(error) => {
                removed.failure = Some(error);
                return removed;
            }
        };
        removed.found_count += page.names.len() as u64;
        after = page.names.last().cloned();
        let mut names = page.names.into_iter();
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < AT_ONCE_COUNT
                && removed.failure.is_none()
                && let Some(name) = names.next()
            {
                let remove = &remove;
                running.push(async move {
                    let done = remove(&name).await;
                    (name, done)
                });
            }
            match running.next().await {
                None => break,
                Some((name, Ok(()))) => {
                    removed.deleted_count += 1;
                    note(&name, removed.deleted_count);
                }
                Some((_, Err(error))) if is_gone(&error) => removed.gone_count += 1,
                Some((_, Err(error))) => {
                    removed.failure.get_or_insert(error);
                }
            }
        }
        if removed.failure.is_some() || !page.is_cut || after.is_none() {
            return removed;
        }
    }
}

/// Whether a listed file has lost its name since.
fn is_gone(error: &ClientError) -> bool {
    let ClientError::Refused(denial) = error else {
        return false;
    };
    matches!(
        denial.cause,
        // A directory may have taken its name, or a file that of a directory above.
        Cause::NotFound | Cause::IsADirectory | Cause::NotADirectory
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_client::Denial;
    use std::cell::{Cell, RefCell};

    /// Removes 2,500 files, listed in pages of 1,000. `refuse` tells of which number the removal fails, and why.
    async fn remove(refuse: impl Fn(usize) -> Option<Cause>) -> (Removed, usize) {
        let listed: Vec<String> = (0..2_500).map(|number| format!("d/{number:04}")).collect();
        let (pages, deleted) = (Cell::new(0), RefCell::new(Vec::new()));
        let (running, most) = (Cell::new(0), Cell::new(0));
        let list = async |after: Option<String>| {
            let first = after.map_or(0, |after| listed.partition_point(|name| *name <= after));
            let end = listed.len().min(first + 1_000);
            assert_eq!(first, pages.get() * 1_000);
            assert_eq!(running.get(), 0, "one page at a time");
            pages.set(pages.get() + 1);
            Ok::<_, ClientError>(Page {
                names: listed[first..end].to_vec(),
                is_cut: end < listed.len(),
            })
        };
        let remove = async |name: &str| {
            running.set(running.get() + 1);
            most.set(most.get().max(running.get()));
            // The earlier ones of those in flight take longer.
            let number: usize = name[2..].parse().expect("a number");
            for _ in 0..AT_ONCE_COUNT - number % AT_ONCE_COUNT {
                tokio::task::yield_now().await;
            }
            running.set(running.get() - 1);
            match refuse(number) {
                Some(cause) => Err(ClientError::Refused(Denial::new(cause, name))),
                None => Ok(()),
            }
        };
        let note = |name: &str, count: u64| {
            let mut deleted = deleted.borrow_mut();
            deleted.push(name.to_owned());
            assert_eq!(deleted.len() as u64, count);
        };
        let removed = remove_listed(list, remove, note).await;
        let mut deleted = deleted.into_inner();
        deleted.sort_unstable();
        deleted.dedup();
        assert_eq!(deleted.len() as u64, removed.deleted_count);
        (removed, most.get())
    }

    #[tokio::test]
    async fn files_are_removed_page_by_page_and_some_at_a_time() {
        let (removed, most) = remove(|_| None).await;
        assert!(removed.failure.is_none());
        let counts = (removed.found_count, removed.deleted_count);
        assert_eq!((counts, removed.gone_count), ((2_500, 2_500), 0));
        assert_eq!(most, 16);
    }

    #[tokio::test]
    async fn files_that_others_have_removed_are_no_failure() {
        let gone = |number| match number % 1_000 {
            10 => Some(Cause::NotFound),
            20 => Some(Cause::IsADirectory),
            30 => Some(Cause::NotADirectory),
            _ => None,
        };
        let (removed, _) = remove(gone).await;
        assert!(removed.failure.is_none());
        assert_eq!((removed.deleted_count, removed.gone_count), (2_491, 9));
    }

    #[tokio::test]
    async fn after_a_failure_no_removal_begins_and_those_in_flight_are_counted() {
        let (removed, _) = remove(|number| (number >= 1_200).then_some(Cause::Failure)).await;
        let failure = removed.failure.expect("one has failed");
        assert_eq!(failure.cause(), Cause::Failure);
        assert_eq!(removed.found_count, 2_000, "the third page is not listed");
        assert_eq!(removed.deleted_count, 1_200);
    }
}
