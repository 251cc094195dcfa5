//! `metrics`: how many Services and members have series of their own, and whether it is measured how long members take.

use seaway_admin::SeriesLimits;
use seaway_manifests::decode::Field;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Series {
    pub(crate) limits: SeriesLimits,
    pub(crate) latency: bool,
}

impl Default for Series {
    fn default() -> Series {
        Series { limits: SeriesLimits::default(), latency: true }
    }
}

impl Series {
    /// A controller serves nobody: of what it plans it has counted nothing.
    pub(crate) fn limits_of(self, is_host: bool) -> SeriesLimits {
        if is_host { self.limits } else { SeriesLimits { services: 0, members: 0 } }
    }
}

/// Each object has dozens of series: more than these are a mistake.
const MOST: i64 = 100_000;

pub(super) fn read(field: &Field<'_>) -> Series {
    let section = field.object();
    let usual = Series::default();
    let bound = |key, usual| section.take(key).integer_within(0, MOST).unwrap_or(usual);
    let limits = SeriesLimits {
        services: bound("services", usual.limits.services),
        members: bound("members", usual.limits.members),
    };
    let latency = section.take("latency").bool().unwrap_or(usual.latency);
    section.finish();
    Series { limits, latency }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{super::parse, *};

    #[test]
    fn series_are_bounded_and_can_be_left_out() {
        let series = |text: &str| parse(text, Path::new("")).expect("it is right").series;
        assert_eq!(series(""), Series::default());
        assert_eq!(series("metrics: {services: 0}\n").limits.services, 0);
        let all = series("metrics: {services: 7, members: 9, latency: false}\n");
        assert_eq!(all, Series { limits: SeriesLimits { services: 7, members: 9 }, latency: false });
        let faults = parse("metrics: {members: -1, listen: here}\n", Path::new("")).expect_err("it is wrong");
        let fields: Vec<String> = faults.iter().map(|it| it.to_string()).collect();
        assert!(fields.iter().any(|it| it.starts_with("metrics.members: ")), "{fields:?}");
        assert!(fields.iter().any(|it| it.starts_with("metrics.listen: ")), "{fields:?}");
    }
}
