//! The arguments of `gabion pool create`, `gabion pool quota` and `gabion quota`.

use super::schemes::{placement_help, update_help};
use crate::output::parse_seconds;
use clap::Args;
use gabion_layout::{
    AppendSpec, EncodeAfter, GroupingRule, ReplicaPlacement, ReserveSpec, Smoothing, Survive,
    UpdateScheme, parse_bytes,
};
use gabion_meta::{INLINE_BYTES_MAX, INLINE_BYTES_USUAL, Limit};
use gabion_planner::update::{self, Descriptor};
use gabion_protocol::message::LifecycleRequest;

/// A change of a quota.
#[derive(Args, Debug)]
pub(crate) struct QuotaOptions {
    /// Name of the pool
    #[arg(value_parser = super::checks::pool_name)]
    pub(crate) name: String,
    /// Most bytes of the pool's data without parity: in stripes, and of small files in the metadata; or 'none'
    #[arg(long, value_name = "SIZE", value_parser = super::checks::bytes_limit, allow_negative_numbers = true)]
    pub(crate) bytes: Option<Limit>,
    /// Most files, or 'none'
    #[arg(long, value_name = "N", value_parser = super::checks::files_limit, allow_negative_numbers = true)]
    pub(crate) files: Option<Limit>,
}

/// A change of a directory's quota.
#[derive(Args, Debug)]
pub(crate) struct DirectoryQuotaOptions {
    /// Path of the directory; / is the root directory
    #[arg(value_parser = super::checks::path)]
    pub(crate) path: String,
    /// Most bytes of the files below the directory, holes included, or 'none'. Without any limit the quota is removed
    #[arg(long, value_name = "SIZE", value_parser = super::checks::bytes_limit, allow_negative_numbers = true)]
    pub(crate) bytes: Option<Limit>,
    /// Most files and directories below the directory, or 'none'. Without any limit the quota is removed
    #[arg(long, value_name = "N", value_parser = super::checks::files_limit, allow_negative_numbers = true)]
    pub(crate) files: Option<Limit>,
    /// Remove the quota and its counts
    #[arg(long, conflicts_with_all = ["bytes", "files"])]
    pub(crate) remove: bool,
}

/// Parameters of a pool.
#[derive(Args, Debug)]
pub(crate) struct PoolOptions {
    /// Name of the pool
    #[arg(value_parser = super::checks::pool_name)]
    pub(crate) name: String,
    /// Failure that the pool survives: 1-rack, 2-racks, 2-nodes, ...
    #[arg(long, default_value = "1-rack")]
    pub(crate) survive: Survive,
    /// Code: rs(k,m), cauchy(k,m), polynomial(k,m), powers(k,m), rdp(k), evenodd(k), lrc(k,l,g),
    /// rotated(k,m,r) or rep(n)
    /// [default: chosen for --survive]
    #[arg(long)]
    pub(crate) code: Option<String>,
    /// Chunk size
    #[arg(long, default_value = "1MiB", value_parser = parse_bytes)]
    pub(crate) chunk: u64,
    #[arg(long, default_value_t, help = update_help())]
    pub(crate) update: UpdateScheme,
    /// Size of the largest file whose bytes are kept in the metadata, from 0 for none to 16KiB
    /// [default: 4KiB; 0 with --write]
    #[arg(long = "inline", value_name = "SIZE", value_parser = parse_bytes, allow_negative_numbers = true)]
    pub(crate) inline_bytes: Option<u64>,
    #[command(flatten)]
    pub(crate) reserve: ReserveOptions,
    #[command(flatten)]
    pub(crate) append: AppendOptions,
    #[command(flatten)]
    pub(crate) lifecycle: LifecycleOptions,
}

/// Storage of blocks before they become stripes; only for --write replicate:N.
#[derive(Args, Debug)]
pub(crate) struct LifecycleOptions {
    /// Store replicas of each block first, such as replicate:3, and encode later. The other options apply to the
    /// encoded stripes
    #[arg(long = "write", value_name = "HOW", value_parser = parse_replicas)]
    replica_count: Option<usize>,
    /// Time of encoding: an age such as 1h; 'idle' (10m without writes) or idle:30m; 'full', once a stripe is full; or
    /// 'asked', on request only [replicate: 1h]
    #[arg(long = "encode-after", value_name = "WHEN")]
    after: Option<EncodeAfter>,
    #[arg(long, help = placement_help())]
    placement: Option<ReplicaPlacement>,
}

