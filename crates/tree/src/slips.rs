//! Where a slip is, in a text that cannot be read. A reader of YAML says where it could not go on; the slip is before: a bracket that
//! is not closed, two dashes where three separate documents.

use super::{Position, SyntaxError};

/// `open`: where the lists and maps begin that are still open, the innermost first.
pub(super) fn place(error: SyntaxError, text: &str, mut open: impl Iterator<Item = Position>) -> SyntaxError {
    let index = |number: u32| usize::try_from(number).unwrap_or(usize::MAX).checked_sub(1);
    let line = |number: u32| text.lines().nth(index(number)?);
    let is_dashes = |number: &u32| line(*number).is_some_and(|it| matches!(it.trim_end(), "--" | "----"));
    if let Some(number) = [error.at.line, error.at.line.saturating_sub(1)].into_iter().find(is_dashes) {
        let at = Position { line: number, column: 1 };
        return at.error("documents are separated by three dashes, ---");
    }
    let opens = |at: &Position| {
        let letter = line(at.line).and_then(|it| it.chars().nth(index(at.column)?));
        letter.is_some_and(|it| matches!(it, '{' | '['))
    };
    if error.message.contains("flow mapping") || error.message.contains("flow sequence") {
        return SyntaxError { at: open.find(opens).unwrap_or(error.at), ..error };
    }
    error
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    #[test]
    fn a_slip_is_named_where_it_is_and_not_where_reading_ended() {
        let at = |text: &str| parse(text).expect_err("it cannot be read").at.to_string();
        assert_eq!(at("a: 1\nb: {c: 1\nd: 2\n"), "2:4");
        assert_eq!(at("a: {b: [1, 2}\n"), "1:8");
        assert_eq!(at("a: 1\n--\nb: 2\n"), "2:1");
        assert_eq!(at("a: 1\n----\nb: 2\n"), "2:1");
    }
}
