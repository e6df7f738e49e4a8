//! Serves the console of a cluster of 10 000 nodes that does not exist, to measure its page: `npm run paint`.

mod cluster;

use gabion_console::{Console, ConsoleOptions};
use tokio::net::TcpListener;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let options = ConsoleOptions {
        hosts: Vec::new(),
        announce: Box::new(|password| println!("{password}")),
    };
    let console = Console::new(cluster::client(10_000).await, listener, options)?;
    println!("http://{}/", console.address());
    Err(console.serve().await)
}
