//! What is shown of a cluster, by the console and by the command line alike: sentences, and values that both print as
//! JSON in the same words.

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
