//! Times encoding and updating on every back end beside ISA-L, on one core, and checks the goals.
//!
//! Contenders take turns within each round, so that a noisy machine affects them equally; a figure
//! is the median over the rounds, and a ratio the median of the rounds' ratios. Rates count bytes
//! of data (k chunks of an encoding, one chunk of an update). ISA-L is the installed library, or the
//! one that `GABION_ISAL` names; `avx512` has no goal beside a library that uses GFNI. The last
//! column is the memory's limit: the rate at which `memcpy`, in the same buffers, moves as many
//! cache lines. After the rates come the times to build a code and to derive equations from it.
//!
//! `cargo bench -p gabion-codec --bench kernel [-- --quick]`

#[path = "../tests/integration/oracle/isal.rs"]
mod isal;

use std::fmt;
use std::hint::black_box;
use std::time::Instant;

use gabion_codec::Code;
use gabion_codec::kernel::{Backend, Coefficients};
use isal::{Encoder, Isal};

/// Codes and chunk sizes with goals.
const CODES: [&str; 3] = ["rs(6,3)", "rs(10,4)", "rs(12,4)"];
/// A small size, as of most updates, and whole chunks.
const SIZES_BYTES: [usize; 4] = [4 << 10, 64 << 10, 256 << 10, 1 << 20];

/// Target share of ISA-L's rate when encoding with 512-bit vectors, for each size.
const ENCODE_GOALS: [f64; 4] = [1.5, 1.5, 1.3, 1.2];
/// Target share of ISA-L's rate when both encode with GFNI.
const ENCODE_GFNI_GOAL: f64 = 1.2;
/// Target share of ISA-L's rate for the 256-bit back ends on a processor without AVX-512.
const AVX2_GOAL: f64 = 0.95;
/// Target share of ISA-L's rate for updates: once the parities exceed the first-level cache, both
/// run at its refill rate, so equality is the limit.
const UPDATE_GOAL: f64 = 1.0;
/// Shortfall of a ratio below its goal that counts as noise.
const NOISE: f64 = 0.02;

/// Data of one turn of a contender, so that reading the clock costs nothing.
const TURN_BYTES: usize = 8 << 20;

fn main() {
    // Cargo passes `--bench`, which is redundant.
    let mut quick = false;
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--quick" => quick = true,
            "--bench" => {}
            other => {
                eprintln!("unknown argument \"{other}\": only --quick is known");
                std::process::exit(2);
            }
        }
    }
    let round_count = if quick { 15 } else { 75 };
    let isal = Isal::load();
    if let Some(isal) = &isal {
        println!("ISA-L: {}", isal.file());
    }
    let mut missed_count = 0;
    println!(
        "{:<9} {:>9} {:<7} {:<12} {:>7} {:>7} {:>6} {:>5} {:>5}  {:>6}",
        "code", "chunk", "work", "kernel", "GB/s", "ISA-L", "ratio", "goal", "", "memcpy"
    );
    for text in CODES {
        let code: Code = text.parse().expect("the list holds codes");
        for (size_bytes, encode_goal) in SIZES_BYTES.into_iter().zip(ENCODE_GOALS) {
            for row in Bench::new(&code, size_bytes, isal.as_ref()).encode(round_count, encode_goal)
            {
                missed_count += usize::from(row.misses());
                println!("{text:<9} {size_bytes:>9} encode  {row}");
            }
        }
        for size_bytes in SIZES_BYTES {
            for row in Bench::new(&code, size_bytes, isal.as_ref()).update(round_count) {
                missed_count += usize::from(row.misses());
                println!("{text:<9} {size_bytes:>9} update  {row}");
            }
        }
    }
    for (text, lost_count) in [
        ("rs(12,4)", 1),
        ("rs(12,4)", 4),
        ("lrc(12,2,2)", 1),
        ("rs(200,55)", 55),
        ("rdp(30)", 2),
    ] {
        print_latencies(text, lost_count);
    }
    match (isal.is_some(), missed_count) {
        (false, _) => println!("no goal could be checked without ISA-L"),
        (true, 0) => println!("all goals met"),
        (true, count) => println!("{count} goals missed"),
    }
}

/// Prints the time to build a code, and to derive the equations for its first chunks.
fn print_latencies(text: &str, lost_count: usize) {
    let code: Code = text.parse().expect("the list holds codes");
    let available: Vec<usize> = (lost_count..code.n()).collect();
    let wanted: Vec<usize> = (0..lost_count).collect();
    let microseconds = |work: &mut dyn FnMut()| {
        let times = (0..101).map(|_| {
            let begin = Instant::now();
            work();
            begin.elapsed().as_secs_f64() * 1e6
        });
        median(times.collect())
    };
    let build_us = microseconds(&mut || drop(black_box(text.parse::<Code>())));
    let decode_us = microseconds(&mut || drop(black_box(code.decode(&available, &wanted))));
    println!(
        "{text:<12} build {build_us:>9.1} us, equations of {lost_count} lost {decode_us:>9.1} us"
    );
}

