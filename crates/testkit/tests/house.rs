//! The rules of the house, asked of `cargo metadata` and of the sources: who may use whom, what is pure, which
//! licences come in, where `unsafe` lives. Each failure names the crate or file and says why the rule is there.
//!
//! The rules are tables. Changing one is a decision, which belongs in `ARCHITECTURE.md` with its reason.

#[path = "house/built.rs"]
mod built;
#[path = "house/fuzz.rs"]
mod fuzz;
#[path = "house/licence.rs"]
mod licence;
#[path = "house/messages.rs"]
mod messages;
#[path = "house/names.rs"]
mod names;
#[path = "house/parsers.rs"]
mod parsers;
#[path = "house/source.rs"]
mod source;

use std::collections::BTreeSet;

use built::{Build, Crate, Use, Workspace};
use source::Source;

/// From the top floor to the ground: a crate may use only crates below it. What is named here and not built yet has
/// its place already.
const FLOORS: [&str; 22] = [
    "cli",
    "controller",
    "node",
    "bootstrap",
    "drivers",
    "haproxy",
    "proxy",
    "announce",
    "acme",
    "openstack",
    "cluster",
    "files",
    "admin",
    "testkit",
    "engine",
    "watchdog",
    "manifests",
    "snapshot",
    "wire",
    "plan",
    "model",
    "tree",
];

/// Programs for developers, which use no crate of ours and are used by none.
const PROGRAMS: [&str; 4] = ["bench", "gate", "mutants", "supply-chain"];

/// No async, clock, randomness, environment, logging or I/O: time and seeds are passed in.
const PURE: [&str; 6] = ["manifests", "model", "plan", "snapshot", "tree", "wire"];

/// All that pure crates may use from outside, each pure itself; of jiff, how a moment is written and days are counted.
const PURE_MAY_USE: [&str; 14] = [
    "base64",
    "httparse",
    "idna",
    "ipnet",
    "jiff",
    "memchr",
    "regex",
    "regex-automata",
    "regex-syntax",
    "saphyr-parser",
    "secrecy",
    "serde",
    "sha2",
    "thiserror",
];

const MODEL_MAY_USE: [&str; 3] = ["ipnet", "secrecy", "serde"];

/// Crates that only these of ours may name in their manifests.
const RESERVED: [(&str, &[&str], &str); 3] = [
    ("anyhow", &["cli", "bench"], "libraries have error enums that name their operation (style.md, 13)"),
    (
        "hyper",
        &["admin", "testkit"],
        "traffic is moved by our own codec; hyper serves the status page, and the fake cloud to tests",
    ),
    ("clap", &["cli", "bench"], "flags are for the process, which is the binary's"),
];

/// Crates and modules that read bytes of others; what they allow of these lints has a reason beside it.
const READERS: [&str; 32] = [
    "crates/admin/src/lib.rs",
    "crates/announce/src/lib.rs",
    "crates/cluster/src/lib.rs",
    "crates/drivers/src/lib.rs",
    "crates/files/src/lib.rs",
    "crates/manifests/src/lib.rs",
    "crates/openstack/src/lib.rs",
    "crates/plan/src/lib.rs",
    "crates/proxy/src/access.rs",
    "crates/proxy/src/descriptors.rs",
    "crates/proxy/src/health.rs",
    "crates/proxy/src/hops.rs",
    "crates/proxy/src/http.rs",
    "crates/proxy/src/listening_sockets.rs",
    "crates/proxy/src/memory.rs",
    "crates/proxy/src/open.rs",
    "crates/proxy/src/own_sockets.rs",
    "crates/proxy/src/pipes.rs",
    "crates/proxy/src/proxy.rs",
    "crates/proxy/src/proxy_state.rs",
    "crates/proxy/src/reach.rs",
    "crates/proxy/src/running.rs",
    "crates/proxy/src/statistics.rs",
    "crates/proxy/src/sys.rs",
    "crates/proxy/src/takeover.rs",
    "crates/proxy/src/tcp.rs",
    "crates/proxy/src/tls.rs",
    "crates/proxy/src/udp.rs",
    "crates/proxy/src/worker.rs",
    "crates/snapshot/src/lib.rs",
    "crates/tree/src/lib.rs",
    "crates/wire/src/lib.rs",
];

