//! Targets for fuzzing: plain functions over bytes that panic when an invariant does not hold (`fuzz/README.md`).

/// Names of what is in a cloud, and whose a name in DNS is.
pub fn names(bytes: &[u8]) {
    crate::octavia::fuzz::names(bytes);
    crate::dns::fuzz(bytes);
}
