//! Golden parts of plots' SVG.

use super::*;

fn plot(chart: Chart) -> Plot {
    Plot::new("p", "A title", ["scheme", "MB/s"], chart)
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn bars() -> Plot {
    plot(Chart::Bars {
        categories: names(&["FO", "PLR"]),
        series: vec![
            ("disk".to_owned(), vec![1.0, 2.0]),
            ("model".to_owned(), vec![2.0, 4.0]),
        ],
    })
}

/// The texts of a document.
fn texts(svg: &str) -> Vec<&str> {
    let texts = svg.lines().filter(|line| line.starts_with("<text"));
    texts
        .filter_map(|line| line.split('>').nth(1)?.split('<').next())
        .collect()
}

/// Elements of a class.
fn count(svg: &str, class: &str) -> usize {
    svg.matches(&format!("class=\"{class}\"")).count()
}

/// The heights of bars of a colour, without the legend's key.
fn bar_heights(svg: &str, colour: &str) -> Vec<f64> {
    let rectangles = svg
        .lines()
        .filter(|line| line.starts_with("<rect") && line.contains(colour));
    let height = |line: &str| {
        let (_, rest) = line.split_once(" height=\"")?;
        rest.split('"').next()?.parse::<f64>().ok()
    };
    rectangles
        .filter_map(height)
        .filter(|h| *h > 20.0)
        .collect()
}

#[test]
fn bars_have_their_heights_names_and_legend() {
    let svg = bars().svg().unwrap();
    let shown = texts(&svg);
    for text in [
        "A title", "FO", "PLR", "disk", "model", "scheme", "MB/s", "0", "4",
    ] {
        assert!(shown.contains(&text), "{text} in {shown:?}");
    }
    let heights = bar_heights(&svg, "#1F538D");
    assert_eq!(heights.len(), 2, "{svg}");
    assert!((heights[1] / heights[0] - 2.0).abs() < 0.02, "{heights:?}");
    assert_eq!(count(&svg, "paper"), 0);
    assert_eq!(count(&svg, "error"), 0);
}

#[test]
fn no_name_has_quotes() {
    let boxes = plot(Chart::Boxes {
        samples: vec![("k=12".to_owned(), vec![1.0, 2.0])],
    });
    for plot in [bars(), boxes] {
        let svg = plot.svg().unwrap();
        let shown = texts(&svg);
        let is_quoted = |text: &&str| text.contains('"') || text.contains("&quot;");
        assert!(!shown.iter().any(is_quoted), "{shown:?}");
    }
}

#[test]
fn the_papers_values_are_marked_beside_ours() {
    let mut plot = bars();
    plot.mark_bar("PLR", "model", 8.0);
    let svg = plot.svg().unwrap();
    assert_eq!(count(&svg, "paper"), 2, "the mark and its key");
    assert!(texts(&svg).contains(&"the paper's"));
    let heights = bar_heights(&svg, "#1F538D");
    assert!(heights[1] < 150.0, "the axis reaches the mark: {heights:?}");
    let mut boxes = self::plot(Chart::Boxes {
        samples: vec![("4".to_owned(), vec![1.0, 2.0])],
    });
    boxes.mark_box("4", 1.5);
    assert_eq!(count(&boxes.svg().unwrap(), "paper"), 2);
    let mut lines = self::plot(Chart::Lines {
        series: vec![("ours".to_owned(), vec![(0.0, 1.0), (18.0, 2.0)])],
    });
    lines.mark_point(18.0, 1.5);
    assert_eq!(count(&lines.svg().unwrap(), "paper"), 2);
}

#[test]
fn several_runs_have_intervals_and_stand_ins_an_asterisk() {
    let mut mean = bars().with_stand_ins(["PLR"]);
    let mut other = bars();
    let Chart::Bars { series, .. } = &mut other.chart else {
        panic!("bars");
    };
    series[0].1[0] = 1.5;
    mean.merge(&[&other]);
    let svg = mean.svg().unwrap();
    assert_eq!(count(&svg, "error"), 1, "one value differs");
    let shown = texts(&svg);
    for text in ["PLR*", "FO", "stand-in"] {
        assert!(shown.contains(&text), "{text} in {shown:?}");
    }
    let heights = bar_heights(&svg, "#1F538D");
    assert!(
        (heights[0] / heights[1] - 0.625).abs() < 0.02,
        "{heights:?}"
    );
}

#[test]
fn series_are_told_apart_without_colours() {
    let svg = bars().svg().unwrap();
    assert_eq!(count(&svg, "hatch"), 3, "two bars and a key");
    let lines = plot(Chart::Lines {
        series: vec![
            ("a".to_owned(), vec![(0.0, 1.0), (1.0, 2.0)]),
            ("b".to_owned(), vec![(0.0, 2.0), (1.0, 1.0)]),
        ],
    });
    let svg = lines.svg().unwrap();
    assert_eq!(count(&svg, "marker"), 6, "two points and a key each");
    assert!(svg.contains("stroke-dasharray=\"7 4\""), "{svg}");
}

#[test]
fn lines_and_boxes_are_drawn() {
    let lines = plot(Chart::Lines {
        series: vec![("merge".to_owned(), vec![(0.0, 1.0), (41.0, 0.1)])],
    });
    assert!(lines.svg().unwrap().contains("<path"));
    let boxes = plot(Chart::Boxes {
        samples: vec![("k=12".to_owned(), vec![1.0, 2.0, 3.0, 9.0])],
    });
    let svg = boxes.svg().unwrap();
    assert!(texts(&svg).contains(&"k=12"));
    assert_eq!(count(&svg, "box"), 1);
    assert_eq!(count(&svg, "outlier"), 1, "9 is far from the others");
}

#[test]
fn long_names_are_turned() {
    let long = format!("a name of many letters, {}", "which goes on ".repeat(8));
    let plot = plot(Chart::Bars {
        categories: vec![long.clone(), long],
        series: vec![("s".to_owned(), vec![1.0, 2.0])],
    });
    assert!(plot.svg().unwrap().contains("rotate(-40"));
    assert!(!bars().svg().unwrap().contains("rotate(-40"));
}

#[test]
fn values_of_very_different_size_are_apart_on_a_logarithmic_axis() {
    let svg = plot(Chart::LogLines {
        series: vec![
            (
                "large".to_owned(),
                vec![(0.0, 0.0), (1.0, 1e-3), (2.0, 2e-3)],
            ),
            ("small".to_owned(), vec![(1.0, 1e-6), (2.0, 2e-6)]),
        ],
    })
    .svg()
    .unwrap();
    for text in ["1e-6", "1e-3", "large", "small"] {
        assert!(texts(&svg).contains(&text), "{text}");
    }
    let none = Chart::LogLines {
        series: vec![("zero".to_owned(), vec![(1.0, 0.0)])],
    };
    let error = plot(none).svg().unwrap_err().to_string();
    assert!(error.contains("nothing is above 0"), "{error}");
}

/// The ends of intervals, from the lower to the upper one.
fn intervals(svg: &str) -> Vec<[f64; 2]> {
    let paths = svg.lines().filter(|line| line.contains("class=\"error\""));
    let ends = |line: &str| {
        let (_, path) = line.split_once(" d=\"M")?;
        let (from, rest) = path.split_once('L')?;
        let y = |point: &str| {
            let (_, y) = point.trim().split_once([' ', ','])?;
            let digits = |c: char| c.is_ascii_digit() || c == '.';
            let end = y.find(|c| !digits(c)).unwrap_or(y.len());
            y[..end].parse::<f64>().ok()
        };
        Some([y(from)?, y(rest)?])
    };
    paths.filter_map(ends).collect()
}

#[test]
fn lines_on_a_logarithmic_axis_have_intervals_at_their_points() {
    let of = |values: [f64; 4]| {
        let points = (0..).map(f64::from).zip(values).collect();
        plot(Chart::LogLines {
            series: vec![("ours".to_owned(), points)],
        })
    };
    // The first point is left out, and the second is the same in both runs.
    let mut mean = of([0.0, 1.0, 90.0, 10.0]);
    mean.merge(&[&of([0.0, 1.0, 110.0, 1000.0])]);
    let svg = mean.svg().unwrap();
    assert_eq!(count(&svg, "error"), 2, "{svg}");
    let [[low, high], [lowest, _]] = intervals(&svg)[..] else {
        panic!("{svg}");
    };
    // 100 +- 127 and 505 +- 6289 both reach below 0, so to the end of the axis.
    assert!(
        lowest > high && (low - lowest).abs() < 1e-9,
        "{low} {lowest} {high}"
    );
    let mut narrow = of([0.0, 1.0, 100.0, 10.0]);
    narrow.merge(&[&of([0.0, 1.0, 100.1, 10.0])]);
    let [[low, high]] = intervals(&narrow.svg().unwrap())[..] else {
        panic!("one value differs");
    };
    assert!(low > high && low - high < 10.0, "{low} {high}");
}

#[test]
fn an_interval_has_no_cap_where_the_axis_ends_before_it() {
    let check = |other_value: f64, piece_count: usize| {
        let (mut mean, mut other) = (bars(), bars());
        let Chart::Bars { series, .. } = &mut other.chart else {
            panic!("bars");
        };
        series[0].1[0] = other_value;
        mean.merge(&[&other]);
        let svg = mean.svg().unwrap();
        let mut paths = svg.lines().filter(|line| line.contains("class=\"error\""));
        let path = paths.next().expect("one value differs");
        assert_eq!(path.matches('M').count(), piece_count, "{path}");
    };
    check(1.01, 3);
    check(2.0, 2);
}

#[test]
fn intervals_of_long_lines_are_at_their_markers_and_apart() {
    let of = |height: f64| {
        let points: Vec<(f64, f64)> = (0..24).map(|x| (f64::from(x), height)).collect();
        plot(Chart::Lines {
            series: vec![("a".to_owned(), points.clone()), ("b".to_owned(), points)],
        })
    };
    let mut mean = of(1.0);
    mean.merge(&[&of(3.0)]);
    let svg = mean.svg().unwrap();
    assert_eq!(count(&svg, "error"), 24, "12 of each line");
    let places = svg.lines().filter(|line| line.contains("class=\"error\""));
    let places = places.filter_map(|line| line.split_once(" d=\"M")?.1.split([' ', ',']).next());
    let places: std::collections::BTreeSet<&str> = places.collect();
    assert_eq!(places.len(), 24, "two intervals are at one place: {svg}");
}

#[test]
fn marks_are_means_as_values_are() {
    let mut mean = bars();
    mean.mark_bar("PLR", "model", 4.0);
    let mut other = bars();
    other.mark_bar("PLR", "model", 12.0);
    let at_mean = {
        let mut plot = bars();
        plot.mark_bar("PLR", "model", 8.0);
        plot.svg().unwrap()
    };
    mean.merge(&[&other]);
    assert_eq!(mean.svg().unwrap(), at_mean);
}

#[test]
fn what_cannot_be_drawn_is_refused_in_words() {
    let bars = |values: Vec<f64>| Chart::Bars {
        categories: names(&["a", "b"]),
        series: vec![("s".to_owned(), values)],
    };
    for (chart, expected) in [
        (bars(vec![1.0]), "a value for each category"),
        (bars(vec![1.0, f64::NAN]), "NaN cannot be drawn"),
        (bars(vec![1.0, -1.0]), "-1 cannot be drawn"),
        (Chart::Lines { series: vec![] }, "nothing to draw"),
        (
            Chart::Boxes {
                samples: vec![("x".to_owned(), vec![])],
            },
            "needs a sample",
        ),
    ] {
        let error = plot(chart).svg().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