const BANNED: [(&str, &str); 7] = [
    ("openssl", "TLS is rustls with aws-lc-rs: no C library of the system's age"),
    ("openssl-sys", "TLS is rustls with aws-lc-rs: no C library of the system's age"),
    ("native-tls", "TLS is rustls with aws-lc-rs: no C library of the system's age"),
    ("ring", "one cryptography provider is enough, and aws-lc-rs is it"),
    ("serde_yaml", "it is no longer maintained, and its trees do not know their lines"),
    ("async-std", "one runtime is enough, and tokio is it"),
    ("chrono", "one calendar is enough, and jiff is it"),
];

/// Crates that are built in two versions, since those who use them did not move together yet.
const TWICE: [(&str, &str); 6] = [
    ("base64", "kube and its types, whose version ours is, are one behind the HTTP client"),
    ("cpufeatures", "sha2 and the random numbers of property tests are a version apart"),
    ("getrandom", "ahash, which kube uses, is a version behind"),
    ("hashbrown", "what runs the watches of tests is a version behind; it is not in our binary"),
    ("pem", "kube is a version behind what makes certificates for tests"),
    ("syn", "derive macros move one at a time; it is not in our binary"),
];

/// The only files that may say `unsafe`: system calls that no safe crate offers, nothing else.
const UNSAFE: [&str; 3] = ["crates/proxy/src/sys.rs", "crates/proxy/src/sys/", "bench/src/sys.rs"];

/// What a pure crate's source does not say, tests excepted.
const IMPURE: [(&str, &str); 15] = [
    ("Zoned", "the clock"),
    ("Instant", "the clock"),
    ("SystemTime", "the clock"),
    ("RandomState", "randomness"),
    ("TcpStream", "a socket"),
    ("TcpListener", "a socket"),
    ("UdpSocket", "a socket"),
    ("UnixStream", "a socket"),
    ("UnixListener", "a socket"),
    ("env::", "the environment"),
    ("fs::", "files"),
    ("process::", "processes"),
    ("thread::", "threads"),
    ("println", "output"),
    ("eprintln", "output"),
];

const LONGEST: usize = 500;

#[test]
fn a_crate_uses_only_crates_below_it() {
    check("ARCHITECTURE.md, \"Code map\": data flows one way", |house, faults| {
        for this in &house.crates {
            let Some(floor) = floor(&this.name) else {
                if !PROGRAMS.contains(&&*this.name) {
                    faults.push(format!("{} has no floor: give it a line in FLOORS", this.name));
                }
                continue;
            };
            for used in this.ours().filter(|used| used.when != Use::Dev) {
                let below = self::floor(&used.name).is_some_and(|it| it > floor);
                if !below {
                    faults.push(format!("{} uses {}, which is not below it", this.name, used.name));
                }
            }
        }
    });
}

#[test]
fn nobody_but_tests_uses_the_testkit_and_programs_for_developers_use_nothing_of_ours() {
    check(
        "fakes stay out of the binary, and a measured program is a program like its peers",
        |house, faults| {
            for this in &house.crates {
                for used in this.ours() {
                    if used.name == "testkit" && used.when != Use::Dev {
                        faults.push(format!("{} uses testkit outside of its tests", this.name));
                    }
                    if PROGRAMS.contains(&&*this.name) {
                        faults.push(format!("{} uses {}", this.name, used.name));
                    }
                }
            }
        },
    );
}

#[test]
fn pure_crates_use_only_what_is_pure() {
    check(
        "no async, clock, randomness, environment, logging or I/O in the pure crates (promise 1)",
        |house, faults| {
            for this in house.crates.iter().filter(|it| PURE.contains(&&*it.name)) {
                let allowed: &[&str] = if this.name == "model" { &MODEL_MAY_USE } else { &PURE_MAY_USE };
                for used in this.uses.iter().filter(|used| used.when != Use::Dev && !used.ours) {
                    if !allowed.contains(&&*used.name) {
                        faults.push(format!("{} uses {}; it may use {allowed:?}", this.name, used.name));
                    }
                }
            }
        },
    );
}

