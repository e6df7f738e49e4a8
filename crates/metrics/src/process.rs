//! The figures that every process has: its processor time, memory and descriptors, by the names that Prometheus' own
//! clients use.

use crate::page::Page;
use crate::rows::{Labels, Rows};
use prometheus_client::registry::Unit;
use std::fs;

/// Adds this process's figures, as far as the system tells them.
pub fn add_process(page: &mut Page) {
    if let Some(stat) = Stat::read() {
        let help = "Processor time of the process, of users and of the system";
        let time = Rows::counter([(Labels::new(), stat.processor_s)]);
        page.add_plain("process_cpu", help, Some(Unit::Seconds), time);
        let help = "Memory of the process that is resident";
        let memory = Rows::gauge([(Labels::new(), stat.resident_bytes)]);
        page.add_plain("process_resident_memory", help, Some(Unit::Bytes), memory);
    }
    if let Ok(descriptors) = fs::read_dir("/proc/self/fd") {
        let help = "Open descriptors of the process";
        let count = Rows::gauge([(Labels::new(), descriptors.count() as f64)]);
        page.add_plain("process_open_fds", help, None, count);
    }
}

struct Stat {
    processor_s: f64,
    resident_bytes: f64,
}

impl Stat {
    /// Reads the process's own row of `/proc`.
    fn read() -> Option<Self> {
        let text = fs::read_to_string("/proc/self/stat").ok()?;
        // The name before it may have spaces.
        let (_, fields) = text.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<f64>().ok();
        let ticks = number(11)? + number(12)?;
        let pages = number(21)?;
        Some(Self {
            processor_s: ticks / rustix::param::clock_ticks_per_second() as f64,
            resident_bytes: pages * rustix::param::page_size() as f64,
        })
    }
}
