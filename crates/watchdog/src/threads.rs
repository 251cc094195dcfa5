//! What the kernel tells of threads of this process.

use std::{fs, time::Duration};

/// A thread at one moment; of several threads, the one that ran least of those that could run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) thread: i32,
    pub(crate) doing: ThreadState,
    /// Since it began.
    pub(crate) ran: Duration,
    /// The same: how long it could have run and had no processor.
    pub(crate) queued: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadState {
    Runs,
    Sleeps,
    /// It waits for a disk, or is stopped.
    Stands,
}

pub(crate) fn sample(thread: i32) -> Option<Sample> {
    let of = |file: &str| fs::read_to_string(format!("/proc/self/task/{thread}/{file}")).ok();
    read(thread, &of("stat")?, &of("schedstat")?)
}

/// Of all threads of this name: none sleeps as long as one runs.
pub(crate) fn sample_named(name: &str) -> Option<Sample> {
    let mut least: Option<Sample> = None;
    for entry in fs::read_dir("/proc/self/task").ok()?.flatten() {
        let Some(thread) = entry.file_name().to_str().and_then(|it| it.parse().ok()) else { continue };
        if !fs::read_to_string(entry.path().join("comm")).is_ok_and(|it| it.trim_end() == name) {
            continue;
        }
        let Some(one) = sample(thread) else { continue };
        least = Some(match least {
            Some(it) if rank(&it) <= rank(&one) => it,
            _ => one,
        });
    }
    least
}

fn rank(sample: &Sample) -> (u8, i32) {
    let doing = match sample.doing {
        ThreadState::Runs => 0,
        ThreadState::Stands => 1,
        ThreadState::Sleeps => 2,
    };
    (doing, sample.thread)
}

/// By proc(5): the name is in parentheses and may hold any character.
fn read(thread: i32, stat: &str, schedstat: &str) -> Option<Sample> {
    let state = stat.rsplit_once(')')?.1.trim_start().chars().next()?;
    let doing = match state {
        'R' => ThreadState::Runs,
        'S' | 'I' => ThreadState::Sleeps,
        _ => ThreadState::Stands,
    };
    let mut times = schedstat.split_whitespace().map(|it| it.parse().map(Duration::from_nanos));
    let (ran, queued) = (times.next()?.ok()?, times.next()?.ok()?);
    Some(Sample { thread, doing, ran, queued })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_understood() {
        let stat = |state: &str| format!("71 (a) b (c)) {state} 1 71 71 0 -1");
        let of = |state: &str| read(71, &stat(state), "1500000000 250000000 9\n");
        let sample = of("S").expect("understood");
        assert_eq!((sample.doing, sample.ran), (ThreadState::Sleeps, Duration::from_millis(1_500)));
        assert_eq!(sample.queued, Duration::from_millis(250));
        assert_eq!(of("R").map(|it| it.doing), Some(ThreadState::Runs));
        for state in ["D", "T", "t"] {
            assert_eq!(of(state).map(|it| it.doing), Some(ThreadState::Stands), "{state}");
        }
        assert_eq!(read(71, "71", "1 2 3"), None);
        assert_eq!(read(71, &stat("S"), ""), None);
    }

    #[test]
    fn this_very_thread_runs() {
        let own = sample(nix::unistd::gettid().as_raw()).expect("it is there");
        assert_eq!(own.doing, ThreadState::Runs);
        assert_eq!(sample_named("there is no such thread"), None);
    }
}
