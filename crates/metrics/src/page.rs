//! One page of metrics, in the form that its reader asks for.

use crate::rows::{Labels, Rows};
use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::registry::{Metric, Registry, Unit};

/// The form of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Form {
    /// Prometheus' text format, version 0.0.4.
    #[default]
    Prometheus,
    /// `OpenMetrics` 1.0.
    OpenMetrics,
}

impl Form {
    /// The form for a request's header `Accept`.
    pub(crate) fn of(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// Its `Content-Type`.
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => prometheus_text::CONTENT_TYPE,
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The metrics of a registry in this form.
    ///
    /// # Panics
    /// Never: strings take all text.
    pub fn text(self, registry: &Registry) -> String {
        let mut written = String::new();
        let encoded = match self {
            Self::Prometheus => prometheus_text::encode(&mut written, registry),
            Self::OpenMetrics => text::encode(&mut written, registry),
        };
        encoded.expect("strings take all text");
        written
    }
}

/// A page of metrics under one prefix. Units are appended to names, and `_total` to those of counters.
#[derive(Debug)]
pub struct Page {
    prefix: &'static str,
    registry: Registry,
}

impl Page {
    /// An empty page; names begin with this prefix.
    pub fn new(prefix: &'static str) -> Self {
        let registry = Registry::default();
        Self { prefix, registry }
    }

    /// Adds a metric that lasts longer than the page.
    pub fn add(&mut self, name: &str, help: &str, unit: Option<Unit>, metric: impl Metric) {
        let name = format!("{}_{name}", self.prefix);
        self.add_plain(&name, help, unit, metric);
    }

    /// Adds a metric whose name has no prefix.
    pub(crate) fn add_plain(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        metric: impl Metric,
    ) {
        match unit {
            Some(unit) => self.registry.register_with_unit(name, help, unit, metric),
            None => self.registry.register(name, help, metric),
        }
    }

    /// Adds a value that goes up and down.
    pub fn gauge(&mut self, name: &str, help: &str, unit: Option<Unit>, value: f64) {
        self.gauges(name, help, unit, [(Labels::new(), value)]);
    }

    /// Adds values that go up and down, one for each set of labels.
    pub fn gauges(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        rows: impl IntoIterator<Item = (Labels, f64)>,
    ) {
        self.add(name, help, unit, Rows::gauge(rows));
    }

    /// Adds a value that only grows.
    pub fn counter(&mut self, name: &str, help: &str, unit: Option<Unit>, value: f64) {
        self.counters(name, help, unit, [(Labels::new(), value)]);
    }

    /// Adds values that only grow, one for each set of labels.
    pub fn counters(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        rows: impl IntoIterator<Item = (Labels, f64)>,
    ) {
        self.add(name, help, unit, Rows::counter(rows));
    }

    /// Its text.
    #[must_use]
    pub fn text(&self, form: Form) -> String {
        form.text(&self.registry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_units_labels_and_the_suffix_of_counters() {
        let mut page = Page::new("gabion_test");
        let rows = [(vec![("rack", "3".to_owned())], 12.0)];
        page.counters("sent", "Bytes sent", Some(Unit::Bytes), rows);
        page.gauge("age", "Age of the oldest", Some(Unit::Seconds), 0.5);
        page.gauges("empty", "Nothing", None, []);
        let expected = "# HELP gabion_test_sent_bytes_total Bytes sent.\n\
                        # TYPE gabion_test_sent_bytes_total counter\n\
                        gabion_test_sent_bytes_total{rack=\"3\"} 12.0\n\
                        # HELP gabion_test_age_seconds Age of the oldest.\n\
                        # TYPE gabion_test_age_seconds gauge\n\
                        gabion_test_age_seconds 0.5\n";
        assert_eq!(page.text(Form::Prometheus), expected);
        let open = page.text(Form::OpenMetrics);
        assert!(
            open.contains("gabion_test_sent_bytes_total{rack=\"3\"} 12.0\n"),
            "{open}"
        );
        assert!(open.ends_with("# EOF\n"), "{open}");
    }

    #[test]
    fn a_reader_gets_open_metrics_if_it_asks_for_it() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4";
        assert_eq!(Form::of(prometheus), Form::OpenMetrics);
        assert_eq!(Form::of("text/plain, */*"), Form::Prometheus);
    }
}