#[test]
fn pure_crates_say_nothing_impure() {
    check(
        "time and seeds are passed in, so that a plan can be tested and told again (promise 1)",
        |house, faults| {
            for this in house.crates.iter().filter(|it| PURE.contains(&&*it.name)) {
                for source in this.sources().filter(|it| !it.is_test()) {
                    for (line, word) in source.words_outside_tests() {
                        if let Some((_, what)) = IMPURE.iter().find(|(it, _)| *it == word) {
                            faults.push(format!("{}:{line}: {word} is {what}", source.path));
                        }
                    }
                }
            }
        },
    );
}

#[test]
fn some_crates_are_for_one_floor_alone() {
    check("house.md, \"Decisions already taken\"", |house, faults| {
        for (reserved, may, why) in RESERVED {
            for this in house.crates.iter().filter(|it| !may.contains(&&*it.name)) {
                if this.uses.iter().any(|it| it.name == reserved && it.when != Use::Dev) {
                    faults.push(format!("{} uses {reserved}: {why}", this.name));
                }
            }
        }
    });
}

#[test]
fn nothing_banned_is_built_and_nothing_twice_without_a_reason() {
    check("a dependency needs a reason (style.md, 20)", |house, faults| {
        for build in &house.builds {
            let name = &build.name;
            for (banned, why) in BANNED {
                if build.packages.iter().any(|it| it.name == banned) {
                    faults.push(format!(
                        "{name}: {banned} is built: {why} (`cargo tree -i {banned}` tells by whom)"
                    ));
                }
            }
            for pair in build.twice() {
                let (package, one, two) = (&pair[0].name, &pair[0].version, &pair[1].version);
                if !TWICE.iter().any(|(it, _)| it == package) {
                    faults.push(format!(
                        "{name}: {package} is built as {one} and as {two}; if need be, say why in TWICE"
                    ));
                }
            }
        }
        for (package, _) in TWICE {
            let mut all = house.builds.iter().flat_map(Build::twice);
            if !all.any(|pair| pair[0].name == package) {
                faults.push(format!("{package} is built once: take it out of TWICE"));
            }
        }
    });
}

#[test]
fn nobody_names_what_it_does_not_use() {
    check("a dependency needs a reason (style.md, 20)", |house, faults| {
        for this in &house.crates {
            let said: BTreeSet<String> =
                this.sources().flat_map(Source::words).map(|(_, word)| word).collect();
            for used in &this.uses {
                if !said.contains(&used.word) && !said.contains(&format!("{}::", used.word)) {
                    faults.push(format!("{} names {}, which it does not use", this.name, used.word));
                }
            }
        }
        for offered in house.offered() {
            let short = offered.trim_start_matches("seaway-");
            if !house.crates.iter().any(|this| this.uses.iter().any(|it| it.name == short)) {
                faults.push(format!("the root manifest offers {offered}, which nobody takes"));
            }
        }
    });
}

#[test]
fn every_licence_lets_us_ship_under_apache() {
    check(
        "Seaway is Apache-2.0, whole, and whoever ships it owes nobody more than a notice",
        |house, faults| {
            for build in &house.builds {
                for it in &build.packages {
                    if !licence::is_allowed_for(&it.name, &it.licence) {
                        let (name, version, licence) = (&it.name, &it.version, &it.licence);
                        faults.push(format!("{}: {name} {version} is under {licence:?}", build.name));
                    }
                }
            }
        },
    );
}

