//! Quantities as people write them in annotations and in the configuration: durations, ranges, lists.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use ipnet::IpNet;
use seaway_model::{IpRange, Name, load_balancer::CloudHealthMonitorType};

/// What is longer is as long as this, a hundred years: whoever adds it to a moment, or counts it in nanoseconds, does not
/// come out at a number beyond all numbers, which would be a short time, or a panic.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

/// `300ms`, `5s`, `1m30s`, `1.5h`, as Go writes durations, or plain seconds (`5`).
pub fn duration(text: &str) -> Result<Duration, String> {
    exact(text).map(|it| it.min(LONGEST))
}

fn exact(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration; write one like 500ms, 5s, 1m30s or 1h");
    if let Ok(seconds) = text.parse::<u32>() {
        return Ok(Duration::from_secs(seconds.into()));
    }
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let (mut sum, mut rest) = (Duration::ZERO, text);
    while !rest.is_empty() {
        let (number, tail) = rest.split_at(rest.find(|c| !is_number(c)).ok_or_else(wrong)?);
        let (unit, tail) = tail.split_at(tail.find(is_number).unwrap_or(tail.len()));
        let seconds = match unit {
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(wrong()),
        };
        let part = number.parse::<f64>().ok().and_then(|it| Duration::try_from_secs_f64(it * seconds).ok());
        sum = part.and_then(|it| sum.checked_add(it)).ok_or_else(wrong)?;
        rest = tail;
    }
    if text.is_empty() { Err(wrong()) } else { Ok(sum) }
}

/// Settings of seconds that are short everywhere, and those that may be hours.
const SHORT: [&str; 6] =
    ["health-check-interval", "health-check-timeout", "timeout-connect", "interval", "timeout", "connect"];
const LONG: [&str; 8] = [
    "timeout-answer",
    "timeout-idle",
    "timeout-keep-alive",
    "queue-timeout",
    "timeout-half-closed",
    "answer",
    "idle",
    "keepAlive",
];

/// The number of a duration without a unit, which is in seconds, where milliseconds were probably meant: by the name of its
/// annotation, without the prefix, or of its key.
pub fn probably_milliseconds(name: &str, text: &str) -> Option<u32> {
    let number: u32 = text.parse().ok()?;
    let is_rounded = number.is_multiple_of(1_000) && !number.is_multiple_of(3_600);
    let is_one =
        number >= 1_000 && SHORT.contains(&name) || number >= 10_000 && is_rounded && LONG.contains(&name);
    is_one.then_some(number)
}

/// A whole number, within these.
pub fn number<T: TryFrom<u64>>(text: &str, within: std::ops::RangeInclusive<u64>) -> Result<T, String> {
    let number = text.parse().ok().filter(|it| within.contains(it)).and_then(|it| T::try_from(it).ok());
    number.ok_or_else(|| format!("{text:?} is not a number from {} to {}", within.start(), within.end()))
}

/// Bytes as Kubernetes writes them: `1048576`, `1Mi`, `10M`; a `B` behind it is all right.
pub fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a size; write one like 1048576, 512Ki, 10Mi or 1Gi");
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let factor = match unit.strip_suffix('B').unwrap_or(unit) {
        "" => 1,
        "k" | "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return Err(wrong()),
    };
    number.parse::<u64>().ok().and_then(|it| it.checked_mul(factor)).ok_or_else(wrong)
}

/// `192.0.2.0/24`, `192.0.2.10-192.0.2.20` or one address.
pub fn range(text: &str) -> Result<IpRange, String> {
    let text = text.trim();
    let wrong = |why: &str| {
        format!(
            "{text:?} is not a range of addresses: {why}; write 192.0.2.0/24, 192.0.2.10-192.0.2.20 or one address"
        )
    };
    if let Some((first, last)) = text.split_once('-') {
        let parse = |part: &str| {
            part.trim().parse::<IpAddr>().map_err(|_| wrong(&format!("{:?} is not an address", part.trim())))
        };
        let (first, last) = (parse(first)?, parse(last)?);
        return IpRange::new(first, last)
            .ok_or_else(|| wrong("the last address is before the first, or one is IPv4 and the other IPv6"));
    }
    if text.contains('/') {
        return text.parse::<IpNet>().map(IpRange::from).map_err(|_| wrong("no such network"));
    }
    let ip = text.parse::<IpAddr>().map_err(|_| wrong("no such address"))?;
    IpRange::new(ip, ip).ok_or_else(|| wrong("no such address"))
}

