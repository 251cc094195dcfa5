//! Fuzzing on stable Rust: a folder of seeds, and seeded mutations of them.
//!
//! Deterministic for one seed of `properties`, which `./test` prints, so that a failure on one machine is a failure on
//! all of them; cargo-fuzz looks further, with the same functions and the same seeds (`fuzz/README.md`).

use std::fs;
use std::panic::{self, RefUnwindSafe};
use std::path::Path;

use crate::properties;

/// Runs `target` over every file of `corpus`, then over `rounds` mutations of them.
///
/// Panics with the offending input if `target` does, and keeps it in a corpus of `fuzz/`, where it is tried first
/// from then on. Panics if there are no seeds, because then nothing was tested.
pub fn hold(corpus: &Path, rounds: usize, target: impl Fn(&[u8]) + RefUnwindSafe) {
    let seeds = seeds(corpus);
    assert!(!seeds.is_empty(), "no seeds in {}", corpus.display());
    for seed in &seeds {
        judge(seed, &target);
    }
    let mut dice = Dice::new(properties::seed());
    for _ in 0..rounds.saturating_mul(properties::cases(1) as usize) {
        let input = mutation(&seeds, &mut dice);
        if panic::catch_unwind(|| target(&input)).is_err() {
            let kept = keep(corpus, &input);
            panic!("it fails for b\"{}\"{kept}", input.escape_ascii());
        }
    }
}

/// One to eight random edits of a random seed.
pub fn mutation(seeds: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = seeds[dice.below(seeds.len())].clone();
    for _ in 0..=dice.below(8) {
        edit(&mut bytes, seeds, dice);
    }
    bytes
}

/// Marsaglia's xorshift64: all the randomness that this needs.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.max(1))
    }

    pub fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `end`; zero if there is none.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end.max(1)).expect("a length fits 64 bits");
        usize::try_from(self.roll() % end).expect("it is below a usize")
    }

    fn byte(&mut self) -> u8 {
        // The upper bits of xorshift are its better ones.
        self.roll().to_be_bytes()[0]
    }
}

/// Values at which readers of numbers, lengths and text stumble.
const AWKWARD: &[&[u8]] = &[
    b"\0",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff",
    b"\xff\xff\xff\xff",
    b"\r\n",
    b"\n",
    b"\r",
    b" ",
    b"\t",
    b"-1",
    b"65536",
    b"4294967296",
    b"18446744073709551616",
    b":",
    b"\"",
    b"{",
    b"[",
    b"&a",
    b"*a",
    b"\xef\xbb\xbf",
    b"\xc0\x80",
];

fn edit(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], dice: &mut Dice) {
    let at = dice.below(bytes.len() + 1);
    let until = at + dice.below((bytes.len() - at).min(16) + 1);
    match dice.below(8) {
        0 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << dice.below(8);
            }
        }
        1 => {
            let byte = dice.byte();
            if let Some(old) = bytes.get_mut(at) {
                *old = byte;
            }
        }
        2 => bytes.insert(at, dice.byte()),
        3 => drop(bytes.drain(at..until)),
        4 => bytes.truncate(at),
        5 => {
            let piece = bytes[at..until].to_vec();
            drop(bytes.splice(at..at, piece));
        }
        6 => {
            let awkward = AWKWARD[dice.below(AWKWARD.len())];
            drop(bytes.splice(at..until, awkward.iter().copied()));
        }
        _ => {
            let other = &seeds[dice.below(seeds.len())];
            bytes.truncate(at);
            bytes.extend_from_slice(&other[dice.below(other.len() + 1)..]);
        }
    }
}

fn seeds(corpus: &Path) -> Vec<Vec<u8>> {
    let entries =
        fs::read_dir(corpus).unwrap_or_else(|error| panic!("cannot list {}: {error}", corpus.display()));
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("a listed entry is readable").path())
        .filter(|path| path.is_file())
        .collect();
    // The order of a folder differs between machines; that of the mutations must not.
    paths.sort();
    paths
        .iter()
        .map(|path| fs::read(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display())))
        .collect()
}

/// Only where seeds are files that nothing else reads.
fn keep(corpus: &Path, input: &[u8]) -> String {
    if !corpus.components().any(|it| it.as_os_str() == "corpus") {
        return String::new();
    }
    let hash = input.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    let file = corpus.join(format!("found_{hash:016x}"));
    match fs::write(&file, input) {
        Ok(()) => format!("; kept as {}", file.display()),
        Err(error) => format!("; {} cannot be written: {error}", file.display()),
    }
}

fn judge(input: &[u8], target: &(impl Fn(&[u8]) + RefUnwindSafe)) {
    if panic::catch_unwind(|| target(input)).is_err() {
        panic!("it fails for b\"{}\"", input.escape_ascii());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corpus() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::write(folder.path().join("seed"), b"harmless").expect("a seed");
        folder
    }

    #[test]
    fn mutations_are_the_same_every_time() {
        let seeds = [b"one".to_vec(), b"another".to_vec()];
        let run = || -> Vec<_> {
            let mut dice = Dice::new(7);
            (0..50).map(|_| mutation(&seeds, &mut dice)).collect()
        };
        assert_eq!(run(), run());
        assert!(run().iter().any(|bytes| !seeds.contains(bytes)));
    }

    #[test]
    fn a_fault_that_only_a_mutation_meets_is_found() {
        let found = panic::catch_unwind(|| {
            hold(corpus().path(), 2_000, |bytes| {
                assert!(!bytes.contains(&0xff), "it cannot stand this byte");
            });
        });
        assert!(found.is_err());
    }

    #[test]
    fn what_is_found_is_kept_in_the_corpus_and_tried_first() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let corpus = folder.path().join("corpus");
        fs::create_dir(&corpus).expect("a folder");
        fs::write(corpus.join("seed"), b"harmless").expect("a seed");
        let fragile = |bytes: &[u8]| assert!(!bytes.contains(&0xff), "it cannot stand this byte");
        assert!(panic::catch_unwind(|| hold(&corpus, 5_000, fragile)).is_err());
        assert_eq!(fs::read_dir(&corpus).expect("a folder").count(), 2);
        // No mutation is needed any more.
        assert!(panic::catch_unwind(|| hold(&corpus, 0, fragile)).is_err());
    }

    #[test]
    fn an_empty_corpus_is_a_failure() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        assert!(panic::catch_unwind(|| hold(folder.path(), 1, |_| ())).is_err());
    }
}
