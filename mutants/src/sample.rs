//! Which mutants are tried: of each crate a fixed number, chosen by their names alone, so that a change elsewhere chooses
//! no others; or those of lines that changed.

use std::{collections::BTreeMap, ops::RangeInclusive};

use crate::points::Point;

/// Some do not compile, and fall out: 300 are needed.
const SAMPLE: [(&str, usize); 4] = [("plan", 150), ("drivers", 120), ("wire", 70), ("snapshot", 50)];
pub(crate) const LEAST: usize = 300;
const MOST_OF_A_CHANGE: usize = 200;

pub(crate) fn sample(points: &[Point]) -> Vec<Point> {
    let of = |name: &str| points.iter().filter(|it| it.crate_name() == name).cloned().collect::<Vec<_>>();
    numbered(SAMPLE.iter().flat_map(|(name, count)| lowest(of(name), *count)).collect())
}

/// Lines of files, as they are now.
pub(crate) type Changed = BTreeMap<String, Vec<RangeInclusive<usize>>>;

/// Of changed lines all, or 200 of them; how many there are is told, too.
pub(crate) fn of_changes(points: &[Point], changed: &Changed) -> (Vec<Point>, usize) {
    let touched = |point: &&Point| {
        let lines = changed.get(&point.file).map(Vec::as_slice).unwrap_or_default();
        lines.iter().any(|it| it.start() <= point.lines.end() && point.lines.start() <= it.end())
    };
    let all: Vec<Point> = points.iter().filter(touched).cloned().collect();
    let count = all.len();
    (numbered(lowest(all, MOST_OF_A_CHANGE)), count)
}

/// What `git diff -U0` prints.
pub(crate) fn changed(diff: &str) -> Changed {
    let mut changed = Changed::new();
    let mut file = String::new();
    for line in diff.lines() {
        if let Some(path) = line.strip_prefix("+++ ") {
            file = path.strip_prefix("b/").unwrap_or_default().to_owned();
        } else if let Some(hunk) = line.strip_prefix("@@ ")
            && let Some(new) = hunk.split(' ').find_map(|it| it.strip_prefix('+'))
        {
            let (start, count) = new.split_once(',').unwrap_or((new, "1"));
            if let (Ok(start), Ok(count)) = (start.parse::<usize>(), count.parse::<usize>())
                && count > 0
            {
                changed.entry(file.clone()).or_default().push(start..=start + count - 1);
            }
        }
    }
    changed
}

fn lowest(mut points: Vec<Point>, count: usize) -> Vec<Point> {
    points.sort_by_cached_key(|it| (hash(&it.name), it.name.clone()));
    points.truncate(count);
    points
}

fn numbered(mut points: Vec<Point>) -> Vec<Point> {
    points.sort_by(|a, b| (&a.file, a.range.start, &a.name).cmp(&(&b.file, b.range.start, &b.name)));
    points.iter_mut().zip(1..).for_each(|(point, number)| point.number = number);
    points
}

/// FNV-1a, whose bits are then mixed: names that begin alike are far apart.
fn hash(name: &str) -> u64 {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let mut hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, fold);
    for _ in 0..2 {
        hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    }
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::points::points;

    fn many(file: &str, functions: usize) -> Vec<Point> {
        let function = |it| format!("fn f{it}(a: u8) -> S {{ g(a == {it}) }}\n");
        let text: String = (0..functions).map(function).collect();
        points(file, &text).expect("Rust").0
    }

    #[test]
    fn a_change_elsewhere_chooses_no_other_mutants() {
        let names = |points: &[Point]| sample(points).iter().map(|it| it.name.clone()).collect::<Vec<_>>();
        let before = many("crates/wire/src/a.rs", 200);
        let mut after = before.clone();
        after.insert(0, many("crates/wire/src/b.rs", 1).remove(0));
        let (before, after) = (names(&before), names(&after));
        assert_eq!((before.len(), after.len()), (70, 70));
        assert!(before.iter().filter(|it| !after.contains(it)).count() <= 1);
    }

    #[test]
    fn mutants_of_changed_lines_are_those_that_touch_one() {
        let file = "crates/wire/src/a.rs";
        let diff =
            format!("--- a/{file}\n+++ b/{file}\n@@ -3 +3,2 @@ fn\n-x\n+y\n+z\n@@ -9,2 +9,0 @@\n-x\n-y\n");
        let (chosen, all) = of_changes(&many(file, 20), &changed(&diff));
        let names: Vec<&str> = chosen.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(all, 2);
        assert_eq!(
            names,
            ["crates/wire/src/a.rs: f2: a == 2 → a != 2", "crates/wire/src/a.rs: f3: a == 3 → a != 3"]
        );
        let whole = changed(&format!("+++ b/{file}\n@@ -0,0 +1,900 @@\n"));
        let (chosen, all) = of_changes(&many(file, 900), &whole);
        assert_eq!((chosen.len(), all), (200, 900));
    }
}