/// A network, or one address as a network of its own.
pub fn network(text: &str) -> Result<IpNet, String> {
    let text = text.trim();
    let net = text
        .parse::<IpNet>()
        .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
        .map_err(|_| format!("{text:?} is not a network; write one like 192.0.2.0/24 or 2001:db8::/32"))?;
    // Nobody who names an address means all of them.
    if net.prefix_len() == 0 && !net.addr().is_unspecified() {
        let (one, all) = (IpNet::from(net.addr()), net.trunc());
        return Err(format!(
            "{text:?} contains every address, because its prefix length is 0; write {one} for one address, or {all} \
             for all"
        ));
    }
    Ok(net.trunc())
}

/// A network whose addresses are trusted: not one that is wider than the address that is written in it.
pub fn trusted_network(text: &str) -> Result<IpNet, String> {
    let net = network(text)?;
    match text.trim().parse::<IpNet>() {
        Ok(written) if written != net => Err(format!(
            "{text:?} has host bits set, so it stands for all of {net}; write {} for one address, or {net} for the whole network",
            IpNet::from(written.addr())
        )),
        _ => Ok(net),
    }
}

/// A comma-separated list, blanks around its parts ignored, empty parts dropped.
pub fn list<T>(text: &str, part: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    text.split(',').map(str::trim).filter(|it| !it.is_empty()).map(part).collect()
}

/// `role=worker,ssd`: labels that something must have, all of them. `ssd=` is `ssd`, of any value, as the cloud provider's
/// controller reads it.
pub fn selector(text: &str) -> Result<Vec<(Name, Option<Name>)>, String> {
    list(text, |label| match label.split_once('=') {
        Some(("", _)) => {
            Err(format!("{label:?} has no label key before the =; write KEY=VALUE, or KEY for any value"))
        }
        Some((name, value)) => Ok((name.into(), (!value.is_empty()).then(|| value.into()))),
        None => Ok((label.into(), None)),
    })
}

/// What a cloud asks members by: `TLS-HELLO`.
pub fn probe_kind(text: &str) -> Result<CloudHealthMonitorType, String> {
    let found = CloudHealthMonitorType::ALL.into_iter().find(|it| it.as_str().eq_ignore_ascii_case(text));
    found.ok_or_else(|| {
        let all = CloudHealthMonitorType::ALL.map(CloudHealthMonitorType::as_str);
        format!("{text:?} is not a type of health monitor; there are {}", all.join(", "))
    })
}

/// A path to GET.
pub fn probe_path(text: &str) -> Result<Name, String> {
    if !text.starts_with('/') || text.bytes().any(|byte| byte <= b' ' || byte >= 127) {
        return Err(format!("{text:?} is not a path; write one like /healthz"));
    }
    Ok(text.into())
}

/// Statuses of HTTP: `200`, `200,202` or `200-204`.
pub fn probe_codes(text: &str) -> Result<Name, String> {
    let is_code = |it: &str| it.len() == 3 && it.parse::<u16>().is_ok_and(|it| (100..600).contains(&it));
    let is_right = match text.split_once('-') {
        Some((first, last)) => is_code(first) && is_code(last) && first <= last,
        None => text.split(',').all(|it| is_code(it.trim())),
    };
    let wrong =
        || format!("{text:?} is not an HTTP status: write one (200), several (200,202) or a range (200-204)");
    is_right.then(|| text.replace(' ', "").into()).ok_or_else(wrong)
}

