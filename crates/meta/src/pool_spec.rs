//! The parameters of a pool. A change of any field here changes the stored format: raise the version of the table of
//! pools in `schema.rs`, and keep reading the old one.

use gabion_layout::{
    AppendSpec, Geometry, GeometryError, ReserveSpec, StripeRecord, Survive, UpdateScheme,
};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Parameters of a pool. Those that are read from a message or a disk obey the rules for any code: they have a possible
/// geometry, and numbers of racks, losses, reserved space and append phases that fit it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct PoolSpec {
    /// The pool's name, unique in the cluster.
    pub name: String,
    /// The code in its text form, such as `rs(6,3)`. Opaque here: the codec reads it.
    pub code: String,
    /// Data chunks of a stripe.
    pub k: usize,
    /// Parity chunks of a stripe.
    pub m: usize,
    /// Rows of a chunk in the code.
    pub sub_chunks: usize,
    /// Bytes of a chunk of every stripe except a file's last.
    pub chunk_bytes: u64,
    /// The failure that the pool survives.
    pub survive: Survive,
    /// Most chunks of one stripe on a rack when the stripe is first placed.
    pub chunks_per_rack: usize,
    /// The place of updates until they are merged into their chunks.
    pub update: UpdateScheme,
    /// Reserved space behind parity chunks, if the update scheme has it.
    pub reserve: Option<ReserveSpec>,
    /// The append phases, if the update scheme updates parity later.
    pub append: Option<AppendSpec>,
    /// The size of the largest file whose bytes are inline in the metadata; 0 if none are.
    pub inline_bytes: u64,
}

/// The usual limit of a pool's inline files, in bytes.
pub const INLINE_BYTES_USUAL: u64 = 4 << 10;
/// The largest limit of a pool's inline files, in bytes: their bytes go through the coordinator, and into each backup
/// of the metadata.
pub const INLINE_BYTES_MAX: u64 = 16 << 10;

/// Most bytes of a code's text form.
const CODE_BYTES: usize = 64;
/// The chunk size of a stripe that is not full is a multiple of this many bytes, so that no page of a
/// disk or of memory belongs to two chunks.
const CHUNK_UNIT_BYTES: u64 = 4 << 10;

impl Serialize for PoolSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for PoolSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spec = Self::deserialize(deserializer)?;
        spec.check().map_err(D::Error::custom)?;
        Ok(spec)
    }
}

impl PoolSpec {
    /// Data bytes of a stripe with chunks of `chunk_bytes`.
    pub const fn data_bytes(&self, chunk_bytes: u64) -> u64 {
        (self.k as u64).saturating_mul(chunk_bytes)
    }

    /// Data bytes of a full stripe: the length of a segment of a file.
    pub const fn segment_bytes(&self) -> u64 {
        self.data_bytes(self.chunk_bytes)
    }

    /// The smallest chunk of a stripe for this many bytes of data, or the full chunk if they need more: whole
    /// rows of the code, and whole pages if the pool's chunk is that large.
    pub fn least_chunk_bytes(&self, data_bytes: u64) -> u64 {
        let unit = least_common_multiple(CHUNK_UNIT_BYTES, self.sub_chunks as u64);
        let needed = data_bytes.div_ceil(self.k as u64);
        let rounded = needed.div_ceil(unit).saturating_mul(unit);
        rounded.min(self.chunk_bytes)
    }

    /// Checks the rules for any code: it can rebuild at most `m` lost chunks.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.check_numbers()?;
        let code = &self.code;
        let printable = code.chars().all(|c| c.is_ascii_graphic());
        if code.is_empty() || code.len() > CODE_BYTES || !printable {
            return Err(format!(
                "'{}' is not a code; write a code such as rs(6,3)",
                code.escape_default()
            ));
        }
        let geometry = self.geometry().map_err(|error| error.to_string())?;
        if self.chunk_bytes > StripeRecord::CHUNK_BYTES_MAX {
            let most = StripeRecord::CHUNK_BYTES_MAX >> 30;
            return Err(format!("a chunk has at most {most} GiB"));
        }
        let per_rack = self.chunks_per_rack;
        if per_rack == 0 || per_rack > geometry.n() {
            return Err(format!(
                "a rack may hold 1 to {} chunks of a stripe, not {per_rack}",
                geometry.n()
            ));
        }
        let (lost, failure) = match self.survive {
            Survive::Nodes(count) => (count as usize, "nodes"),
            Survive::Racks(count) => ((count as usize).saturating_mul(per_rack), "racks"),
        };
        if lost == 0 || lost > geometry.m() {
            return Err(format!(
                "to survive {} it must rebuild {lost} chunks of a stripe, but it has {} parity chunks; use more parity \
                chunks, fewer chunks in each rack or fewer {failure}",
                self.survive,
                geometry.m(),
            ));
        }
        Ok(())
    }

    /// Checks the numbers of reserved space and of append phases. The planner checks whether the scheme has them.
    fn check_numbers(&self) -> Result<(), String> {
        match (&self.reserve, &self.append) {
            (Some(reserve), _) if !reserve.is_valid(self.chunk_bytes) => Err(format!(
                "space reserved behind a parity chunk is at most {} chunks and {} MiB, for a period of 1 \
                 second to a year, with a weight above 0 and up to 1",
                ReserveSpec::CHUNKS_MAX,
                ReserveSpec::BYTES_MAX >> 20
            )),
            (_, Some(append)) if !append.is_valid() => {
                Err("an append phase needs at least one stripe, one byte and one second".to_owned())
            }
            (_, Some(append)) if usize::from(append.replicas) > self.m => Err(format!(
                "{} interim replicas exceed the {} parity nodes that keep them; use fewer",
                append.replicas, self.m
            )),
            _ if self.inline_bytes > INLINE_BYTES_MAX => Err(format!(
                "inline files have at most {} KiB, not {} bytes; use a smaller limit, or 0 for none",
                INLINE_BYTES_MAX >> 10,
                self.inline_bytes
            )),
            _ => Ok(()),
        }
    }

    /// The shape of a full stripe.
    ///
    /// # Errors
    /// [`GeometryError`] when the counts and sizes form no valid stripe; never for a stored pool.
    pub fn geometry(&self) -> Result<Geometry, GeometryError> {
        Geometry::new(self.k, self.m, self.sub_chunks, self.chunk_bytes)
    }
}

fn least_common_multiple(a: u64, b: u64) -> u64 {
    let (mut larger, mut smaller) = (a, b);
    while smaller != 0 {
        (larger, smaller) = (smaller, larger % smaller);
    }
    a / larger * b
}
