//! What holds whatever happens, of parts that `histories` does not play: names of the front door, several hosts that fall
//! silent, and what a Service is told. A World hears `Change`s, and is asked what it desires.

mod hosts;
mod leader;
mod lost_time;
mod names;
mod ports;
mod services;

/// In an order by chance; always the same for a seed.
fn shuffled<T>(mut all: Vec<T>, seed: u64) -> Vec<T> {
    let mut state = seed | 1;
    for at in (1..all.len()).rev() {
        // xorshift
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        all.swap(at, (state % (at as u64 + 1)) as usize);
    }
    all
}
