//! What came of it: a table by crate, the live mutants, and whether that is good enough.

use std::collections::{BTreeMap, BTreeSet};

use crate::{judge::Verdict, points::Point};

/// Of a hundred mutants, so many may live, each with its reason.
const MAY_LIVE: usize = 5;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) text: String,
    pub(crate) faults: Vec<String>,
}

/// `all`: the whole sample was tried, so that a row of the list that fits none of it is stale.
pub(crate) fn report(
    points: &[Point],
    verdicts: &BTreeMap<u32, Verdict>,
    explained: &BTreeMap<String, String>,
    all: bool,
) -> Report {
    let mut rows: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    let (mut faults, mut known, mut live) = (Vec::new(), BTreeSet::new(), String::new());
    for point in points {
        let row = rows.entry(point.crate_name()).or_default();
        match verdicts.get(&point.number) {
            Some(Verdict::Killed) => row[0] += 1,
            Some(Verdict::Timeout) => row[1] += 1,
            Some(Verdict::Live(count)) => {
                let reason = explained.get(&point.name);
                row[2] += 1;
                row[3] += usize::from(reason.is_some());
                known.insert(&point.name);
                let why = reason.cloned().unwrap_or_else(|| match count {
                    0 => "NOT EXPLAINED; no test reaches it".to_owned(),
                    count => format!("NOT EXPLAINED; {count} tests reach it and pass"),
                });
                live += &format!("{}\n    {why}\n", point.place());
                if reason.is_none() {
                    faults.push(format!("lives, and is not in survivors.txt: {}", point.place()));
                }
            }
            None => faults.push(format!("was not tried: {}", point.place())),
        }
    }
    let mut text = "crate        killed  timeout  live  (explained)\n".to_owned();
    let mut sum = [0; 4];
    for (name, row) in &rows {
        text += &line(name, row);
        sum.iter_mut().zip(row).for_each(|(sum, it)| *sum += it);
    }
    let tried = sum[0] + sum[1] + sum[2];
    let share = percent(sum[2], tried);
    text += &line("all", &sum);
    text += &format!("{tried} mutants, {share:.1} % live\n");
    if !live.is_empty() {
        text += &format!("\nlive:\n{live}");
    }
    if sum[2] * 100 > tried * MAY_LIVE {
        faults.push(format!("{share:.1} % live, and {MAY_LIVE} % may"));
    }
    if all {
        for name in explained.keys().filter(|it| !known.contains(it)) {
            faults.push(format!("does not live in the sample: remove it from survivors.txt: {name}"));
        }
    }
    Report { text, faults }
}

fn line(name: &str, row: &[usize; 4]) -> String {
    format!("{name:<12} {:>6}  {:>7}  {:>4}  {:>11}\n", row[0], row[1], row[2], row[3])
}

#[allow(clippy::cast_precision_loss, reason = "they are hundreds")]
fn percent(part: usize, of: usize) -> f64 {
    if of == 0 { 0.0 } else { part as f64 * 100.0 / of as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{points::points, sample::sample};

    /// Of 40 mutants the first `live` live, and the first `explained` are listed, with `more`.
    fn faults(live: usize, explained: usize, more: &[&str]) -> Vec<String> {
        let function = |it| format!("fn f{it}(a: u8) -> S {{ g(a == {it}) }}\n");
        let text: String = (10..50).map(function).collect();
        let points = sample(&points("crates/wire/src/a.rs", &text).expect("Rust").0);
        let verdict = |at: usize| if at < live { Verdict::Live(3) } else { Verdict::Killed };
        let verdicts = points.iter().enumerate().map(|(at, it)| (it.number, verdict(at))).collect();
        let names = points.iter().take(explained).map(|it| it.name.as_str()).chain(more.iter().copied());
        let explained = names.map(|it| (it.to_owned(), "why".to_owned())).collect();
        report(&points, &verdicts, &explained, true).faults
    }

    #[test]
    fn few_may_live_and_each_has_its_reason() {
        assert_eq!(faults(2, 2, &[]), Vec::<String>::new());
        assert_eq!(faults(3, 3, &[]), ["7.5 % live, and 5 % may"]);
        let told = "lives, and is not in survivors.txt: crates/wire/src/a.rs:1: f10: a == 10 → a != 10";
        assert_eq!(faults(1, 0, &[]), [told]);
    }

    #[test]
    fn a_reason_for_what_does_not_live_is_stale() {
        let told = "does not live in the sample: remove it from survivors.txt: ";
        let second = "crates/wire/src/a.rs: f11: a == 11 → a != 11";
        assert_eq!(faults(1, 2, &[]), [format!("{told}{second}")]);
        assert_eq!(faults(0, 0, &["gone"]), [format!("{told}gone")]);
    }
}
