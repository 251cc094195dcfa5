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
    let b: Vec<char> = b.chars().collect();
    // Of all beginnings of `b`, to what of `a` came before the last letter, and to that with it.
    let (mut before, mut last): (Vec<usize>, Vec<usize>) = (Vec::new(), (0..=b.len()).collect());
    let mut earlier = None;
    for (length, x) in (1_usize..).zip(a.chars()) {
        let (mut row, mut left) = (vec![length], length);
        let (mut corners, mut passed) = (before.iter(), None);
        for (y, two) in b.iter().copied().zip(last.windows(2)) {
            let [diagonal, above] = two else { continue };
            let replaced = diagonal.saturating_add(usize::from(x != y));
            left = replaced.min(above.saturating_add(1)).min(left.saturating_add(1));
            if let Some(z) = passed.replace(y)
                && let Some(corner) = corners.next()
                && (z, Some(y)) == (x, earlier)
            {
                left = left.min(corner.saturating_add(1));
            }
            row.push(left);
        }
        earlier = Some(x);
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// By its definition.
    fn plainly(a: &[char], b: &[char]) -> usize {
        let ([x, a_rest @ ..], [y, b_rest @ ..]) = (a, b) else { return a.len() + b.len() };
        let replaced = plainly(a_rest, b_rest) + usize::from(x != y);
        let best = replaced.min(plainly(a_rest, b) + 1).min(plainly(a, b_rest) + 1);
        match (a_rest, b_rest) {
            ([x2, a_rest @ ..], [y2, b_rest @ ..]) if (x, x2) == (y2, y) => {
                best.min(plainly(a_rest, b_rest) + 1)
            }
            _ => best,
        }
    }

    proptest! {
        #[test]
        fn the_distance_of_two_words_is_that_of_its_definition(a in "[abc]{0,5}", b in "[abc]{0,5}") {
            let letters = |it: &str| it.chars().collect::<Vec<_>>();
            prop_assert_eq!(distance(&a, &b), plainly(&letters(&a), &letters(&b)));
        }
    }

    #[test]
    fn a_slip_is_understood_and_a_guess_is_not_made() {
        assert_eq!(nearest("levle", &["level", "format"]), Some("level"));
        assert_eq!(nearest("Port", &["port"]), Some("port"));
        assert_eq!(nearest("address", &["level", "format"]), None);
        assert_eq!((distance("ab", "ba"), distance("abc", "abd"), distance("", "abc")), (1, 1, 3));
    }
}
