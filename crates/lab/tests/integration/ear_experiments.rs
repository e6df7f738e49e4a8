//! The experiments of EAR on their smallest setting: what they say must be so at any size.

use gabion_lab::LabError;
use gabion_lab::experiments::{
    CacheEffect, Cell, Clusters, EncodeBench, EncodeTime, EncodeTrial, Encodings, HdfsBench,
    HdfsTimes, Overwrite, OverwriteSetting, PutTime, RepairBench, Report, SegmentPlaces,
    TestbedSetting, Throughput, TransferSetting, Transfers, TrialTime, experiment, registry,
};
use gabion_layout::NodeId;

/// Runs an experiment on its quick setting, without traces.
fn quick(id: &str) -> Report {
    let report = crate::quick::quick(id, None);
    assert!(!report.scaled.is_empty(), "{id} says what is smaller");
    report
}

fn number(cell: &Cell) -> f64 {
    match cell {
        Cell::Number(number) => *number,
        Cell::Count(count) => *count as f64,
        Cell::Text(text) => panic!("'{text}' is no number"),
    }
}

/// Encode gain and write gain of each row of the first table.
fn gains(report: &Report) -> Vec<(f64, f64)> {
    let rows = report.tables[0].rows.iter();
    rows.map(|row| (number(&row[3]), number(&row[8]))).collect()
}

/// More than the gain of the paper's worst point is not asked of two seeds and a few stripes.
#[test]
fn ear_encodes_faster_in_every_part_of_figure_13() {
    let ids: Vec<&str> = registry()
        .iter()
        .map(|e| e.id)
        .filter(|id| id.starts_with("EAR-F13"))
        .collect();
    assert_eq!(ids.len(), 6);
    for id in ids {
        let report = quick(id);
        let gains = gains(&report);
        assert_eq!(gains.len(), 1, "{id}");
        assert!(gains[0].0 > 20.0, "{id}: {gains:?}");
        assert_eq!(report.plots.len(), 2);
    }
}

#[test]
fn figure_13a_says_what_the_open_choices_do() {
    let report = quick("EAR-F13a");
    let choices = &report.tables[1].rows;
    assert_eq!(choices.len(), 16);
    let at_end = quick("EAR-F13d");
    let rows = &at_end.tables[1].rows;
    assert_eq!(rows.len(), 17, "the choices, and the paper");
    assert!((number(&rows[16][1]) - 89.1).abs() < 1e-9);
    for row in choices {
        assert!(
            number(&row[1]) > 0.0,
            "EAR encodes faster, whatever is chosen: {row:?}"
        );
    }
    assert_ne!(choices[0][1..], choices[1][1..], "a choice has an effect");
}

/// Replicas in more racks spare random replication downloads, and cost writes transfers between racks.
#[test]
fn figure_13f_says_what_the_readings_of_its_replicas_do() {
    let report = quick("EAR-F13f");
    let rows = &report.tables[2].rows;
    let [fresh, vacated, pairs, two] = &rows[..] else {
        panic!("{rows:?}");
    };
    let random = |row: &[Cell]| number(&row[4]);
    assert!(
        random(fresh) < random(pairs) && random(pairs) < random(two),
        "{rows:?}"
    );
    let aware = |row: &[Cell]| number(&row[5]);
    assert!(
        aware(vacated) < aware(fresh),
        "parity stays in the core rack: {rows:?}"
    );
    let writes = |row: &[Cell]| number(&row[3]);
    assert!(writes(two) < writes(fresh), "{rows:?}");
    let others = report.findings.iter().filter(|f| f.reading.is_some());
    assert_eq!(others.count(), rows.len() - 1, "the first is judged");
}

#[test]
fn equal_seeds_give_equal_reports_on_any_number_of_processors() {
    assert_eq!(quick("EAR-F13c"), quick("EAR-F13c"));
    assert_eq!(experiment("ear-f13C").unwrap().id, "EAR-F13c");
}

#[test]
fn replicas_and_reads_are_as_even_as_random_replications() {
    let report = quick("EAR-C1");
    assert_eq!(report.tables[0].rows.len(), 20);
    crate::quick::check_findings(&report);
    crate::quick::check_findings(&quick("EAR-C2"));
}

