//! What somebody probably meant.

/// The name that was probably meant: at most a third of it is wrong.
pub fn nearest<'n>(wrong: &str, names: &[&'n str]) -> Option<&'n str> {
    if wrong.len() > 64 {
        return None;
    }
    let (distance, name) =
        names.iter().map(|name| (distance(&wrong.to_lowercase(), &name.to_lowercase()), *name)).min()?;
    (distance <= (name.chars().count() / 3).max(1)).then_some(name)
}

/// Insertions, deletions, replacements and swaps of neighbours between two words.
pub fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_understood_and_a_guess_is_not_made() {
        assert_eq!(nearest("levle", &["level", "format"]), Some("level"));
        assert_eq!(nearest("Port", &["port"]), Some("port"));
        assert_eq!(nearest("address", &["level", "format"]), None);
        assert_eq!((distance("ab", "ba"), distance("abc", "abd"), distance("", "abc")), (1, 1, 3));
    }
}
