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

/// What a test that failed had printed, without backtraces; of all that failed, where none is named. Of what is long, the beginning
/// and the end: why it failed stands there as often as not.
pub(crate) fn failures(output: &str, test: Option<&str>) -> String {
    let mut sections = output.split("\nfailures:\n");
    let printed = match (sections.next(), sections.next()) {
        (_, Some(printed)) => printed.to_owned(),
        (Some(all), None) => last_lines(all, 40),
        (None, None) => String::new(),
    };
    let printed = test.and_then(|test| section(&printed, test)).unwrap_or(printed);
    let is_backtrace = |line: &str| {
        let line = line.trim_start();
        let frame = line.split_once(": ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
        frame || line.starts_with("at ") || line == "stack backtrace:"
    };
    let lines: Vec<&str> = printed.lines().filter(|line| !is_backtrace(line)).collect();
    let panic = lines.iter().rposition(|line| line.contains(" panicked at "));
    let mut kept = String::new();
    let mut left_out = 0;
    for (number, line) in lines.iter().enumerate() {
        let is_near = panic.is_some_and(|at| (at..at + AROUND).contains(&number));
        if number >= ENDS && number + ENDS < lines.len() && !is_near {
            left_out += 1;
            continue;
        }
        if left_out > 0 {
            kept += &format!("… {left_out} lines are left out\n");
            left_out = 0;
        }
        kept.extend(line.chars().take(2000));
        kept.push('\n');
    }
    kept
}

/// Lines that are kept at either end, and from the panic on.
const ENDS: usize = 60;
const AROUND: usize = 40;

/// `---- TEST stdout ----` and what follows, up to the next test's.
fn section(printed: &str, test: &str) -> Option<String> {
    let at = printed.find(&format!("---- {test} stdout ----\n"))?;
    let its = &printed[at..];
    let next = its[5..].find("\n---- ").map_or(its.len(), |next| next + 5);
    Some(its[..next].to_owned())
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
        assert_eq!(failures(output, None), "\n---- a stdout ----\nleft: 1\n");
    }

    #[test]
    fn of_several_that_failed_each_has_its_own_with_its_beginning_its_panic_and_its_end() {
        let lines = |of: &str| (0..200).map(|it| format!("{of} {it}\n")).collect::<String>();
        let panic = "thread 'b' (7) panicked at tests/b.rs:1:\nleft: 1\n";
        let output = format!(
            "running 2 tests\n\nfailures:\n\n---- a stdout ----\n{}\n---- b stdout ----\n{}{panic}{}\n\nfailures:\n    a\n    b\n",
            lines("a says"),
            lines("b says"),
            lines("its log"),
        );
        let kept = failures(&output, Some("b"));
        assert!(kept.starts_with("---- b stdout ----\nb says 0\n") && !kept.contains("a says"), "{kept}");
        assert!(kept.contains(panic) && kept.ends_with("its log 199\n\n"), "{kept}");
        assert_eq!(kept.lines().count(), ENDS + AROUND + ENDS + 2, "{kept}");
        assert!(failures(&output, Some("a")).ends_with("a says 199\n"));
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
