//! What processes use: processor time and memory, as `/proc` tells.

use std::fs;
use std::time::{Duration, Instant};

/// Ticks of processor time in a second: `USER_HZ` of all of Linux's architectures but two that are gone (time(7)).
const TICKS_PER_S: f64 = 100.0;

/// What some processes use together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// Processors kept busy, on average.
    pub cores: f64,
    /// The most memory that was seen.
    pub memory_bytes: u64,
}

/// Looks at processes again and again.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Meter {
    first: Option<(Instant, u64)>,
    last: Option<(Instant, u64)>,
    memory_bytes: u64,
}

impl Meter {
    /// Looks at all of them. Once one has gone, what is used is no longer that of all, and looks no longer count.
    pub(super) fn look(&mut self, at: Instant, processes: impl Iterator<Item = u32>) {
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

    /// From the first look to the last.
    pub(super) fn usage(&self) -> Usage {
        let cores = self.first.zip(self.last).map_or(0.0, |((begun, before), (ended, after))| {
            let span = ended.saturating_duration_since(begun).max(Duration::from_millis(1));
            (after - before) as f64 / TICKS_PER_S / span.as_secs_f64()
        });
        Usage { cores, memory_bytes: self.memory_bytes }
    }
}

/// Ticks of processor time that a process has used, and the memory that it has.
fn used(process: u32) -> Option<(u64, u64)> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    Some((ticks(&stat)?, resident_bytes(&status)?))
}

/// Fields 14 and 15 of `stat` (proc_pid_stat(5)), behind the name, which may hold anything.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// `VmRSS` of `status` (proc_pid_status(5)); one that has ended has none.
fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_read() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194304 97 0 0 0 123 45 6 7 20 0 1 0 88 9 10";
        assert_eq!(ticks(stat), Some(168));
        assert_eq!(resident_bytes("Name:\tx\nVmHWM:\t 20 kB\nVmRSS:\t    12 kB\n"), Some(12 * 1024));
        assert_eq!((ticks("42 (a"), resident_bytes("Name:\tx\n")), (None, None));
    }

    #[test]
    fn this_process_uses_something() {
        let own = std::process::id();
        let (mut meter, begun) = (Meter::default(), Instant::now());
        meter.look(begun, [own].into_iter());
        let mut sum = 0u64;
        while used(own).unwrap().0 < meter.first.unwrap().1 + 5 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        meter.look(Instant::now(), [own].into_iter());
        meter.look(Instant::now() + Duration::from_secs(1000), [own, u32::MAX].into_iter());
        let usage = meter.usage();
        assert!(usage.cores > 0.0 && usage.memory_bytes > 1 << 20, "{usage:?}");
        assert!(meter.last.unwrap().0 <= Instant::now(), "one that is not there spoils a look");
    }
}
