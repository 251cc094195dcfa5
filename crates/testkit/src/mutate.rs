//! Fuzzing on stable Rust: a folder of seeds, and seeded mutations of them.
//!
//! Deterministic for one seed of `properties`, which `./test` prints, so that a failure on one machine is a failure on
//! all of them; cargo-fuzz looks further, with the same functions and the same seeds (`fuzz/README.md`).

use std::fs;
use std::panic::{self, RefUnwindSafe};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::properties;

/// Runs what it is given, and tells how many bytes that had allocated at once, in this thread:
/// `|run| allocation_counter::measure(run).bytes_max`.
pub type Measure = fn(&mut dyn FnMut()) -> u64;

/// What one input may make a parser hold at once. The most that was seen are four million bytes, of YAML whose aliases come to
/// as many values as are allowed; and four hundred thousand of a regular expression, and fifty thousand of all others.
const MOST_BYTES: u64 = 16 << 20;

/// Mutations go on for so many seconds, where they would be over before. `./test` says how many.
const SECONDS: &str = "SEAWAY_FUZZ_SECONDS";

/// Runs `target` over every file of `corpus`, and of what `./test fuzz` learned beside it (`fuzz/grown`), then over `rounds`
/// mutations of them.
///
/// Panics with the offending input if `target` does, or if it takes too much memory, and keeps the input in a corpus of
/// `fuzz/`, where it is tried first from then on. Panics if there are no seeds, because then nothing was tested.
pub fn hold(corpus: &Path, rounds: usize, measure: Measure, target: impl Fn(&[u8]) + RefUnwindSafe) {
    let mut seeds = seeds(corpus);
    assert!(!seeds.is_empty(), "no seeds in {}", corpus.display());
    seeds.extend(grown(corpus));
    for seed in &seeds {
        if let Err(why) = attempt(seed, measure, &target) {
            panic!("{why} b\"{}\"", seed.escape_ascii());
        }
    }
    let seconds = std::env::var(SECONDS).ok().and_then(|it| it.parse().ok()).unwrap_or_default();
    let (began, rounds) = (Instant::now(), rounds.saturating_mul(properties::cases(1) as usize));
    let mut dice = Xorshift::new(properties::seed());
    for round in 0.. {
        if is_over(round, rounds, began.elapsed(), Duration::from_secs(seconds)) {
            return;
        }
        let input = mutation(&seeds, &mut dice);
        if let Err(why) = attempt(&input, measure, &target) {
            let kept = keep(corpus, &input);
            panic!("{why} b\"{}\"{kept}", input.escape_ascii());
        }
    }
}

/// All rounds, and all of the time; no rounds are none.
fn is_over(round: usize, rounds: usize, since: Duration, time: Duration) -> bool {
    round >= rounds && (rounds == 0 || since >= time)
}

fn attempt(input: &[u8], measure: Measure, target: &(impl Fn(&[u8]) + RefUnwindSafe)) -> Result<(), String> {
    let mut holds = true;
    let bytes = measure(&mut || holds = panic::catch_unwind(|| target(input)).is_ok());
    match holds {
        false => Err("it fails for".to_owned()),
        true if bytes > MOST_BYTES => Err(format!("{bytes} bytes at once are allocated for")),
        true => Ok(()),
    }
}

/// One, two, four or eight random edits of a random seed: what is changed a little still is nearly what it was.
pub fn mutation(seeds: &[Vec<u8>], dice: &mut Xorshift) -> Vec<u8> {
    let mut bytes = seeds[dice.below(seeds.len())].clone();
    for _ in 0..1 << dice.below(4) {
        edit(&mut bytes, seeds, dice);
    }
    bytes
}

/// Marsaglia's xorshift64: all the randomness that this needs.
#[derive(Clone, Debug)]
pub struct Xorshift(u64);

impl Xorshift {
    pub fn new(seed: u64) -> Xorshift {
        Xorshift(seed.max(1))
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

fn edit(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], dice: &mut Xorshift) {
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

fn grown(corpus: &Path) -> Vec<Vec<u8>> {
    let name = corpus.file_name().unwrap_or_default();
    let folder = corpus.parent().map(|all| all.with_file_name("grown").join(name));
    folder.filter(|it| is_corpus(corpus) && it.is_dir()).map(|it| self::seeds(&it)).unwrap_or_default()
}

/// Of `fuzz/`.
fn is_corpus(corpus: &Path) -> bool {
    corpus.components().any(|it| it.as_os_str() == "corpus")
}

/// Only where seeds are files that nothing else reads.
fn keep(corpus: &Path, input: &[u8]) -> String {
    if !is_corpus(corpus) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn weightless(run: &mut dyn FnMut()) -> u64 {
        run();
        0
    }

    fn corpus() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::write(folder.path().join("seed"), b"harmless").expect("a seed");
        folder
    }

    #[test]
    fn mutations_are_the_same_every_time() {
        let seeds = [b"one".to_vec(), b"another".to_vec()];
        let run = || -> Vec<_> {
            let mut dice = Xorshift::new(7);
            (0..50).map(|_| mutation(&seeds, &mut dice)).collect()
        };
        assert_eq!(run(), run());
        assert!(run().iter().any(|bytes| !seeds.contains(bytes)));
    }

    #[test]
    fn a_fault_that_only_a_mutation_meets_is_found() {
        let found = panic::catch_unwind(|| {
            hold(corpus().path(), 2_000, weightless, |bytes| {
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
        assert!(panic::catch_unwind(|| hold(&corpus, 5_000, weightless, fragile)).is_err());
        assert_eq!(fs::read_dir(&corpus).expect("a folder").count(), 2);
        // No mutation is needed any more.
        assert!(panic::catch_unwind(|| hold(&corpus, 0, weightless, fragile)).is_err());
    }

    #[test]
    fn mutations_go_on_until_both_rounds_and_time_are_over() {
        let seconds = Duration::from_secs;
        for (round, rounds, since, expected) in
            [(0, 0, 0, true), (9, 10, 9, false), (10, 10, 4, false), (10, 10, 5, true), (99, 10, 4, false)]
        {
            assert_eq!(is_over(round, rounds, seconds(since), seconds(5)), expected, "{round} of {rounds}");
        }
    }

    #[test]
    fn what_takes_too_much_memory_is_found() {
        let heavy = |run: &mut dyn FnMut()| {
            run();
            MOST_BYTES + 1
        };
        let found = panic::catch_unwind(|| hold(corpus().path(), 1, heavy, |_| ()));
        let told = *found.expect_err("it is too much").downcast::<String>().expect("a text");
        assert_eq!(told, "16777217 bytes at once are allocated for b\"harmless\"");
    }

    #[test]
    fn an_empty_corpus_is_a_failure() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        assert!(panic::catch_unwind(|| hold(folder.path(), 1, weightless, |_| ())).is_err());
    }
}
