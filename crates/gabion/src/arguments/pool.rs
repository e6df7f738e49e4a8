//! What `gabion pool create` is told.

use crate::output::{parse_bytes, parse_seconds};
use clap::Args;
use gabion_layout::{
    AppendSpec, EncodeAfter, GroupingRule, ReplicaPlacement, ReserveSpec, Smoothing, Survive,
    UpdateScheme,
};
use gabion_protocol::message::LifecycleWish;

/// What a pool is to be.
#[derive(Args, Debug)]
pub(crate) struct PoolOptions {
    /// The pool's name
    #[arg(value_parser = super::checks::pool_name)]
    pub(crate) name: String,
    /// What must be survived: 1-rack, 2-racks, 2-nodes, ...
    #[arg(long, default_value = "1-rack")]
    pub(crate) survive: Survive,
    /// rs(k,m), cauchy(k,m), rdp(k), evenodd(k), lrc(k,l,g), rotated(k,m,r) or rep(n)
    #[arg(long)]
    pub(crate) code: Option<String>,
    /// Bytes a chunk
    #[arg(long, default_value = "1MiB", value_parser = parse_bytes)]
    pub(crate) chunk: u64,
    /// How updates are made and kept: fo (in place at once), fl (all in logs), pl (parity deltas in a
    /// log), plr (parity deltas in space reserved behind the parity chunk), rackcu (as plr, with
    /// deltas sent through a collector rack), parix or cau (parity follows later)
    #[arg(long, default_value_t)]
    pub(crate) update: UpdateScheme,
    #[command(flatten)]
    pub(crate) reserve: ReserveOptions,
    #[command(flatten)]
    pub(crate) append: AppendOptions,
    #[command(flatten)]
    pub(crate) lifecycle: LifecycleOptions,
}

/// How blocks are kept before they become stripes; for --write replicate:N alone.
#[derive(Args, Debug)]
pub(crate) struct LifecycleOptions {
    /// Keep so many replicas of each block at first: replicate:3; what else is said is about the stripes
    /// that they become
    #[arg(long = "write", value_name = "HOW", value_parser = parse_replicas)]
    replica_count: Option<usize>,
    /// When blocks are encoded: at an age such as 1h, when 'idle' (10m) or idle:30m, as soon as a stripe
    /// is 'full', or when 'asked' [replicate: 1h]
    #[arg(long = "encode-after", value_name = "WHEN")]
    after: Option<EncodeAfter>,
    /// How replicas are placed: ear (no data crosses racks to be encoded) or rr (random) [replicate: ear]
    #[arg(long)]
    placement: Option<ReplicaPlacement>,
}

/// Reads `replicate:3`.
fn parse_replicas(text: &str) -> Result<usize, String> {
    let wrong =
        || format!("'{text}' is no way to write; use replicate:2 or more, such as replicate:3");
    let count = text.strip_prefix("replicate:").ok_or_else(wrong)?;
    count
        .parse()
        .ok()
        .filter(|&count| count >= 2)
        .ok_or_else(wrong)
}

/// When parity follows under parix and cau alone: whatever comes first.
#[derive(Args, Debug)]
pub(crate) struct AppendOptions {
    /// Copies of appended bytes on parity nodes, in other racks, until parity follows [cau: 1]
    #[arg(long = "replicas", value_name = "COUNT")]
    replicas: Option<u8>,
    /// Stripes of a primary that may wait for parity to follow [parix, cau: 100]
    #[arg(long = "commit-stripes", value_name = "COUNT")]
    stripes: Option<u64>,
    /// Bytes of a primary's stripes that may wait [parix, cau: 64MiB]
    #[arg(long = "commit-bytes", value_name = "SIZE", value_parser = parse_bytes)]
    log_bytes: Option<u64>,
    /// How long updates may wait, such as 12h, 30m or 45s [parix, cau: 1h]
    #[arg(long = "commit-age", value_name = "TIME", value_parser = parse_seconds)]
    age_s: Option<u64>,
    /// Whether chunks that were committed together move into one rack: off, algorithm-1, or the rule of
    /// the authors' program, authors [cau: off]
    #[arg(long = "grouping", value_name = "RULE", value_parser = parse_grouping)]
    grouping: Option<Grouping>,
}

/// What is said of data grouping: a rule, or none.
#[derive(Clone, Copy, Debug)]
struct Grouping(Option<GroupingRule>);

