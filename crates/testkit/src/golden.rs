//! Golden files: each form that leaves the process, written down once, so that renaming something in the code changes none.
//!
//! What an earlier version wrote has to be read by all later ones: when a form grows, its golden file is kept under a second
//! name, and stays in the test.

use std::{fmt::Display, fs, path::Path};

/// Each line is read, and written again as it stands there.
#[track_caller]
pub fn round_trips<E: Display>(golden: &str, again: impl Fn(&str) -> Result<String, E>) {
    for (number, line) in (1..).zip(golden.lines()) {
        match again(line) {
            Ok(written) => assert_eq!(written, line, "line {number} of the golden file is written otherwise"),
            Err(error) => panic!("line {number} of the golden file is not read any more: {error}\n{line}"),
        }
    }
}

/// The text is that of the file; with `SEAWAY_GOLDEN=write` it becomes so, to be reviewed as a diff.
#[track_caller]
pub fn same(file: impl AsRef<Path>, text: &str) {
    let file = file.as_ref();
    if std::env::var_os("SEAWAY_GOLDEN").is_some_and(|it| it == "write") {
        fs::write(file, text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
    let golden = fs::read_to_string(file).unwrap_or_default();
    let number = golden.lines().zip(text.lines()).take_while(|(old, new)| old == new).count();
    let at = |text: &str| text.lines().nth(number).unwrap_or("(nothing)").to_owned();
    assert!(
        golden == text,
        "{}, line {}:\n  golden: {}\n  now:    {}\nPublic names change only with an alias; other texts are read as a diff. If this is meant: SEAWAY_GOLDEN=write",
        file.display(),
        number + 1,
        at(&golden),
        at(text)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_even(line: &str) -> Result<String, std::num::ParseIntError> {
        line.parse::<u32>().map(|it| (it / 2 * 2).to_string())
    }

    #[test]
    fn lines_that_are_read_and_written_alike_pass() {
        round_trips("2\n4\n", is_even);
    }

    #[test]
    #[should_panic(expected = "line 2 of the golden file is written otherwise")]
    fn a_line_that_is_written_otherwise_is_named() {
        round_trips("2\n3\n", is_even);
    }

    #[test]
    #[should_panic(expected = "line 1 of the golden file is not read any more")]
    fn a_line_that_is_not_read_is_named() {
        round_trips("x\n", is_even);
    }

    #[test]
    #[should_panic(expected = "line 1:\n  golden: (nothing)\n  now:    a")]
    fn a_file_that_differs_is_shown_with_its_first_line_that_does() {
        same("no such folder/file", "a\n");
    }
}
