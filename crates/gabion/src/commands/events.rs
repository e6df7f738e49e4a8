//! `gabion events`: the coordinator's event log.

use super::connect;
use crate::arguments::{EventsOptions, Place};
use crate::failure::Failure;
use crate::output::{Format, print_json, remark, say, written};
use gabion_client::{Client, ClientError};
use gabion_console::view::events::{EventView, time};
use gabion_protocol::message::{EventPage, LoggedEvent, ask};
use jiff::Timestamp;
use std::time::Duration;

/// Events without `--last` and `--since`.
const LAST_COUNT: u64 = 100;
/// Maximum number of events in one request.
const PAGE_COUNT: u64 = 1000;
/// Time without an answer after which a coordinator counts as unreachable.
const AWAY_AFTER: Duration = Duration::from_secs(2);
/// Interval of asking for new events.
const ASK_EVERY: Duration = Duration::from_millis(500);

pub(crate) async fn run(
    options: EventsOptions,
    place: &Place,
    format: Format,
) -> Result<(), Failure> {
    let client = connect(place).await?;
    let (mut events, mut after) = kept(&client, &options).await?;
    events.retain(|event| is_wanted(event, &options));
    if !options.follow {
        if format == Format::Json {
            return print_json(&events.iter().map(EventView::of).collect::<Vec<_>>());
        }
        if events.is_empty() {
            println!("there are no events");
        }
        return print(&events, Format::Text);
    }
    print(&events, format)?;
    loop {
        tokio::time::sleep(ASK_EVERY).await;
        let page = next(&client, after).await?;
        after = page.last;
        let new = page.events.into_iter();
        let new: Vec<LoggedEvent> = new.filter(|event| is_wanted(event, &options)).collect();
        print(&new, format)?;
    }
}

/// The events after one. Waits for an unreachable coordinator, and prints that it waits.
async fn next(client: &Client, after: u64) -> Result<EventPage, Failure> {
    let mut is_away = false;
    loop {
        let asked = client.events(page_after(after, None));
        tokio::pin!(asked);
        let page = loop {
            tokio::select! {
                page = &mut asked => break page,
                () = tokio::time::sleep(AWAY_AFTER), if !is_away => {
                    is_away = true;
                    eprintln!("the coordinator does not answer; its events follow after its next answer");
                }
            }
        };
        match page {
            Err(error @ ClientError::NoCoordinator(_)) => remark(error),
            Err(error) => return Err(error.into()),
            Ok(page) => {
                if is_away {
                    eprintln!("the coordinator answers again");
                }
                return Ok(page);
            }
        }
    }
}

/// The requested events so far, and the number after which new events follow.
async fn kept(
    client: &Client,
    options: &EventsOptions,
) -> Result<(Vec<LoggedEvent>, u64), Failure> {
    let since_ms = options.since.map(Timestamp::as_millisecond);
    let mut events = Vec::new();
    let mut after = 0;
    loop {
        let page = client.events(page_after(after, since_ms)).await?;
        events.extend(page.events);
        after = page.last;
        if !page.is_cut {
            break;
        }
    }
    let default = options.since.is_none().then_some(LAST_COUNT);
    if let Some(last) = options.last.or(default) {
        events.retain(|event| is_wanted(event, options));
        events.drain(..events.len().saturating_sub(last as usize));
    }
    Ok((events, after))
}

fn page_after(after: u64, since_ms: Option<i64>) -> ask::Events {
    ask::Events {
        after,
        since_ms,
        limit: PAGE_COUNT,
    }
}

fn is_wanted(event: &LoggedEvent, options: &EventsOptions) -> bool {
    let is_repair = || {
        matches!(
            event.kind.as_str(),
            "repair_began" | "repair_ended" | "repair_failed"
        )
    };
    !(options.no_repairs && is_repair())
}

fn print(events: &[LoggedEvent], format: Format) -> Result<(), Failure> {
    for event in events {
        if format == Format::Json {
            print_json(&EventView::of(event))?;
        } else {
            let mark = if event.is_warning { "!" } else { " " };
            say(format!(
                "{} {mark} {}: {}",
                time(event),
                event.kind,
                event.sentence
            ));
        }
    }
    written()
}
