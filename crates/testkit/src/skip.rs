//! What a test reports beside passing and failing: that this machine cannot run it, and what became of its rig.

use std::{io::Write, thread};

/// Reports the test that runs in this thread as skipped, for this reason. It fails instead with `CI=true`, or where
/// the environment has `required` for the variable of that name, which is how `./test` asks for a whole tier.
#[track_caller]
pub fn skip(variable: Option<&str>, why: &str) {
    let says = |name: &str, value: &str| std::env::var(name).is_ok_and(|it| it == value);
    let is_required = says("CI", "true") || variable.is_some_and(|it| says(it, "required"));
    assert!(!is_required, "{why}");
    report("skipped", why);
}

/// Reports what became of a rig: how long one took to start, why one was thrown away, what is known to differ in it.
pub fn rig(name: &str, what: &str) {
    let _ = writeln!(std::io::stderr(), "rig {name}: {}", what.replace('\n', " "));
}

fn report(word: &str, why: &str) {
    let thread = thread::current();
    let why = why.replace('\n', "\u{2028}");
    // Not by a macro: what those print is not shown of a test that passes. The gate reads this line.
    let _ = writeln!(std::io::stderr(), "{word} {}: {why}", thread.name().unwrap_or("unknown"));
}
