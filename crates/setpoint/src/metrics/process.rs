//! What the process takes, under the names that every client library of Prometheus has. Linux tells it; elsewhere it is left
//! out. It is read when somebody looks.

use std::fmt::Error;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), Error> {
        let mut encode = |name: &str, help: &str, metric: &dyn EncodeMetric| {
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
        };
        let stat = fs::read_to_string("/proc/self/stat").ok();
        if let Some(seconds) = stat.as_deref().and_then(cpu_seconds) {
            let help = "Processor time, user and system.";
            // The encoder ends the name with `_total`.
            encode("process_cpu_seconds", help, &ConstCounter::new(seconds))?;
        }
        let status = fs::read_to_string("/proc/self/status").ok();
        if let Some(bytes) = status.as_deref().and_then(resident_bytes) {
            encode("process_resident_memory_bytes", "Memory that is resident.", &ConstGauge::new(bytes))?;
        }
        if let Ok(files) = fs::read_dir("/proc/self/fd") {
            encode("process_open_fds", "Open file descriptors.", &ConstGauge::new(files.count() as u64))?;
        }
        Ok(())
    }
}

fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// User and system time, the 14th and 15th field, which are hundredths of a second on every architecture. The second is a
/// name in parentheses, in which anything may be.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let (user, system) = (fields.next()?.parse::<f64>().ok()?, fields.next()?.parse::<f64>().ok()?);
    Some((user + system) / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_linux_says_is_understood() {
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t   12 kB\nThreads:\t1\n"), Some(12 * 1024));
        assert_eq!(resident_bytes("Name:\tx\n"), None);
        let stat = "42 (a) b) S 1 42 42 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 1 0 100 0 0";
        assert_eq!(cpu_seconds(stat), Some(2.0));
        assert_eq!(cpu_seconds("nonsense"), None);
    }
}
