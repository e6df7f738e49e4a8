//! The views of a cluster that the console and the command line share: sentences, and values that both print as the
//! same JSON.

pub mod events;
pub mod explain;
pub mod files;
pub mod health;
pub mod nodes;
pub mod plan;
pub mod pools;
pub mod repair;
pub mod traffic;

/// A number with what it counts: `counted(1, "chunk is", "chunks are")`.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    let what = if count == 1 { one } else { many };
    format!("{count} {what}")
}