/// Ids of objects in a cloud, one at least.
pub fn ids(text: &str) -> Result<BTreeSet<Name>, String> {
    let ids: BTreeSet<Name> = list(text, |it| Ok(it.into()))?.into_iter().collect();
    if ids.is_empty() { Err("no id is named".to_owned()) } else { Ok(ids) }
}

/// How long something may be under way in a cloud. Less than a minute it is for each that is made.
pub fn pending_limit(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        it if it < Duration::from_secs(60) => {
            Err(format!("{text:?} is less than 1m, and creating a load balancer usually takes that long"))
        }
        it => Ok(it),
    }
}

/// Longer ones have no room in the tag that says who wrote them.
const LONGEST_TAG: usize = 240;
/// By tags that begin so, controllers tell what is theirs.
const RESERVED_TAGS: [&str; 2] = ["seaway.dev/", "kube_service_"];

/// Tags of objects in a cloud: `team=shop,billing`.
pub fn tags(text: &str) -> Result<BTreeSet<Name>, String> {
    let tags = list(text, |tag| {
        if let Some(reserved) = RESERVED_TAGS.iter().find(|it| tag.starts_with(**it)) {
            return Err(format!("{tag:?} begins with {reserved}, which is reserved for controllers"));
        }
        if tag.len() > LONGEST_TAG {
            return Err(format!("a tag of {} bytes is too long; {LONGEST_TAG} are possible", tag.len()));
        }
        Ok(Name::from(tag))
    })?;
    if tags.is_empty() { Err("no tag is named".to_owned()) } else { Ok(tags.into_iter().collect()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_probes_and_waits_of_a_cloud_may_be_has_its_bounds() {
        for (text, seconds) in [("59s", None), ("60s", Some(60)), ("1m", Some(60)), ("10m", Some(600))] {
            assert_eq!(pending_limit(text).ok(), seconds.map(Duration::from_secs), "{text}");
        }
        for text in ["/", "/healthz", "/a?b=c"] {
            assert_eq!(probe_path(text), Ok(text.into()));
        }
        for text in ["", "healthz", "/a b", "/a\n", "/a\u{7f}", "/ä"] {
            assert!(probe_path(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_network_is_all_addresses_only_where_it_is_written_so() {
        for (text, expected) in [
            ("10.9.0.9", Some("10.9.0.9/32")),
            ("10.9.0.9/8", Some("10.0.0.0/8")),
            ("0.0.0.0/0", Some("0.0.0.0/0")),
            ("::/0", Some("::/0")),
            ("10.9.0.9/0", None),
            ("2001:db8::1/0", None),
            ("office", None),
        ] {
            assert_eq!(network(text).ok().map(|it| it.to_string()).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn seconds_that_are_milliseconds_elsewhere_are_recognized() {
        for (name, text, is_one) in [
            ("health-check-interval", "2000", true),
            ("health-check-timeout", "1500", true),
            ("connect", "5000", true),
            ("timeout-connect", "5000", true),
            ("timeout-answer", "50000", true),
            ("idle", "60000", true),
            ("health-check-interval", "900", false),
            ("health-check-interval", "2000s", false),
            ("health-check-interval", "2000ms", false),
            // Hours.
            ("timeout-idle", "7200", false),
            ("timeout-answer", "36000", false),
            ("timeout-idle", "86400", false),
            ("drain", "5000", false),
            ("max-connections", "5000", false),
        ] {
            assert_eq!(probably_milliseconds(name, text).is_some(), is_one, "{name} {text}");
        }
    }

    #[test]
    fn a_trusted_network_is_not_wider_than_its_address() {
        for (text, expected) in [
            ("10.9.0.7", Some("10.9.0.7/32")),
            ("10.9.0.7/32", Some("10.9.0.7/32")),
            (" 10.0.0.0/8 ", Some("10.0.0.0/8")),
            ("2001:db8::/32", Some("2001:db8::/32")),
            ("0.0.0.0/0", Some("0.0.0.0/0")),
            ("10.9.0.7/8", None),
            ("10.9.0.7/1", None),
            ("10.9.0.7/0", None),
            ("2001:db8::1/32", None),
            ("proxies", None),
        ] {
            assert_eq!(trusted_network(text).ok().map(|it| it.to_string()).as_deref(), expected, "{text}");
        }
        let why = trusted_network("10.9.0.7/8").expect_err("it is wider");
        assert!(why.contains("write 10.9.0.7/32 for one address, or 10.0.0.0/8"), "{why}");
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        let table = [
            ("500ms", 500),
            ("5s", 5_000),
            ("1m30s", 90_000),
            ("1h", 3_600_000),
            ("1.5h", 5_400_000),
            ("7", 7_000),
            ("0", 0),
        ];
        for (text, millis) in table {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in [
            "",
            "s",
            "5x",
            "-1s",
            "1.5.5s",
            "5 s",
            "99999999999999999999h",
            "5000000000000000h5000000000000000h",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_duration_beyond_all_use_is_as_long_as_can_be_counted() {
        for text in ["4294967295", "1000000h", "5000000000000000h"] {
            let long = duration(text).unwrap();
            assert_eq!(long, LONGEST, "{text}");
            assert!(u64::try_from(long.as_nanos()).is_ok_and(|it| it.checked_mul(5).is_some()), "{text}");
            assert!(std::time::Instant::now().checked_add(long * 2).is_some(), "{text}");
        }
        assert_eq!(duration("99999h"), Ok(Duration::from_secs(99_999 * 3_600)), "the longest of Gateway API");
    }

    #[test]
    fn sizes_are_read_as_kubernetes_writes_them() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("1k", 1_000),
            ("10M", 10_000_000),
            ("10Mi", 10 << 20),
            ("10MiB", 10 << 20),
            ("1Gi", 1 << 30),
            ("7B", 7),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "Mi", "-1", "1.5Mi", "1 Mi", "1m", "18446744073709551615Gi"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ranges_never_run_backwards() {
        assert_eq!(range("192.0.2.0/30").expect("a network").to_string(), "192.0.2.0-192.0.2.3");
        assert_eq!(range("192.0.2.1 - 192.0.2.9").expect("a range").to_string(), "192.0.2.1-192.0.2.9");
        assert_eq!(range("2001:db8::1").expect("one address").to_string(), "2001:db8::1");
        for text in ["192.0.2.9-192.0.2.1", "192.0.2.1-2001:db8::1", "192.0.2.0/33", "x", "", "-"] {
            assert!(range(text).is_err(), "{text}");
        }
    }

    #[test]
    fn tags_are_a_list_and_none_of_them_is_a_controllers() {
        let read = |text: &str| tags(text).map(|it| it.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(
            read("team=shop, billing,,team=shop"),
            Ok(vec!["billing".to_owned(), "team=shop".to_owned()])
        );
        for (text, why) in [
            (" , ", "no tag is named"),
            ("a,seaway.dev/key=x", "seaway.dev/"),
            ("kube_service_a_b_c", "kube_service_"),
            (&*"x".repeat(241), "241 bytes"),
        ] {
            assert!(read(text).is_err_and(|it| it.contains(why)), "{text}");
        }
    }

    #[test]
    fn a_label_without_a_value_is_asked_for_whatever_its_value_is() {
        let some = |it: &str| Some(Name::from(it));
        let expected = vec![("role".into(), some("worker")), ("ssd".into(), None), ("fast".into(), None)];
        assert_eq!(selector("role=worker,ssd,fast="), Ok(expected));
        assert!(selector("=worker").is_err());
    }

    #[test]
    fn statuses_of_probes_are_one_some_or_a_range() {
        for text in ["200", "200,202", "200, 202", "200-204"] {
            assert_eq!(probe_codes(text), Ok(text.replace(' ', "").into()), "{text}");
        }
        for text in ["", "ok", "20", "200-", "204-200", "200;202", "700"] {
            assert!(probe_codes(text).is_err(), "{text}");
        }
        assert_eq!(probe_kind("tls-hello"), Ok(CloudHealthMonitorType::TlsHello));
        assert!(probe_kind("GRPC").is_err_and(|it| it.contains("UDP-CONNECT")));
    }
}
