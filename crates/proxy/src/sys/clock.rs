/// Milliseconds of a clock that only goes forward, some milliseconds coarse and nearly free to read.
///
/// Never 0, so that 0 may mean "not yet" in an atomic.
pub(crate) fn millis() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours that lives through the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
    (now.tv_sec as u64).wrapping_mul(1000).wrapping_add(now.tv_nsec as u64 / 1_000_000).wrapping_add(1)
}

/// Microseconds of the same clock, exact: dearer, for what is measured. Never 0 either.
pub(crate) fn micros() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours that lives through the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    (now.tv_sec as u64).wrapping_mul(1_000_000).wrapping_add(now.tv_nsec as u64 / 1_000).wrapping_add(1)
}