/// Reads `replicate:3`.
fn parse_replicas(text: &str) -> Result<usize, String> {
    let wrong =
        || format!("'{text}' is not a way to write; use replicate:2 or more, such as replicate:3");
    let count = text.strip_prefix("replicate:").ok_or_else(wrong)?;
    count
        .parse()
        .ok()
        .filter(|&count| count >= 2)
        .ok_or_else(wrong)
}

/// An option's help, with its default for the schemes that have it.
fn scheme_help(text: &str, has: fn(&Descriptor) -> bool, default: &str) -> String {
    format!("{text} [{}: {default}]", update::names(has))
}

/// Limits of append phases, for schemes with append phases. The first limit that is reached starts a commit.
#[derive(Args, Debug)]
pub(crate) struct AppendOptions {
    #[arg(long = "replicas", value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..), help = scheme_help(
        "Copies of appended bytes on parity nodes in other racks, until a commit updates parity",
        Descriptor::appends_by_rack, "1"
    ))]
    replicas: Option<u8>,
    #[arg(long = "commit-stripes", value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..), help = scheme_help(
        "Stripes of a primary that may wait for a commit", Descriptor::appends, "100"
    ))]
    stripes: Option<u64>,
    #[arg(long = "commit-bytes", value_name = "SIZE", value_parser = parse_bytes, help = scheme_help(
        "Bytes of a primary's stripes that may wait for a commit", Descriptor::appends, "64MiB"
    ))]
    log_bytes: Option<u64>,
    #[arg(long = "commit-age", value_name = "TIME", value_parser = parse_seconds, help = scheme_help(
        "Longest wait of an update for a commit, such as 12h, 30m or 45s", Descriptor::appends, "1h"
    ))]
    age_s: Option<u64>,
    #[arg(long = "grouping", value_name = "RULE", value_parser = parse_grouping, help = scheme_help(
        "Rule for moving chunks of the same commit into one rack: off, algorithm-1 (as printed) or authors (as in \
        their program)",
        Descriptor::appends_by_rack, "off"
    ))]
    grouping: Option<Grouping>,
}

/// The rule of data grouping, or none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grouping(pub(super) Option<GroupingRule>);

pub(super) fn parse_grouping(text: &str) -> Result<Grouping, String> {
    if text == "off" {
        return Ok(Grouping(None));
    }
    let rule = text.parse::<GroupingRule>();
    let rule = rule.map_err(|error| format!("{error} and off"))?;
    Ok(Grouping(Some(rule)))
}

/// The reserved space behind parity chunks, for schemes with it.
#[derive(Args, Debug)]
pub(crate) struct ReserveOptions {
    #[arg(long = "reserve-bytes", value_name = "SIZE", value_parser = parse_bytes, help = scheme_help(
        "Reserved space of a parity chunk from its first update on, until its node has learnt the pool's need; a whole \
        number of chunks",
        Descriptor::reserves_space, "one chunk"
    ))]
    bytes: Option<u64>,
    #[arg(long = "reserve-period", value_name = "TIME", value_parser = parse_seconds, help = scheme_help(
        "Interval at which unused reserved space is freed, such as 12h, 30m or 45s", Descriptor::reserves_space, "12h"
    ))]
    period_s: Option<u64>,
    #[arg(long = "reserve-alpha", value_name = "WEIGHT", help = scheme_help(
        "Weight of the newest period in the moving average of used space", Descriptor::reserves_space, "0.3"
    ))]
    alpha: Option<Smoothing>,
}

impl PoolOptions {
    /// The limit of inline files.
    ///
    /// # Errors
    /// A sentence if the pool cannot have it.
    pub(crate) fn inline_bytes(&self) -> Result<u64, String> {
        match (self.inline_bytes, self.lifecycle.replica_count) {
            (Some(limit), _) if limit > INLINE_BYTES_MAX => Err(format!(
                "inline files have at most {} KiB, not {limit} bytes; use a smaller --inline, or 0 for none",
                INLINE_BYTES_MAX >> 10
            )),
            (Some(1..), Some(_)) => Err(
                "a pool that replicates blocks first has no inline files; omit --inline".to_owned(),
            ),
            (None, Some(_)) => Ok(0),
            (limit, _) => Ok(limit.unwrap_or(INLINE_BYTES_USUAL)),
        }
    }

