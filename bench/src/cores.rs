//! Reads what the kernel counted: time per core, time and memory per process.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::pace::now;
use crate::sys;

/// Where the contender runs, alone.
pub const CONTENDER: usize = 0;
/// Where generator, backend and everything else of ours runs.
pub const GENERATOR: usize = 1;

/// A look at the counters at one moment; differences of two are what counts.
#[derive(Clone, Copy, Debug)]
pub struct CounterSnapshot {
    at: u64,
    idle: f64,
    generator_idle: f64,
    stolen: f64,
    on_core: u64,
    all_on_core: Option<u64>,
    queued: u64,
    generator_queued: u64,
}

/// What a core and a contender did between two looks, as seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuUsage {
    pub wall: f64,
    /// Core 0 was not idle: user, system, softirq and irq together. With NO_HZ the kernel measures idle time exactly
    /// and samples only how the rest is divided, so this is the exact part of /proc/stat.
    pub busy: f64,
    /// The contender's own tasks ran, by the scheduler's clock. Includes interrupts that hit them.
    pub task: f64,
    /// All other tasks ran on core 0, where the kernel counts that (cpuacct).
    pub others: Option<f64>,
    /// The contender was ready but something else had its core.
    pub queued: f64,
    /// The same for the generator on core 1.
    pub generator_queued: f64,
    /// The hypervisor had the core.
    pub stolen: f64,
    /// Both cores together were not idle.
    pub both_busy: f64,
}

/// Nanoseconds that the tasks of all control groups ran, core by core; only with version 1 of control groups.
const PER_CORE: &str = "/sys/fs/cgroup/cpuacct/cpuacct.usage_percpu";

impl CounterSnapshot {
    pub fn take(contender: &[u32]) -> Result<Self> {
        let stat = fs::read_to_string("/proc/stat").context("/proc/stat")?;
        let (idle, stolen) =
            idle_and_stolen(&stat, CONTENDER).context("/proc/stat has no line for core 0")?;
        let (generator_idle, _) = idle_and_stolen(&stat, GENERATOR)
            .context("/proc/stat has no line for core 1: two cores are needed")?;
        let ticks = sys::ticks_per_second() as f64;
        let (mut on_core, mut queued) = (0, 0);
        for pid in contender {
            let (ran, waited) = tasks_time(*pid);
            on_core += ran;
            queued += waited;
        }
        let own = format!("/proc/self/task/{}/schedstat", sys::own_thread());
        let generator_queued = schedstat(Path::new(&own)).unwrap_or_default().1;
        let (idle, generator_idle, stolen) = (idle / ticks, generator_idle / ticks, stolen / ticks);
        let all_on_core = fs::read_to_string(PER_CORE).ok().and_then(|text| nth_number(&text, CONTENDER));
        Ok(Self { at: now(), idle, generator_idle, stolen, on_core, all_on_core, queued, generator_queued })
    }

    pub fn since(&self, earlier: &Self) -> CpuUsage {
        let wall = (self.at - earlier.at) as f64 / 1e9;
        let stolen = self.stolen - earlier.stolen;
        let nanos = |late: u64, early: u64| late.saturating_sub(early) as f64 / 1e9;
        let task = nanos(self.on_core, earlier.on_core);
        CpuUsage {
            wall,
            busy: (wall - (self.idle - earlier.idle) - stolen).max(0.0),
            task,
            others: self.all_on_core.zip(earlier.all_on_core).map(|(late, early)| nanos(late, early) - task),
            queued: nanos(self.queued, earlier.queued),
            generator_queued: nanos(self.generator_queued, earlier.generator_queued),
            stolen,
            both_busy: 2.0 * wall
                - (self.idle - earlier.idle)
                - (self.generator_idle - earlier.generator_idle),
        }
    }
}

/// Idle (with I/O wait) and stolen ticks of a core, from the text of /proc/stat.
fn idle_and_stolen(stat: &str, core: usize) -> Option<(f64, f64)> {
    let name = format!("cpu{core}");
    let line = stat.lines().find(|line| line.split_whitespace().next() == Some(&name))?;
    let ticks: Vec<f64> = line.split_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
    Some((ticks.get(3)? + ticks.get(4)?, *ticks.get(7)?))
}

/// Nanoseconds that all threads of a process ran and waited to run.
fn tasks_time(pid: u32) -> (u64, u64) {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return (0, 0) };
    tasks
        .flatten()
        .filter_map(|task| schedstat(&task.path().join("schedstat")))
        .fold((0, 0), |sum, time| (sum.0 + time.0, sum.1 + time.1))
}