fn parse_grouping(text: &str) -> Result<Grouping, String> {
    if text == "off" {
        return Ok(Grouping(None));
    }
    let rule = text.parse::<GroupingRule>();
    let rule = rule.map_err(|error| format!("{error} and off"))?;
    Ok(Grouping(Some(rule)))
}

/// The space behind parity chunks; for plr and rackcu alone.
#[derive(Args, Debug)]
pub(crate) struct ReserveOptions {
    /// Space behind each parity chunk at first, a whole number of chunks [plr, rackcu: one chunk]
    #[arg(long = "reserve-bytes", value_name = "SIZE", value_parser = parse_bytes)]
    bytes: Option<u64>,
    /// How often unused reserved space is given back, such as 12h, 30m or 45s [plr, rackcu: 12h]
    #[arg(long = "reserve-period", value_name = "TIME", value_parser = parse_seconds)]
    period_s: Option<u64>,
    /// Weight of the newest period in the moving average of how much is used [plr, rackcu: 0.3]
    #[arg(long = "reserve-alpha", value_name = "WEIGHT")]
    alpha: Option<Smoothing>,
}

impl PoolOptions {
    /// The reserve that is asked for; none when the scheme has none.
    ///
    /// # Errors
    /// One plain sentence.
    pub(crate) fn reserve(&self) -> Result<Option<ReserveSpec>, String> {
        let told = &self.reserve;
        let is_told = told.bytes.is_some() || told.period_s.is_some() || told.alpha.is_some();
        if !self.update.reserves_space() {
            let wrong = || {
                format!(
                    "the update scheme {} has no reserved space; use --update plr or rackcu, or leave \
                     --reserve-bytes, --reserve-period and --reserve-alpha out",
                    self.update
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

    /// The append phases that are asked for; none when parity follows at once.
    ///
    /// # Errors
    /// One plain sentence.
    pub(crate) fn append(&self) -> Result<Option<AppendSpec>, String> {
        let told = &self.append;
        if !self.update.appends() {
            let limits = [told.stripes, told.log_bytes, told.age_s];
            if told.replicas.is_none() && told.grouping.is_none() && limits == [None; 3] {
                return Ok(None);
            }
            return Err(format!(
                "parity follows at once under the update scheme {}; use --update parix or cau, or leave \
                 --replicas, --commit-stripes, --commit-bytes, --commit-age and --grouping out",
                self.update
            ));
        }
        if told.replicas.is_some() && self.update == UpdateScheme::Parix {
            return Err(
                "parix has copies on all parity nodes; use --update cau, or leave --replicas out"
                    .to_owned(),
            );
        }
        if told.grouping.is_some() && self.update == UpdateScheme::Parix {
            return Err(
                "parix moves no chunks; use --update cau, or leave --grouping out".to_owned(),
            );
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

    /// How blocks are kept at first, if they are replicated.
    ///
    /// # Errors
    /// One plain sentence.
    pub(crate) fn lifecycle(&self) -> Result<Option<LifecycleWish>, String> {
        let told = &self.lifecycle;
        let Some(replica_count) = told.replica_count else {
            return if told.after.is_none() && told.placement.is_none() {
                Ok(None)
            } else {
                Err(
                    "blocks are encoded as they are written; use --write replicate:3, or leave \
                     --encode-after and --placement out"
                        .to_owned(),
                )
            };
        };
        Ok(Some(LifecycleWish {
            replica_count,
            after: told.after.unwrap_or(EncodeAfter::Age(3600)),
            placement: told.placement.unwrap_or_default(),
        }))
    }

    /// So many bytes as chunks.
    fn whole_chunks(&self, bytes: u64) -> Result<u32, String> {
        let chunks = bytes.checked_div(self.chunk).unwrap_or(0);
        let is_too_large =
            chunks > u64::from(ReserveSpec::CHUNKS_MAX) || bytes > ReserveSpec::BYTES_MAX;
        if !bytes.is_multiple_of(self.chunk) || is_too_large {
            return Err(format!(
                "--reserve-bytes is a whole number of chunks, from none to {}, and at most {} MiB: a \
                 multiple of {}, not {bytes}",
                ReserveSpec::CHUNKS_MAX,
                ReserveSpec::BYTES_MAX >> 20,
                self.chunk
            ));
        }
        Ok(u32::try_from(chunks).expect("at most CHUNKS_MAX"))
    }
}
