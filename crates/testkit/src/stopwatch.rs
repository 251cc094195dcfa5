//! How long something took, but for the time in which the machine kept who did it waiting for a processor.

use std::time::{Duration, Instant};

/// Measures a process, and the thread of the test, which looks whether it is done.
///
/// A busy machine makes everything late, so a test of how long something takes was satisfied with the best of many tries, which a
/// program that is late nine times in ten passes. The kernel says of each thread how long it was ready to run and did not: that is
/// subtracted, and then most tries are to be in time.
#[derive(Debug)]
pub struct Stopwatch {
    process: u32,
    began: Instant,
    waited: Duration,
}

impl Stopwatch {
    /// Of a process, which may be the test's own.
    pub fn of(process: u32) -> Stopwatch {
        Stopwatch { process, began: Instant::now(), waited: waited(process) }
    }

    /// Since it was made, without what any thread of the process waited for a processor.
    pub fn elapsed(&self) -> Duration {
        let waited = waited(self.process).saturating_sub(self.waited);
        self.began.elapsed().saturating_sub(waited)
    }
}

/// That long threads were ready to run and did not.
fn waited(process: u32) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let mut files: Vec<_> = threads.map(|it| it.path().join("schedstat")).collect();
    if process != std::process::id() {
        files.push("/proc/thread-self/schedstat".into());
    }
    // A thread may have ended since; and a kernel that does not count says nothing, so that nothing is subtracted.
    files.iter().filter_map(|it| read(&std::fs::read_to_string(it).ok()?)).sum()
}

/// Time on a processor, time spent ready for one, and turns.
fn read(schedstat: &str) -> Option<Duration> {
    schedstat.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

/// The middle one: half of them took no longer.
pub fn median(mut all: Vec<Duration>) -> Duration {
    all.sort();
    all.get(all.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_is_spent_asleep_or_at_work_is_counted() {
        let watch = Stopwatch::of(std::process::id());
        let (begun, enough) = (Instant::now(), Duration::from_millis(30));
        std::thread::park_timeout(enough);
        while begun.elapsed() < enough {
            std::thread::park_timeout(enough);
        }
        assert!(watch.elapsed() <= begun.elapsed() + enough, "no more than there was");
        assert_eq!(read("12 34 5\n"), Some(Duration::from_nanos(34)));
        assert_eq!(read(""), None);
    }

    #[test]
    fn the_median_is_that_which_half_of_them_do_not_exceed() {
        let all = [90, 1, 2, 80, 70].map(Duration::from_millis);
        assert_eq!(median(all.to_vec()), Duration::from_millis(70));
    }
}