/// One line of the result.
struct Row {
    backend: Backend,
    rate_gbps: f64,
    rival_gbps: Option<f64>,
    ratio: Option<f64>,
    goal: Option<f64>,
    copy_pace_gbps: f64,
}

impl Row {
    fn misses(&self) -> bool {
        matches!((self.ratio, self.goal), (Some(ratio), Some(goal)) if ratio < goal - NOISE)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_blank = |figure: Option<f64>| figure.map_or(String::new(), |f| format!("{f:.2}"));
        let verdict = match (self.ratio, self.goal) {
            (Some(_), Some(_)) if self.misses() => "miss",
            (Some(_), Some(_)) => "ok",
            _ => "",
        };
        write!(
            formatter,
            "{:<12} {:>7.2} {:>7} {:>6} {:>5} {:>5}  {:>6.2}",
            self.backend,
            self.rate_gbps,
            or_blank(self.rival_gbps),
            or_blank(self.ratio),
            or_blank(self.goal),
            verdict,
            self.copy_pace_gbps
        )
    }
}

/// The buffers and matrices of one code and chunk size.
struct Bench<'a> {
    k: usize,
    m: usize,
    size_bytes: usize,
    /// Data chunks, then parity chunks, adjacent as in a segment.
    stripe: Arena,
    pairs: Vec<Pair<'a>>,
    /// Whether ISA-L encodes and updates with GFNI on this processor.
    rival_has_gfni: bool,
}

/// A matrix prepared for one of our back ends, and for the implementation of ISA-L beside it.
struct Pair<'a> {
    prepared: Coefficients,
    rival: Option<(&'a Isal, isal::Tables)>,
}

/// Bytes that begin at the start of a page.
struct Arena {
    storage: Vec<u8>,
    start: usize,
    length: usize,
}

impl Arena {
    fn new(length: usize) -> Self {
        const PAGE_BYTES: usize = 4096;
        let storage: Vec<u8> = (0..length + PAGE_BYTES)
            .map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8)
            .collect();
        let start = storage.as_ptr().align_offset(PAGE_BYTES);
        Self {
            storage,
            start,
            length,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..][..self.length]
    }
}

/// A piece of work on the stripe's data and parity chunks.
type Work<'w> = Box<dyn FnMut(&[&[u8]], &mut [&mut [u8]]) + 'w>;

impl<'a> Bench<'a> {
    fn new(code: &Code, size_bytes: usize, isal: Option<&'a Isal>) -> Self {
        let (k, m) = (code.k(), code.m());
        let elements = &code.generator().elements()[k * k..];
        let prepared = Coefficients::new(m, k, elements);
        let backends = Backend::available().into_iter();
        let pairs = backends
            .filter(|&backend| backend != Backend::Scalar)
            .map(|backend| {
                let encoder = match backend {
                    Backend::Avx2 | Backend::GfniAvx2 => Encoder::Avx2,
                    _ => Encoder::Chosen,
                };
                Pair {
                    prepared: prepared.with_backend(backend),
                    rival: isal.map(|isal| (isal, isal.tables(encoder, m, k, elements))),
                }
            })
            .collect();
        Self {
            k,
            m,
            size_bytes,
            stripe: Arena::new((k + m) * size_bytes),
            pairs,
            rival_has_gfni: isal.is_some_and(Isal::has_gfni) && Backend::GfniAvx512.is_available(),
        }
    }

    /// The goal of a back end: that of 512-bit vectors depends on whether ISA-L uses GFNI.
    fn goal(&self, backend: Backend, goal: f64, gfni_goal: f64) -> Option<f64> {
        match backend {
            Backend::Avx2 | Backend::GfniAvx2 => Some(AVX2_GOAL),
            Backend::GfniAvx512 if self.rival_has_gfni => Some(gfni_goal),
            Backend::Avx512 if self.rival_has_gfni => None,
            Backend::Avx512 | Backend::GfniAvx512 => Some(goal),
            _ => None,
        }
    }

    fn encode(&mut self, round_count: usize, goal: f64) -> Vec<Row> {
        let (k, size_bytes) = (self.k, self.size_bytes);
        let mut rows = Vec::new();
        for index in 0..self.pairs.len() {
            let Pair { prepared, rival } = &mut self.pairs[index];
            let backend = prepared.backend();
            let mut works: Vec<Work<'_>> = Vec::new();
            works.push(Box::new(|data, parity| prepared.combine(data, parity)));
            if let Some((isal, tables)) = rival {
                works.push(Box::new(|data, parity| isal.encode(tables, data, parity)));
            }
            let figures = measure(&mut self.stripe, k, size_bytes, k, round_count, &mut works);
            drop(works);
            let goal = self.goal(backend, goal, ENCODE_GFNI_GOAL);
            rows.push(self.row(backend, k, goal, &figures));
        }
        rows
    }

