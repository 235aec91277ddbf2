//! Resource usage of processes: processor time and memory, from `/proc`.

use std::fs;
use std::time::{Duration, Instant};

/// Clock ticks per second: `USER_HZ` on every current Linux architecture (time(7)).
pub(super) const TICKS_PER_S: f64 = 100.0;

/// Total resource usage of a set of processes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// Average number of busy processors.
    pub cores: f64,
    /// Peak resident memory observed.
    pub memory_bytes: u64,
}

/// Samples the resource usage of a set of processes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Meter {
    first: Option<(Instant, u64)>,
    last: Option<(Instant, u64)>,
    memory_bytes: u64,
}

impl Meter {
    /// Samples the total usage of `processes`. Discards the sample if a process has exited, because
    /// the total would be incomplete.
    pub(super) fn sample(&mut self, at: Instant, processes: impl Iterator<Item = u32>) {
        let Some((ticks, memory_bytes)) = processes.map(used).try_fold((0, 0), |all, one| {
            let (ticks, memory_bytes) = one?;
            Some((all.0 + ticks, all.1 + memory_bytes))
        }) else {
            return;
        };
        self.first.get_or_insert((at, ticks));
        self.last = Some((at, ticks));
        self.memory_bytes = self.memory_bytes.max(memory_bytes);
    }

    /// Returns the usage between the first and last samples.
    pub(super) fn usage(&self) -> Usage {
        let cores = self.first.zip(self.last).map_or(0.0, |((started, before), (ended, after))| {
            let span = ended.saturating_duration_since(started).max(Duration::from_millis(1));
            (after - before) as f64 / TICKS_PER_S / span.as_secs_f64()
        });
        Usage { cores, memory_bytes: self.memory_bytes }
    }
}

/// Reads a process's processor time in ticks and its resident memory.
pub(super) fn used(process: u32) -> Option<(u64, u64)> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    Some((ticks(&stat)?, resident_bytes(&status)?))
}

/// Returns the sum of fields 14 and 15 of `stat` (proc_pid_stat(5)): user and system time in ticks.
/// Parsing starts after the process name, which may contain any character.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// Parses `VmRSS` in `status` (proc_pid_status(5)). Returns `None` if the process has exited.
fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_parsed() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194304 97 0 0 0 123 45 6 7 20 0 1 0 88 9 10";
        assert_eq!(ticks(stat), Some(168));
        assert_eq!(resident_bytes("Name:\tx\nVmHWM:\t 20 kB\nVmRSS:\t    12 kB\n"), Some(12 * 1024));
        assert_eq!((ticks("42 (a"), resident_bytes("Name:\tx\n")), (None, None));
    }

    #[test]
    fn this_process_has_measurable_usage() {
        let own = std::process::id();
        let (mut meter, started) = (Meter::default(), Instant::now());
        meter.sample(started, [own].into_iter());
        let mut sum = 0u64;
        while used(own).unwrap().0 < meter.first.unwrap().1 + 5 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        meter.sample(Instant::now(), [own].into_iter());
        meter.sample(Instant::now() + Duration::from_secs(1000), [own, u32::MAX].into_iter());
        let usage = meter.usage();
        assert!(usage.cores > 0.0 && usage.memory_bytes > 1 << 20, "{usage:?}");
        assert!(meter.last.unwrap().0 <= Instant::now(), "samples with a missing process are discarded");
    }
}
