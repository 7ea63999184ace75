//! What the process takes, as Linux tells it; elsewhere nothing is known.

#[derive(Debug, Default, PartialEq)]
pub(super) struct Usage {
    pub(super) resident_bytes: Option<u64>,
    pub(super) cpu_seconds: Option<f64>,
    pub(super) open_files: Option<usize>,
}

pub(super) fn usage() -> Usage {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).ok();
    Usage {
        resident_bytes: read("status").and_then(|text| resident(&text)),
        cpu_seconds: read("stat").and_then(|text| cpu(&text)),
        open_files: std::fs::read_dir("/proc/self/fd").ok().map(Iterator::count),
    }
}

fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Fields 14 and 15, user and system time. Linux reports them in hundredths of a second on every architecture.
fn cpu(stat: &str) -> Option<f64> {
    // The second field is the name in parentheses, which may hold spaces and parentheses of its own.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u32>().ok().map(f64::from);
    Some((ticks()? + ticks()?) / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_texts_are_understood() {
        assert_eq!(resident("Name:\tx\nVmRSS:\t   12 kB\nThreads:\t1\n"), Some(12 * 1024));
        assert_eq!(resident("Name:\tx\n"), None);
        let stat = "42 (a) b) S 1 42 42 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 1 0 100 0 0";
        assert_eq!(cpu(stat), Some(2.0));
        assert_eq!(cpu("nonsense"), None);
    }
}