fn schedstat(path: &Path) -> Option<(u64, u64)> {
    parse_schedstat(&fs::read_to_string(path).ok()?)
}

fn parse_schedstat(text: &str) -> Option<(u64, u64)> {
    Some((nth_number(text, 0)?, nth_number(text, 1)?))
}

fn nth_number(text: &str, index: usize) -> Option<u64> {
    text.split_whitespace().nth(index)?.parse().ok()
}

/// Memory of a process in bytes: what is resident, and its proportional share of what is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub resident: u64,
    pub proportional: u64,
}

impl Memory {
    pub fn of(pids: &[u32]) -> Result<Self> {
        let mut sum = Self::default();
        for pid in pids {
            let path = PathBuf::from(format!("/proc/{pid}/smaps_rollup"));
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let memory =
                parse_rollup(&text).with_context(|| format!("{}: no Rss and Pss", path.display()))?;
            sum.resident += memory.resident;
            sum.proportional += memory.proportional;
        }
        Ok(sum)
    }
}

fn parse_rollup(text: &str) -> Option<Memory> {
    let bytes = |name: &str| {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(name))?;
        Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
    };
    Some(Memory { resident: bytes("Rss:")?, proportional: bytes("Pss:")? })
}

/// The most bytes that were resident at once, of a process that has not ended.
pub fn peak_memory(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(nth_number(line, 1)? * 1024)
}

/// Bytes that are resident now; `None` when the process has ended.
pub fn resident(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find(|line| line.starts_with("VmRSS:"))?;
    Some(nth_number(line, 1)? * 1024)
}

/// Seconds of CPU that a process has taken, with those of threads that have ended; to the 10 ms.
pub fn cpu_time(pid: u32) -> Option<f64> {
    ticks_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
        .map(|it| it as f64 / sys::ticks_per_second() as f64)
}

/// User and system time in the text of /proc/PID/stat.
fn ticks_in(stat: &str) -> Option<u64> {
    let rest = stat.rsplit_once(") ")?.1;
    Some(nth_number(rest, 11)? + nth_number(rest, 12)?)
}

/// The processes of a group: the contender and whatever it started.
pub fn group(leader: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return vec![] };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            group_in(&stat) == Some(leader)
        })
        .collect()
}

/// Whether a child of ours is a zombie or gone. (Asking by `wait` would need the child exclusively.)
pub fn has_ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// The process group in the text of /proc/PID/stat, whose second field may hold spaces and brackets.
fn group_in(stat: &str) -> Option<u32> {
    stat.rsplit_once(") ")?.1.split_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_stolen_ticks_are_those_of_the_core_asked_for() {
        let stat =
            "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 400 50 6 7 8 0 0\ncpu1 1 1 1 1 1 1 1 1 0 0\nintr 5\n";
        assert_eq!(idle_and_stolen(stat, 0), Some((450.0, 8.0)));
        assert_eq!(idle_and_stolen(stat, 1), Some((2.0, 1.0)));
        assert_eq!(idle_and_stolen(stat, 2), None);
    }

    #[test]
    fn busy_is_what_was_neither_idle_nor_stolen() {
        let look = |at, idle, on_core| CounterSnapshot {
            at,
            idle,
            generator_idle: 5.0,
            stolen: 0.0,
            on_core,
            all_on_core: Some(on_core + at / 8),
            queued: 0,
            generator_queued: 0,
        };
        let spent = look(3_000_000_000, 11.5, 800_000_000).since(&look(1_000_000_000, 10.0, 300_000_000));
        assert_eq!((spent.wall, spent.busy, spent.task, spent.both_busy), (2.0, 0.5, 0.5, 2.5));
        assert_eq!(spent.others, Some(0.25));
    }

    #[test]
    fn schedstat_gives_time_run_and_time_waited() {
        assert_eq!(parse_schedstat("123456 789 12\n"), Some((123_456, 789)));
        assert_eq!(parse_schedstat(""), None);
    }

    #[test]
    fn a_rollup_gives_resident_and_proportional_bytes() {
        let text = "55e0-7ffd ---p 00000000 00:00 0 [rollup]\nRss:     2048 kB\nPss:    1000 kB\nPss_Dirty:   900 kB\n";
        assert_eq!(parse_rollup(text), Some(Memory { resident: 2 << 20, proportional: 1_024_000 }));
        assert_eq!(parse_rollup("Rss: 1 kB\n"), None);
    }

    #[test]
    fn a_process_name_with_brackets_does_not_hide_its_group() {
        let stat = "42 (a) R (b) S 1 77 77 0 -1 0 1 2 3 4 500 60 7 8";
        assert_eq!((group_in(stat), ticks_in(stat)), (Some(77), Some(560)));
    }
}
