//! Files by pages, their stripes, and single bytes.

use super::asked::Asked;
use crate::app::App;
use crate::problem::{Problem, ProblemView};
use crate::view::explain::{Explained, locate, update_cost};
use crate::view::files::{StripeView, stripes};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use utoipa::{IntoParams, ToSchema};

/// Most entries of a page.
const ENTRY_COUNT_MAX: u64 = 500;

/// The files to list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListAsked {
    /// Only files with this prefix. Names with a slash after the prefix are joined.
    #[serde(default)]
    prefix: String,
    /// Only entries that sort after this one.
    after: Option<String>,
    /// Most entries, at most 500.
    limit: Option<u64>,
}

/// A file, or all files below a directory.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Entry {
    /// The file's name; a directory's name ends with a slash.
    name: String,
    /// The file's size; null for a directory.
    bytes: Option<u64>,
    /// Number of its stripes.
    stripes: Option<u64>,
    /// Whether it is a symbolic link.
    symlink: bool,
}

/// A page of files.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Page {
    /// The entries, in the byte order of their names.
    entries: Vec<Entry>,
    /// The value of `after` for the next page; null at the end.
    next: Option<String>,
}

/// A page of files: `gabion ls --delimiter /`.
#[utoipa::path(
    get,
    path = "/api/v1/files",
    params(ListAsked),
    responses((status = 200, body = Page), (status = 503, body = ProblemView))
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Asked(asked): Asked<ListAsked>,
) -> Result<Json<Page>, Problem> {
    let limit = asked.limit.unwrap_or(100).clamp(1, ENTRY_COUNT_MAX);
    let after = asked.after.as_deref();
    let listed = app.client.list(&asked.prefix, after, Some("/"), limit);
    let listed = listed.await?;
    let files = listed.files.into_iter().map(|file| Entry {
        name: file.name,
        bytes: Some(file.size_bytes),
        stripes: Some(file.stripe_count),
        symlink: file.symlink.is_some(),
    });
    let prefixes = listed.prefixes.into_iter().map(|name| Entry {
        name,
        bytes: None,
        stripes: None,
        symlink: false,
    });
    let mut entries: Vec<Entry> = files.chain(prefixes).collect();
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let last = entries.last().map(|entry| entry.name.clone());
    Ok(Json(Page {
        entries,
        next: last.filter(|_| listed.is_cut),
    }))
}

/// The part of a file to show.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct FileAsked {
    /// The file.
    name: String,
    /// A byte of the part.
    #[serde(default)]
    offset: u64,
}

/// A file, and the stripes of a part of it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FileView {
    /// The file.
    name: String,
    /// Its size.
    bytes: u64,
    /// Its pool.
    pool: String,
    /// The pool's code.
    code: String,
    /// Data chunks of a stripe; those behind them are parity.
    data_chunks: usize,
    /// The failure that the pool survives.
    survive: String,
    /// Its bytes that are in the metadata.
    inline_bytes: u64,
    /// The stripes of the part, at most 512.
    stripes: Vec<StripeView>,
    /// The racks of their nodes.
    racks: BTreeMap<u32, u32>,
    /// The offset of the next part; null at the end.
    next: Option<u64>,
}

/// A file with its stripes: `gabion stat`.
#[utoipa::path(
    get,
    path = "/api/v1/file",
    params(FileAsked),
    responses(
        (status = 200, body = FileView),
        (status = 400, description = "The file has no such byte", body = ProblemView),
        (status = 404, body = ProblemView),
    )
)]
pub(super) async fn file(
    State(app): State<Arc<App>>,
    Asked(asked): Asked<FileAsked>,
) -> Result<Json<FileView>, Problem> {
    let file = app.client.open(&asked.name).await?;
    let (offset, size) = (asked.offset, file.size_bytes());
    if offset > 0 && offset >= size {
        return Err(Problem::wrong(format!(
            "{} has {size} bytes, so there is no byte {offset}; ask for a smaller offset",
            asked.name
        )));
    }
    let (stat, _) = file.stat_window(offset).await?;
    let (layout, stripes) = (&stat.layout, stripes(&stat));
    let spec = &layout.pool.spec;
    let holders = stripes.iter().flat_map(|stripe| &stripe.nodes);
    let mut racks: BTreeMap<u32, u32> = holders.map(|&node| (node, 0)).collect();
    for node in &layout.nodes {
        if let Some(rack) = racks.get_mut(&node.node.0) {
            *rack = node.rack.0;
        }
    }
    Ok(Json(FileView {
        name: asked.name,
        bytes: layout.file.size_bytes,
        pool: spec.name.clone(),
        code: spec.code.clone(),
        data_chunks: spec.k,
        survive: spec.survive.to_string(),
        racks,
        inline_bytes: layout.file.inline.map_or(0, |inline| inline.length_bytes),
        next: layout.behind,
        stripes,
    }))
}

/// The location of a byte of a file, the reason for it, and the effect of a read or an update of it now: `gabion
/// explain`.
#[utoipa::path(
    get,
    path = "/api/v1/explain",
    params(FileAsked),
    responses(
        (status = 200, body = Explained),
        (status = 404, description = "There is no such file, or no stripe has the byte", body = ProblemView),
    )
)]
pub(super) async fn explain(
    State(app): State<Arc<App>>,
    Asked(asked): Asked<FileAsked>,
) -> Result<Json<Explained>, Problem> {
    let (name, offset) = (&asked.name, asked.offset);
    let found = match locate(&app.client, name, offset).await? {
        Ok(found) => found,
        Err(place) => {
            let sentence = place.sentence(name, offset);
            return Err(Problem::new(StatusCode::NOT_FOUND, sentence));
        }
    };
    let size = found.stat.layout.file.size_bytes;
    let (_, update) = update_cost(&app.client, name, offset, size).await;
    Ok(Json(found.explain(name, offset, &update)))
}
