//! What a Service may take of what all share: connections, and health checks.

use std::time::Duration;

use seaway_model::{ObjectRef, Problem, Reason, config::TenantLimits};

use crate::annotations::{CHECK_INTERVAL, CONNECTIONS, RATE, ServiceOptions};

/// Wishes that are beyond the limits come down to them. Says which of those that the Service wrote.
pub(crate) fn apply(object: &ObjectRef, wishes: &mut ServiceOptions, limits: &TenantLimits) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut tell = |wishes: &ServiceOptions, option: &'static str, message: String| {
        if wishes.written.contains_key(option) {
            let problem = Problem::new(object.clone(), Reason::LimitReached, message);
            let fix = "Ask for less, or have tenants.limits raised in the configuration.";
            problems.push(problem.at(wishes.field_of(option)).fix(fix));
        }
    };
    let asked = wishes.limits;
    let least = |asked: Option<u32>, most: Option<u32>| asked.into_iter().chain(most).min();
    wishes.limits.connections = least(asked.connections, limits.connections);
    wishes.limits.new_per_second = least(asked.new_per_second, limits.new_per_second);
    for (option, asked, now) in [
        (CONNECTIONS, asked.connections, wishes.limits.connections),
        (RATE, asked.new_per_second, wishes.limits.new_per_second),
    ] {
        if let Some(now) = now.filter(|_| now != asked) {
            let asked = asked.map_or_else(|| "no limit".to_owned(), |it| it.to_string());
            tell(
                wishes,
                option,
                format!("the configuration limits a Service to {now}, and this Service asks for {asked}"),
            );
        }
    }
    if let Some(check) = &mut wishes.health
        && check.interval < limits.check_interval
    {
        let asked = std::mem::replace(&mut check.interval, limits.check_interval);
        let message = format!("members are checked every {:?}, not every {asked:?}", limits.check_interval);
        tell(wishes, CHECK_INTERVAL, message);
    }
    problems
}

/// How often each of so many members is checked, so that all of them take no more than their Service may.
pub(crate) fn interval(asked: Duration, members: usize, per_second: Option<u32>) -> Duration {
    let Some(most) = per_second.filter(|it| *it > 0) else { return asked };
    let members = u32::try_from(members).unwrap_or(u32::MAX);
    asked.max(Duration::from_secs(1).saturating_mul(members).checked_div(most).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use seaway_model::{Config, Kind};

    use super::*;

    fn held(annotations: &[(&str, &str)], limits: TenantLimits) -> (ServiceOptions, Vec<String>) {
        let object = ObjectRef::new(Kind::Service, "default", "web");
        let mut wishes = ServiceOptions::of(&Config::default().defaults);
        let written = annotations.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        assert_eq!(wishes.read(&object, &written), []);
        let problems = apply(&object, &mut wishes, &limits);
        (wishes, problems.into_iter().map(|it| format!("{}: {}", it.field, it.message)).collect())
    }

    #[test]
    fn wishes_come_down_to_the_limits_and_what_was_written_is_told() {
        let limits = TenantLimits {
            connections: Some(10),
            new_per_second: Some(5),
            check_interval: Duration::from_millis(500),
            ..TenantLimits::default()
        };
        let asked = [(CONNECTIONS, "0"), (RATE, "3"), (CHECK_INTERVAL, "1ms")];
        let (wishes, problems) = held(&asked, limits);
        assert_eq!((wishes.limits.connections, wishes.limits.new_per_second), (Some(10), Some(3)));
        assert_eq!(wishes.health.expect("on by default").interval, Duration::from_millis(500));
        assert_eq!(
            problems,
            [
                "metadata.annotations[seaway.dev/max-connections]: the configuration limits a Service to 10, and this Service asks for no limit",
                "metadata.annotations[seaway.dev/health-check-interval]: members are checked every 500ms, not every 1ms",
            ]
        );
        let (wishes, problems) = held(&[], limits);
        assert_eq!((wishes.limits.connections, wishes.limits.new_per_second), (Some(10), Some(5)));
        assert!(problems.is_empty(), "who wrote nothing is told nothing: {problems:?}");
        let (wishes, problems) = held(&asked, TenantLimits::default());
        assert_eq!((wishes.limits.connections, wishes.limits.new_per_second), (None, Some(3)));
        assert!(problems.is_empty());
    }

    #[test]
    fn many_members_are_checked_less_often() {
        let second = Duration::from_secs(1);
        for (asked, members, most, expected) in [
            (second, 10, Some(100), second),
            (second, 100, Some(100), second),
            (second, 250, Some(100), Duration::from_millis(2_500)),
            (second, 250, None, second),
            (second, usize::MAX, Some(1), second * u32::MAX),
        ] {
            assert_eq!(interval(asked, members, most), expected, "{members} {most:?}");
        }
    }
}
