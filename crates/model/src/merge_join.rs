//! Two sorted maps, gone through side by side: thousands are compared without looking one of them up.

use std::{cmp::Ordering, collections::BTreeMap};

/// Every key of either, in order, with what it has in each.
pub fn merge_join<'m, K: Ord, V>(
    one: &'m BTreeMap<K, V>,
    other: &'m BTreeMap<K, V>,
) -> impl Iterator<Item = (&'m K, Option<&'m V>, Option<&'m V>)> {
    let (mut ones, mut others) = (one.iter().peekable(), other.iter().peekable());
    std::iter::from_fn(move || {
        let order = match (ones.peek(), others.peek()) {
            (Some((one, _)), Some((other, _))) => one.cmp(other),
            (Some(_), None) => Ordering::Less,
            (None, _) => Ordering::Greater,
        };
        match order {
            Ordering::Less => ones.next().map(|(key, value)| (key, Some(value), None)),
            Ordering::Greater => others.next().map(|(key, value)| (key, None, Some(value))),
            Ordering::Equal => {
                let (key, value) = ones.next()?;
                Some((key, Some(value), others.next().map(|(_, other)| other)))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_either_is_told_once() {
        let (one, other) =
            (BTreeMap::from([(1, 'a'), (2, 'b'), (5, 'c')]), BTreeMap::from([(2, 'x'), (3, 'y')]));
        let all: Vec<_> = merge_join(&one, &other).collect();
        let expected = [
            (&1, Some(&'a'), None),
            (&2, Some(&'b'), Some(&'x')),
            (&3, None, Some(&'y')),
            (&5, Some(&'c'), None),
        ];
        assert_eq!(all, expected);
    }
}