#[test]
fn layouts_keep_the_bound_and_send_no_data_across_racks() {
    let report = quick("EAR-LAYOUTS");
    crate::quick::check_findings(&report);
    for row in &report.tables[1].rows {
        assert!(
            number(&row[2]) <= number(&row[3]),
            "a matching moves the fewest: {row:?}"
        );
    }
    let crossing: Vec<f64> = report.tables[2]
        .rows
        .iter()
        .map(|row| number(&row[2]))
        .collect();
    let [random, .., flat, two, four] = crossing[..] else {
        panic!("{crossing:?}");
    };
    assert!(
        random > flat && flat > two && two >= four && four < 0.5,
        "{crossing:?}"
    );
}

#[test]
fn stripes_within_their_rack_limit_live_longer() {
    assert!(quick("EAR-LIVES").goals[0].is_met);
}

/// A cluster that takes as long as can be worked out by hand: conversions are made one after another, and
/// puts use other racks than they.
struct ByHand;

const IDLE_S: f64 = 0.125;
const SLICE_BYTES: u64 = 32 << 10;

impl ByHand {
    /// The first replicas of a segment's blocks are on two nodes of rack 0, and stay on others. One of the
    /// two encodes: it gets two blocks from the other, a slice of each in turn, and sends it a parity chunk,
    /// whose last slice leaves when the last of both is there.
    fn time(bench: &EncodeBench, trial: &EncodeTrial) -> EncodeTime {
        let nodes = |numbers: &[u32]| numbers.iter().copied().map(NodeId).collect::<Vec<_>>();
        let segment = SegmentPlaces {
            replicas: (0..4)
                .map(|block| nodes(&[block % 2, 2 * block + 2, 2 * block + 3]))
                .collect(),
            placement: nodes(&[2, 4, 6, 8, 0, 1]),
        };
        let segment_count = bench.file_count * bench.segments_per_file;
        // Rates of testbeds are 96 % payload.
        let chunk_s = bench.chunk_bytes as f64 / (0.96 * bench.node_bytes_per_s as f64);
        let slice_s = chunk_s * SLICE_BYTES as f64 / bench.chunk_bytes as f64;
        let put = PutTime {
            replicas: vec![nodes(&[10, 12, 14]); 4],
            at_s: 0.0,
            seconds: IDLE_S + 4.0 * chunk_s,
        };
        EncodeTime {
            seconds: segment_count as f64 * (IDLE_S + 2.0 * chunk_s + slice_s),
            segments: vec![segment; segment_count as usize],
            // Puts that share links with each other are no case for doing it by hand.
            puts: trial
                .puts_at_s
                .iter()
                .take(1)
                .map(|_| put.clone())
                .collect(),
            encode_cross_rack_bytes: 0,
            cores: 0.5,
            other_cores: 0.0,
        }
    }
}

impl Clusters for ByHand {
    fn encodings(&self, bench: &EncodeBench) -> Result<Encodings, LabError> {
        let trials = bench.trials.iter();
        Ok(Encodings {
            idle_encode_s: IDLE_S,
            idle_put_s: IDLE_S,
            conversions_at_once: 1,
            slice_bytes: SLICE_BYTES,
            trials: trials.map(|trial| Self::time(bench, trial)).collect(),
        })
    }

    fn transfer(&self, _: &TransferSetting) -> Result<Transfers, LabError> {
        unreachable!("it encodes")
    }

    fn overwrite(
        &self,
        _: &OverwriteSetting,
        _: &[Overwrite],
    ) -> Result<Vec<CacheEffect>, LabError> {
        unreachable!("it encodes")
    }

    fn update_on_testbed(
        &self,
        _: &TestbedSetting,
        _: &[Overwrite],
    ) -> Result<Vec<Throughput>, LabError> {
        unreachable!("it encodes")
    }

    fn repairs(&self, _: &RepairBench) -> Result<Vec<TrialTime>, LabError> {
        unreachable!("it encodes")
    }

    fn hdfs_missing(&self) -> Option<String> {
        None
    }

    fn hdfs(&self, _: &HdfsBench) -> Result<HdfsTimes, LabError> {
        unreachable!("it encodes")
    }
}

/// The model's times are those that are found by hand, to a thousandth.
#[test]
fn the_model_of_links_agrees_with_a_cluster_by_hand() {
    let report = crate::quick::quick("EAR-B1", Some(&ByHand));
    crate::quick::check_findings(&report);
    let trial_count = report.tables[0].rows.len();
    assert_eq!(report.goals.len(), 2 * trial_count, "encoding and writing");
    for goal in &report.goals {
        let off_pct = goal.ours_value.unwrap();
        assert!(off_pct.abs() < 0.1, "{}: {off_pct}", goal.what);
    }
    for row in &report.tables[0].rows {
        assert!(
            number(&row[8]) < f64::EPSILON,
            "no data crosses racks: {row:?}"
        );
    }
}
