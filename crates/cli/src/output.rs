//! What a command prints for people and programs; logs go to standard error.

use std::{borrow::Cow, io::Write};

use seaway_admin::logging::is_unsafe_in_logs;

/// One line or more to standard output. A reader that went away (`seaway plan | head`) is no error.
pub(crate) fn line(text: &str) {
    bytes(format!("{}\n", printable(text)).as_bytes());
}

/// Names, annotations and conditions are written by tenants, and printed on the terminals of administrators: what moves a cursor,
/// changes the title or turns the direction of writing is written as an escape, which JSON reads as the same character.
fn printable(text: &str) -> Cow<'_, str> {
    let acts = |it: char| it != '\n' && it != '\t' && is_unsafe_in_logs(it);
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let escaped = |it: char| if acts(it) { format!("\\u{:04x}", u32::from(it)) } else { it.to_string() };
    Cow::Owned(text.chars().map(escaped).collect())
}

/// The same, of what is whole already.
pub(crate) fn bytes(text: &[u8]) {
    let mut out = std::io::stdout().lock();
    if out.write_all(text).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

/// Why a command failed, to standard error.
pub(crate) fn error(text: &str) {
    // Where standard error is gone, nobody can be told anything.
    let _ = writeln!(std::io::stderr().lock(), "{}", printable(text));
}

/// Columns as wide as their widest cell; the last one as it is.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let widths: Vec<usize> = (0..header.len())
        .map(|i| {
            rows.iter()
                .filter_map(|row| row.get(i))
                .map(|it| it.chars().count())
                .chain([header[i].len()])
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    let header = header.iter().map(|it| (*it).to_owned()).collect();
    for row in std::iter::once(&header).chain(rows) {
        let row: &Vec<String> = row;
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_a_tenant_writes_does_nothing_to_a_terminal() {
        let forged = "pool \u{1b}]0;title\u{7}\u{1b}[2J\r\u{9b}31m\u{202e} is\n  there\tü";
        let printed = super::printable(forged);
        assert_eq!(printed, "pool \\u001b]0;title\\u0007\\u001b[2J\\u000d\\u009b31m\\u202e is\n  there\tü");
        let json = serde_json::to_string(forged).expect("a text");
        let read: String = serde_json::from_str(&super::printable(&json)).expect("it is JSON still");
        assert_eq!(read, forged);
    }

    #[test]
    fn columns_line_up() {
        let rows = [vec!["shop".to_owned(), "1".to_owned()], vec!["a".to_owned(), "22".to_owned()]];
        assert_eq!(super::table(&["NAME", "N"], &rows), "NAME  N\nshop  1\na     22\n");
    }
}
