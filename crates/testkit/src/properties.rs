//! How many cases a property is tried with, and from which seed.

/// The seed of all properties and mutations of a run, which `./test` sets and prints. Proptest reads it by itself.
const SEED: &str = "PROPTEST_RNG_SEED";
/// `./test long` tries so many times as many.
const FACTOR: &str = "SEAWAY_PROPERTY_FACTOR";

/// As many cases as that, more in a long run.
pub fn cases(cases: u32) -> u32 {
    cases.saturating_mul(number(FACTOR).and_then(|it| u32::try_from(it).ok()).unwrap_or(1))
}

/// The seed of this run, or always the same one outside of `./test`.
pub fn seed() -> u64 {
    number(SEED).unwrap_or(0x5ea_3a4)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
