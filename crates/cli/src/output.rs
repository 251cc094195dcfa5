//! What a command prints for people and programs; logs go to standard error.

use std::io::Write;

/// One line to standard output. A reader that went away (`seaway plan | head`) is no error.
pub(crate) fn line(text: &str) {
    bytes(format!("{text}\n").as_bytes());
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
    let _ = writeln!(std::io::stderr().lock(), "{text}");
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
    fn columns_line_up() {
        let rows = [vec!["shop".to_owned(), "1".to_owned()], vec!["a".to_owned(), "22".to_owned()]];
        assert_eq!(super::table(&["NAME", "N"], &rows), "NAME  N\nshop  1\na     22\n");
    }
}
