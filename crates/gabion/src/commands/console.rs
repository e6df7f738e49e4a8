//! `gabion console`: the operator's console, served to browsers.

use super::connect_with;
use super::serve::{listen_on, raise_descriptor_limit, ready};
use crate::arguments::{ConsoleArguments, Place};
use crate::failure::{Context, Failure};
use crate::output_file::write_secret;
use gabion_client::ClientOptions;
use gabion_console::{Console, ConsoleOptions};
use gabion_testbed::EndSignals;
use std::io::{self, Write as _};
use std::time::Duration;

/// Time limit of a request to the cluster. It is short, so that a browser soon learns of a missing answer.
const DEADLINE: Duration = Duration::from_secs(5);

pub(crate) async fn run(arguments: ConsoleArguments, place: &Place) -> Result<(), Failure> {
    raise_descriptor_limit();
    let ConsoleArguments {
        listen,
        hosts,
        password_file,
    } = arguments;
    let options = ClientOptions {
        deadline: DEADLINE,
        ..ClientOptions::default()
    };
    let client = connect_with(place, options).await?;
    let listener = listen_on(&listen, "--listen").await?;
    if let Some(file) = &password_file {
        write_secret(file, "").context(format!("write {}", file.display()))?;
    }
    let announce = move |password: &str| match &password_file {
        Some(file) => {
            if let Err(error) = write_secret(file, password) {
                tracing::warn!(%error, file = %file.display(), "cannot write the next password");
            }
        }
        None => tell(password),
    };
    let options = ConsoleOptions {
        hosts,
        announce: Box::new(announce),
    };
    let console = Console::new(client, listener, options).map_err(Failure::usage)?;
    let mut ends = EndSignals::listen()?;
    ready(&format!("http://{}/", console.address()));
    tokio::select! {
        error = console.serve() => Err(Failure::failed(format!("cannot accept connections: {error}"))),
        () = ends.recv() => Ok(()),
    }
}

/// Prints the valid password. The process that started this one may have ended already.
fn tell(password: &str) {
    let mut stdout = io::stdout();
    let _ = writeln!(stdout, "one-time password: {password}").and_then(|()| stdout.flush());
}
