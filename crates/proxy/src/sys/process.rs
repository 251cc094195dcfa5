use std::{io, mem, time::Duration};

use super::checked;

/// Binds the calling thread to one processor.
pub(crate) fn pin_to(cpu: usize) -> io::Result<()> {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the index is within the set, as just checked.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the pointer and the size are those of a set of ours; 0 is the calling thread.
    checked(unsafe { libc::sched_setaffinity(0, mem::size_of_val(&set), &set) }).map(drop)
}

/// How much less of a processor that others want: a tenth of what each of them has.
const NICE: libc::c_int = 10;

/// The calling thread has less of a processor from now on, where others want it.
pub(crate) fn give_way() {
    // SAFETY: no pointers are passed; 0 is the calling thread. Refusal only means that it takes turns as all others do.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

/// The calling thread sleeps as long as it says: the kernel would add 50 microseconds to spare wake-ups.
pub(crate) fn sleep_exactly() {
    // SAFETY: no pointers are passed. Refusal only means that sleeps stay longer.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000_u64) };
}

/// The calling thread runs only while the processor is idle otherwise, and any other thread that becomes runnable preempts it
/// (`SCHED_IDLE`, which needs no privilege).
pub(crate) fn run_when_idle() -> io::Result<()> {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is to a sched_param of ours that lives through the call; 0 is the calling thread.
    checked(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &priority) }).map(drop)
}

/// CPU time of the calling thread.
pub(crate) fn thread_cpu_time() -> Duration {
    let mut used = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours that lives through the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut used) };
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}

/// The kernel's table of descriptors is made for so many at once: it takes 8 bytes for each.
const TABLE: u64 = 65_536;

/// Lets the process have as many descriptors as it may without asking anybody; tells how many. To be called before there are
/// threads: the table that the kernel doubles later makes the thread that needs it wait for all processors, up to 80 ms.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to an rlimit of ours that lives through the call.
    checked(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) })?;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: as above.
    checked(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) })?;
    enlarge_table(limit.rlim_cur.min(TABLE));
    Ok(limit.rlim_cur)
}

/// By one descriptor at its end, for a moment. Where that is refused, the table grows when it must.
fn enlarge_table(size: u64) {
    let Ok(last) = libc::c_int::try_from(size.saturating_sub(1)) else { return };
    // SAFETY: no pointers are passed; the descriptor that comes back is nobody else's.
    let copy = unsafe { libc::fcntl(libc::STDERR_FILENO, libc::F_DUPFD_CLOEXEC, last) };
    if copy >= 0 {
        // SAFETY: it was just made here.
        unsafe { libc::close(copy) };
    }
}

/// How many descriptors the process may have at present.
pub(crate) fn descriptor_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to an rlimit of ours that lives through the call.
    checked(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) })?;
    Ok(limit.rlim_cur)
}

/// Gives memory that is free within the process back to the system: after a start, which reads more than it keeps.
pub fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no pointers are passed; the call only looks at the allocator's own lists, under its own locks.
    unsafe {
        libc::malloc_trim(0)
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_descriptors_is_large_from_the_start() {
        let limit = raise_descriptor_limit().expect("it may be raised to what it may be");
        let status = std::fs::read_to_string("/proc/self/status").expect("it is told");
        let size = status.lines().find_map(|it| it.strip_prefix("FDSize:")).expect("it is told");
        let size: u64 = size.trim().parse().expect("a number");
        assert!(size >= limit.min(TABLE), "{size} of {limit}");
    }
}
