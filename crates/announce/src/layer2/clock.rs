//! The time, and what tells one life of a process from another.

use aws_lc_rs::rand;
use nix::time::{ClockId, clock_gettime};

use super::state::Moment;

/// Goes on while the machine is suspended, so that no lease outlives that.
pub(super) fn now() -> Moment {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Moment::ZERO, Into::into)
}

/// Another number than that of any other life; not 0.
pub(super) fn boot() -> u64 {
    let mut bytes = [0_u8; 8];
    // It fails only where there is no randomness at all; the time tells lives apart as well.
    let number = match rand::fill(&mut bytes) {
        Ok(()) => bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)),
        Err(_) => u64::try_from(now().as_nanos()).unwrap_or(1),
    };
    number.max(1)
}
