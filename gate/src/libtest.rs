//! What a test program prints: one line a test, the captured output of those that failed, and one line at its end.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Failed,
    Ignored,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) test: String,
    pub(crate) verdict: Verdict,
    pub(crate) seconds: f64,
}

/// `test a::b ... ok <0.004s>`
pub(crate) fn outcome(line: &str) -> Option<Outcome> {
    let (test, verdict) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let (verdict, time) = verdict.split_once(" <").unwrap_or((verdict, ""));
    let verdict = match verdict.split_once(',').map_or(verdict, |(it, _)| it) {
        "ok" => Verdict::Passed,
        "FAILED" => Verdict::Failed,
        "ignored" => Verdict::Ignored,
        _ => return None,
    };
    let test = test.strip_suffix(" - should panic").unwrap_or(test).to_owned();
    let seconds = time.strip_suffix("s>").and_then(|it| it.parse().ok()).unwrap_or_default();
    Some(Outcome { test, verdict, seconds })
}

pub(crate) fn outcomes(output: &str) -> Vec<Outcome> {
    output.lines().filter_map(outcome).collect()
}

/// Whether the program came to its own end: a test may print the last lines of programs that it had started, so that
/// the numbers have to fit what was counted.
pub(crate) fn is_whole(output: &str, outcomes: &[Outcome]) -> bool {
    let count = |verdict| outcomes.iter().filter(|it| it.verdict == verdict).count();
    let (passed, failed) = (count(Verdict::Passed), count(Verdict::Failed));
    let end = format!(". {passed} passed; {failed} failed; ");
    output
        .lines()
        .rev()
        .find(|line| line.starts_with("test result: "))
        .is_some_and(|line| line.contains(&end))
}

/// What the tests that failed had printed, without backtraces.
pub(crate) fn failures(output: &str) -> String {
    let mut sections = output.split("\nfailures:\n");
    let printed = match (sections.next(), sections.next()) {
        (_, Some(printed)) => printed.to_owned(),
        (Some(all), None) => last_lines(all, 40),
        (None, None) => String::new(),
    };
    let is_backtrace = |line: &str| {
        let line = line.trim_start();
        let frame = line.split_once(": ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
        frame || line.starts_with("at ") || line == "stack backtrace:"
    };
    let mut kept = String::new();
    for line in printed.lines().filter(|line| !is_backtrace(line)).take(120) {
        kept.extend(line.chars().take(2000));
        kept.push('\n');
    }
    kept
}

pub(crate) fn last_lines(text: &str, most: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(most)..].join("\n")
}

/// `skipped TEST: REASON`, which `testkit` writes to the standard error: a test once each.
pub(crate) fn reported(word: &str, errors: &str) -> Vec<(String, String)> {
    let of = |line: &str| {
        let (test, why) = line.strip_prefix(word)?.strip_prefix(' ')?.split_once(": ")?;
        Some((test.to_owned(), why.replace('\u{2028}', "\n")))
    };
    let mut reported: Vec<_> = errors.lines().filter_map(of).collect();
    reported.sort();
    reported.dedup_by(|a, b| a.0 == b.0);
    reported
}

/// `rig NAME: WHAT`: how long one took to start, or why one was thrown away.
pub(crate) fn rigs(errors: &str) -> String {
    let lines = errors.lines().filter_map(|line| line.strip_prefix("rig "));
    lines.fold(String::new(), |text, line| text + line + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_test_is_read() {
        for (line, test, verdict, seconds) in [
            ("test a::b ... ok <0.004s>", "a::b", Verdict::Passed, 0.004),
            ("test a ... FAILED <12.5s>", "a", Verdict::Failed, 12.5),
            ("test a ... ok", "a", Verdict::Passed, 0.0),
            ("test a - should panic ... ok <0.1s>", "a", Verdict::Passed, 0.1),
            ("test a ... ignored, started by another test", "a", Verdict::Ignored, 0.0),
        ] {
            let wanted = Outcome { test: test.to_owned(), verdict, seconds };
            assert_eq!(outcome(line), Some(wanted), "{line}");
        }
        for line in [
            "test result: ok. 1 passed; 0 failed; 0 ignored",
            "running 3 tests",
            "test a has been running for over 60 seconds",
        ] {
            assert_eq!(outcome(line), None, "{line}");
        }
    }

    #[test]
    fn a_program_that_crashed_is_not_whole_even_if_a_child_of_it_was() {
        let child = "test a ... ok\ntest result: ok. 7 passed; 0 failed; 0 ignored\n";
        assert!(!is_whole(child, &outcomes(child)));
        let whole = format!("{child}test b ... FAILED\ntest result: FAILED. 1 passed; 1 failed; 0 ignored\n");
        assert!(is_whole(&whole, &outcomes(&whole)));
        assert!(!is_whole("", &[]));
    }

    #[test]
    fn of_what_failed_the_messages_are_kept_and_not_the_backtraces() {
        let output = "running 1 test\ntest a ... FAILED\n\nfailures:\n\n---- a stdout ----\nleft: 1\n  12: std::panic\n      at /x.rs:1\nstack backtrace:\n\nfailures:\n    a\n";
        assert_eq!(failures(output), "\n---- a stdout ----\nleft: 1\n");
    }

    #[test]
    fn skipped_tests_are_counted_once_each() {
        let errors =
            "skipped a::b: it needs root\nnoise\nskipped a::b: it needs root\nskipped c: no ::1 here\n";
        let skipped = reported("skipped", errors);
        assert_eq!(skipped.len(), 2);
        assert_eq!(skipped[1], ("c".to_owned(), "no ::1 here".to_owned()));
    }
}