#[test]
fn every_crate_is_linted_alike() {
    check(
        "one set of lints in the root manifest; who needs `unsafe` repeats all but that one",
        |house, faults| {
            for this in &house.crates {
                let own: Vec<&str> = this.manifest.lines().map(str::trim).collect();
                if own.windows(2).any(|pair| pair == ["[lints]", "workspace = true"]) {
                    continue;
                }
                if !UNSAFE.iter().any(|it| it.starts_with(&this.folder)) {
                    faults.push(format!("{} has no `[lints] workspace = true`", this.name));
                    continue;
                }
                // `bench` is a program: it prints, and nobody uses what it makes public.
                let may_lack = |lint: &str| {
                    lint.starts_with("unsafe_code")
                        || lint.ends_with("= \"allow\"")
                        || this.name == "bench"
                            && (lint.starts_with("print_") || lint.starts_with("unreachable_pub"))
                };
                for lint in house.lints() {
                    if !may_lack(lint) && !own.contains(&lint) {
                        faults.push(format!("{} lacks the lint {lint}", this.name));
                    }
                }
                if !own.contains(&"unsafe_code = \"deny\"") {
                    faults.push(format!("{} does not deny unsafe_code outside of its sys module", this.name));
                }
            }
        },
    );
}

#[test]
fn what_reads_bytes_of_others_is_linted_for_what_could_end_the_process() {
    const LINTS: &str = "clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used";
    check("no bytes of a client, a tenant or the kernel may end the process", |house, faults| {
        for path in READERS {
            let source = house.sources().find(|it| it.path == path);
            if source.is_none_or(|it| !it.text.contains(&format!("warn({LINTS})"))) {
                faults.push(format!("{path} does not warn of {LINTS}"));
            }
        }
    });
}

#[test]
fn unsafe_is_in_few_named_files() {
    check(
        "system calls that no safe crate offers live in one small module, each with its SAFETY",
        |house, faults| {
            for source in house.sources() {
                let named = UNSAFE.iter().any(|it| source.path.starts_with(it));
                let said =
                    source.words().into_iter().find(|(_, word)| word == "unsafe" || word == "unsafe_code");
                if let Some((line, word)) = said.filter(|_| !named) {
                    faults.push(format!("{}:{line} says {word}; only {UNSAFE:?} may", source.path));
                }
            }
        },
    );
}

#[test]
fn files_are_short_and_named_by_what_they_hold() {
    check("a reader takes in one idea a file (style.md, 9 to 11)", |house, faults| {
        for source in house.sources() {
            let length = source.text.lines().count();
            if length > LONGEST && !source.is_test() {
                faults.push(format!("{} has {length} lines; at {LONGEST} split it by idea", source.path));
            }
            let stem = source.path.rsplit('/').next().unwrap_or_default().trim_end_matches(".rs");
            match stem {
                "mod" => faults.push(format!("{}: write foo.rs beside foo/", source.path)),
                "util" | "utils" | "helpers" | "common" | "misc" | "manager" => {
                    faults.push(format!("{} is not named by what it holds", source.path));
                }
                "lib" if !source.text.starts_with("//! ") => {
                    faults.push(format!("{} does not begin with what the crate does", source.path));
                }
                _ => {}
            }
            for pair in source.words().windows(2) {
                let ((_, one), (line, two)) = (&pair[0], &pair[1]);
                // `get_mut` beside `get` is what the standard library's readers expect.
                if one == "fn" && two.starts_with("get_") && two != "get_mut" {
                    faults
                        .push(format!("{}:{line}: {two} is called what it gets, without get_", source.path));
                }
            }
        }
    });
}

fn floor(name: &str) -> Option<usize> {
    FLOORS.iter().position(|it| *it == name)
}

/// Gathers all that breaks one rule, so that one run tells everything.
#[track_caller]
fn check(why: &str, rule: impl FnOnce(&Workspace, &mut Vec<String>)) {
    let mut faults = Vec::new();
    rule(Workspace::read(), &mut faults);
    assert!(faults.is_empty(), "{why}:\n  {}", faults.join("\n  "));
}

impl Crate {
    fn ours(&self) -> impl Iterator<Item = &built::Used> {
        self.uses.iter().filter(|it| it.ours)
    }

    fn sources(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter()
    }
}
