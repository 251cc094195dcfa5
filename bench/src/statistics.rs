//! Medians, and the interval within which a ratio of two contenders lies.

/// The middle of the values; `None` if there are none.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// The smallest value that at least `share` of all values do not exceed. Reorders the values.
pub fn percentile(values: &mut [u32], share: f64) -> Option<u32> {
    let rank = (values.len() as f64 * share).ceil() as usize;
    let index = rank.clamp(1, values.len().max(1)) - 1;
    (!values.is_empty()).then(|| *values.select_nth_unstable(index).1)
}

#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Ratio {
    pub median: f64,
    /// Ends of the 95 % interval; equal to the median when one round is all there is.
    pub low: f64,
    pub high: f64,
}

/// Ratios of values measured in the same round, `ours / theirs`. Their logarithms are taken as normally distributed
/// (a ratio and its inverse are then treated alike), with Student's t for the few rounds there are.
pub fn paired_ratio(pairs: &[(f64, f64)]) -> Option<Ratio> {
    let ratios: Vec<f64> = pairs
        .iter()
        .filter(|(ours, theirs)| *ours > 0.0 && *theirs > 0.0)
        .map(|(ours, theirs)| ours / theirs)
        .collect();
    let median = median(&ratios)?;
    let count = ratios.len() as f64;
    if ratios.len() < 2 {
        return Some(Ratio { median, low: median, high: median });
    }
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let mean = logs.iter().sum::<f64>() / count;
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let reach = student_t(ratios.len() - 1) * (variance / count).sqrt();
    Some(Ratio { median, low: (mean - reach).exp(), high: (mean + reach).exp() })
}

/// The 97.5th percentile of Student's t.
fn student_t(freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
        2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
        2.045, 2.042,
    ];
    // Beyond the table the first term of the expansion around the normal's 1.96 is exact to a thousandth.
    TABLE.get(freedom - 1).copied().unwrap_or_else(|| 1.96 + 2.4 / freedom as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-3, "{a} is not {b}");
    }

    #[test]
    fn the_median_is_the_middle_or_between_the_two_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn a_percentile_is_a_value_that_was_measured() {
        let mut values: Vec<u32> = (1..=1000).rev().collect();
        assert_eq!(percentile(&mut values, 0.99), Some(990));
        assert_eq!(percentile(&mut values, 1.0), Some(1000));
        assert_eq!(percentile(&mut values, 0.0), Some(1));
        assert_eq!(percentile(&mut [5], 0.5), Some(5));
        assert_eq!(percentile(&mut [], 0.5), None);
    }

    #[test]
    fn an_interval_follows_student_on_the_logarithms() {
        // Logs -1, 0, 1 have mean 0, deviation 1; 4.303 / sqrt(3) = 2.4843.
        let e = std::f64::consts::E;
        let ratio = paired_ratio(&[(1.0, e), (2.0, 2.0), (e, 1.0)]).expect("three pairs");
        close(ratio.median, 1.0);
        close(ratio.low.ln(), -2.4843);
        close(ratio.high.ln(), 2.4843);
    }

    #[test]
    fn pairing_takes_out_what_both_contenders_suffered() {
        let ratio = paired_ratio(&[(1.0, 2.0), (10.0, 20.0), (3.0, 6.0)]).expect("three pairs");
        close(ratio.low, 0.5);
        close(ratio.high, 0.5);
    }

    #[test]
    fn one_round_gives_a_ratio_without_width_and_none_gives_none() {
        assert_eq!(paired_ratio(&[(1.0, 2.0)]), Some(Ratio { median: 0.5, low: 0.5, high: 0.5 }));
        assert_eq!(paired_ratio(&[]), None);
    }

    #[test]
    fn the_table_of_student_runs_on_smoothly() {
        close(student_t(4), 2.776);
        assert!(student_t(30) > student_t(31) && student_t(31) > student_t(1000));
        close(student_t(100), 1.984);
    }
}
