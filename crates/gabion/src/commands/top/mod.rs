//! `gabion top`: an overview of the cluster, on a terminal until a key ends it, or once as text or JSON.

mod screen;
mod view;

use super::connect;
use crate::arguments::{Place, TopOptions};
use crate::failure::Failure;
use crate::output::{Format, print_json};
use gabion_client::ClientError;
use gabion_console::view::traffic::Sample;
use gabion_testbed::EndSignals;
use screen::Screen;
use std::io::IsTerminal as _;
use std::time::Duration;

/// Interval at which the age of an overdue refresh is shown, and the delay before the first time.
const AGE_EVERY: Duration = Duration::from_secs(1);
const LATE_AFTER: Duration = Duration::from_secs(2);

pub(crate) async fn run(options: TopOptions, place: &Place, format: Format) -> Result<(), Failure> {
    let is_once = options.once || format == Format::Json;
    if !is_once && !std::io::stdout().is_terminal() {
        return Err(Failure::usage(
            "the output is not a terminal; use 'gabion top --once' for plain text",
        ));
    }
    let client = connect(place).await?;
    let interval = Duration::from_secs(options.interval);
    let mut before = Sample::take(&client).await?;
    if is_once {
        tokio::time::sleep(interval).await;
        let now = Sample::take(&client).await?;
        if format == Format::Json {
            return print_json(&view::as_json(&now, &now.since(&before)));
        }
        for line in view::lines(&now, Some(&now.since(&before)), usize::MAX) {
            println!("{}", line.text);
        }
        return Ok(());
    }
    let mut signals = EndSignals::listen()?;
    let mut screen = Screen::open()?;
    screen.show(|rows| view::lines(&before, None, rows))?;
    let mut rates = None;
    loop {
        let looked = async {
            tokio::time::sleep(interval).await;
            Sample::take(&client).await
        };
        tokio::pin!(looked);
        let now = loop {
            tokio::select! {
                () = screen.ended() => return Ok(()),
                () = signals.recv() => return Ok(()),
                now = &mut looked => break now,
                () = tokio::time::sleep(AGE_EVERY) => {}
            }
            if before.age() > interval + LATE_AFTER {
                screen.show(|rows| view::aged(&before, rates.as_ref(), rows))?;
            }
        };
        match now {
            Ok(now) => {
                rates = Some(now.since(&before));
                screen.show(|rows| view::lines(&now, rates.as_ref(), rows))?;
                before = now;
            }
            // While the coordinator is away, the last look stays.
            Err(ClientError::NoCoordinator(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