    fn update(&mut self, round_count: usize) -> Vec<Row> {
        let (k, size_bytes) = (self.k, self.size_bytes);
        let column = k - 1;
        let mut rows = Vec::new();
        for index in 0..self.pairs.len() {
            let Pair { prepared, rival } = &mut self.pairs[index];
            let backend = prepared.backend();
            let mut works: Vec<Work<'_>> = Vec::new();
            works.push(Box::new(|data, parity| {
                prepared.update(column, data[column], parity);
            }));
            if let Some((isal, tables)) = rival {
                works.push(Box::new(|data, parity| {
                    isal.update(tables, column, data[column], parity);
                }));
            }
            let figures = measure(&mut self.stripe, k, size_bytes, 1, round_count, &mut works);
            drop(works);
            let goal = self.goal(backend, UPDATE_GOAL, UPDATE_GOAL);
            rows.push(self.row(backend, 1, goal, &figures));
        }
        rows
    }

    /// Turns figures into a row; `read_count` chunks of data went into the parities.
    fn row(
        &self,
        backend: Backend,
        read_count: usize,
        goal: Option<f64>,
        figures: &Figures,
    ) -> Row {
        // Each parity line is loaded into the cache before it is written, and written back; so is
        // each line that a copy writes, beside the line that it reads.
        let moved = read_count + 2 * self.m;
        let moved_by_copy = 3.0;
        let rival_gbps = figures.rates.get(1).copied();
        Row {
            backend,
            rate_gbps: figures.rates[0],
            rival_gbps,
            ratio: figures.ratio,
            goal,
            copy_pace_gbps: figures.copy_gbps * moved_by_copy * read_count as f64 / moved as f64,
        }
    }
}

/// Medians over the rounds.
struct Figures {
    /// Each contender's rate, in gigabytes of data a second.
    rates: Vec<f64>,
    /// The first contender's rate over the second's.
    ratio: Option<f64>,
    /// The rate of copying one half of the bytes that the work touches onto the other.
    copy_gbps: f64,
}

/// Lets the contenders take turns; each call of one works on `chunk_count` chunks of data.
fn measure(
    stripe: &mut Arena,
    k: usize,
    size_bytes: usize,
    chunk_count: usize,
    round_count: usize,
    works: &mut [Work<'_>],
) -> Figures {
    let call_bytes = chunk_count * size_bytes;
    let call_count = (TURN_BYTES / call_bytes).max(1);
    let mut seconds = vec![Vec::new(); works.len()];
    let mut copy_seconds = Vec::new();
    for round in 0..=round_count {
        for turn in 0..works.len() {
            let (data, parity) = stripe.bytes_mut().split_at_mut(k * size_bytes);
            let data: Vec<&[u8]> = data.chunks_exact(size_bytes).collect();
            let mut parity: Vec<&mut [u8]> = parity.chunks_exact_mut(size_bytes).collect();
            let contender = (turn + round) % works.len();
            let begin = Instant::now();
            for _ in 0..call_count {
                works[contender](black_box(&data), black_box(&mut parity));
            }
            seconds[contender].push(begin.elapsed().as_secs_f64() / call_count as f64);
        }
        // The bytes that the work touches: the last chunks of data, and the parities after them.
        let bytes = &mut stripe.bytes_mut()[(k - chunk_count) * size_bytes..];
        let half = bytes.len() / 2;
        let (from, to) = bytes.split_at_mut(half);
        let begin = Instant::now();
        let copy_count = (TURN_BYTES / half).max(1);
        for _ in 0..copy_count {
            black_box(&mut to[..half]).copy_from_slice(black_box(from));
        }
        copy_seconds.push(begin.elapsed().as_secs_f64() / (copy_count * half) as f64);
    }
    // The first round warms the caches and the branch predictors.
    for times in seconds.iter_mut().chain([&mut copy_seconds]) {
        times.remove(0);
    }
    let ratio = (works.len() == 2)
        .then(|| {
            seconds[1]
                .iter()
                .zip(&seconds[0])
                .map(|(rival, own)| rival / own)
                .collect()
        })
        .map(median);
    let rates = seconds
        .into_iter()
        .map(|times| call_bytes as f64 / median(times) / 1e9)
        .collect();
    Figures {
        rates,
        ratio,
        copy_gbps: 1.0 / median(copy_seconds) / 1e9,
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