    /// The requested reserve; none if the scheme has none.
    ///
    /// # Errors
    /// One plain sentence.
    pub(crate) fn reserve(&self) -> Result<Option<ReserveSpec>, String> {
        let told = &self.reserve;
        let is_told = told.bytes.is_some() || told.period_s.is_some() || told.alpha.is_some();
        if !update::descriptor(self.update).reserves_space() {
            let wrong = || {
                format!(
                    "the update scheme {} has no reserved space; use --update {}, or omit \
                     --reserve-bytes, --reserve-period and --reserve-alpha",
                    self.update,
                    update::names(Descriptor::reserves_space)
                )
            };
            return if is_told { Err(wrong()) } else { Ok(None) };
        }
        let usual = ReserveSpec::usual(self.chunk);
        let initial_chunks = told
            .bytes
            .map_or(Ok(usual.initial_chunks), |bytes| self.whole_chunks(bytes))?;
        Ok(Some(ReserveSpec {
            initial_chunks,
            period_s: told.period_s.unwrap_or(usual.period_s),
            smoothing: told.alpha.unwrap_or(usual.smoothing),
        }))
    }

    /// The requested append phases; none if parity is updated at once.
    ///
    /// # Errors
    /// One plain sentence.
    pub(crate) fn append(&self) -> Result<Option<AppendSpec>, String> {
        let told = &self.append;
        if !update::descriptor(self.update).appends() {
            let limits = [told.stripes, told.log_bytes, told.age_s];
            if told.replicas.is_none() && told.grouping.is_none() && limits == [None; 3] {
                return Ok(None);
            }
            return Err(format!(
                "the update scheme {} has no append phases; use --update {}, or omit \
                 --replicas, --commit-stripes, --commit-bytes, --commit-age and --grouping",
                self.update,
                update::names(Descriptor::appends)
            ));
        }
        let is_by_rack = update::descriptor(self.update).appends_by_rack();
        if !is_by_rack && (told.replicas.is_some() || told.grouping.is_some()) {
            return Err(format!(
                "{} keeps copies on all parity nodes and moves no chunks; use --update {}, or omit --replicas and \
                 --grouping",
                self.update,
                update::names(Descriptor::appends_by_rack)
            ));
        }
        let usual = AppendSpec::default();
        Ok(Some(AppendSpec {
            replicas: told.replicas.unwrap_or(usual.replicas),
            stripes_max: told.stripes.unwrap_or(usual.stripes_max),
            log_bytes_max: told.log_bytes.unwrap_or(usual.log_bytes_max),
            age_max_s: told.age_s.unwrap_or(usual.age_max_s),
            grouping: told.grouping.map_or(usual.grouping, |told| told.0),
        }))
    }

    /// The lifecycle of blocks that are replicated at first, if any.
    ///
    /// # Errors
    /// One plain sentence.
    pub(crate) fn lifecycle(&self) -> Result<Option<LifecycleRequest>, String> {
        let told = &self.lifecycle;
        let Some(replica_count) = told.replica_count else {
            return if told.after.is_none() && told.placement.is_none() {
                Ok(None)
            } else {
                Err(
                    "--encode-after and --placement need --write replicate:N; add it, or \
                     omit them"
                        .to_owned(),
                )
            };
        };
        Ok(Some(LifecycleRequest {
            replica_count,
            after: told.after.unwrap_or(EncodeAfter::Age(3600)),
            placement: told.placement.unwrap_or_default(),
        }))
    }

    /// Converts bytes to chunks.
    fn whole_chunks(&self, bytes: u64) -> Result<u32, String> {
        let chunks = bytes.checked_div(self.chunk).unwrap_or(0);
        let is_too_large =
            chunks > u64::from(ReserveSpec::CHUNKS_MAX) || bytes > ReserveSpec::BYTES_MAX;
        if !bytes.is_multiple_of(self.chunk) || is_too_large {
            return Err(format!(
                "--reserve-bytes must be 0 to {} whole chunks and at most {} MiB; use a multiple of {}, not {bytes}",
                ReserveSpec::CHUNKS_MAX,
                ReserveSpec::BYTES_MAX >> 20,
                self.chunk
            ));
        }
        Ok(u32::try_from(chunks).expect("at most CHUNKS_MAX"))
    }
}
