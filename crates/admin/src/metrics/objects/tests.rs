use prometheus_client::{encoding::text::encode, registry::Registry};
use seaway_model::{latency::Latencies, load_balancer::Balance};

use super::*;
use crate::view::{CheckView, MemberState, Sessions};

fn member(address: &str, total: u64) -> MemberView {
    MemberView {
        address: address.into(),
        name: String::new(),
        backup: false,
        state: MemberState::Up,
        weight: 1,
        sessions: Sessions { current: 1, total, ..Sessions::default() },
        bytes: Default::default(),
        connect_errors: 0,
        retries: 0,
        resets: 0,
        timeouts: 0,
        latency: None,
        measured: Default::default(),
        check: CheckView::default(),
        last_change: None,
        last_error: String::new(),
        http: None,
        rate: None,
    }
}

/// Services with one member each that has counted so much.
fn view(services: &[(&str, u64)]) -> View {
    let services = services.iter().map(|(name, total)| ServiceView {
        owner: format!("Service default/{name}"),
        namespace: "default".into(),
        name: (*name).into(),
        pools: vec![PoolView {
            id: "80/TCP".into(),
            service: format!("default/{name}"),
            urls: Vec::new(),
            protocol: L4::Tcp,
            balance: Balance::RoundRobin,
            panic: false,
            no_member: 0,
            latency: None,
            latencies: None,
            members: vec![member(&format!("{name}:80"), *total)],
        }],
        ..ServiceView::default()
    });
    View { services: services.collect(), ..View::default() }
}

fn text(objects: &mut ObjectSeries, view: &View) -> String {
    let mut registry = Registry::default();
    objects.update(view).into_iter().for_each(|it| registry.register_collector(Box::new(it)));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a String takes all");
    text
}

/// The lines of `seaway_service_requests_total`, as Service and count.
fn requests(text: &str) -> Vec<(String, u64)> {
    let lines = text.lines().filter_map(|it| it.strip_prefix("seaway_service_requests_total{"));
    let told = lines.map(|line| {
        let (labels, count) = line.rsplit_once("} ").expect("a value");
        let service = labels.split("service=\"").nth(1).and_then(|it| it.split('"').next());
        (service.expect("a Service").to_owned(), count.parse().expect("a number"))
    });
    told.collect()
}

fn told(all: &[(&str, u64)]) -> Vec<(String, u64)> {
    all.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[test]
fn what_is_beyond_the_bound_is_summed_and_who_has_series_keeps_them() {
    let mut objects = ObjectSeries::new(SeriesLimits { services: 2, members: 1 });
    let first = text(&mut objects, &view(&[("b", 1), ("c", 2), ("d", 4), ("e", 8)]));
    assert_eq!(requests(&first), told(&[("b", 1), ("c", 2), ("other", 12)]));
    for line in [
        "seaway_series_other{kind=\"service\"} 2",
        "seaway_series_other{kind=\"member\"} 3",
        "seaway_member_requests_total{namespace=\"default\",service=\"b\",member=\"b:80\",protocol=\"tcp\"} 1",
        "seaway_member_requests_total{namespace=\"\",service=\"other\",member=\"other\",protocol=\"tcp\"} 14",
        "seaway_service_open{namespace=\"\",service=\"other\"} 2",
    ] {
        assert!(first.lines().any(|it| it == line), "{line}\n{first}");
    }
    // Another comes that would be the first by its name.
    let second = text(&mut objects, &view(&[("a", 100), ("b", 1), ("c", 3), ("d", 4), ("e", 9)]));
    assert_eq!(requests(&second), told(&[("b", 1), ("c", 3), ("other", 113)]));
    // One is gone: the next has its place, and `other` takes nothing back.
    let third = text(&mut objects, &view(&[("a", 101), ("c", 3), ("d", 4)]));
    assert_eq!(requests(&third), told(&[("a", 1), ("c", 3), ("other", 113)]));
}

#[test]
fn a_counter_that_began_anew_takes_nothing_back() {
    let mut objects = ObjectSeries::new(SeriesLimits::default());
    let counts = [5, 2, 3].map(|total| requests(&text(&mut objects, &view(&[("a", total)])))[0].1);
    assert_eq!(counts, [5, 7, 8]);
    // A member that is gone for good, too.
    let mut gone = view(&[("a", 0)]);
    gone.services[0].pools[0].members.clear();
    assert_eq!(requests(&text(&mut objects, &gone)), told(&[("a", 8)]));
}

#[test]
fn without_series_of_services_there_are_none_of_members_either() {
    let mut objects = ObjectSeries::new(SeriesLimits { services: 0, members: 9 });
    assert!(objects.update(&view(&[("a", 1)])).is_none());
    let mut objects = ObjectSeries::new(SeriesLimits { services: 1, members: 0 });
    assert!(!text(&mut objects, &view(&[("a", 1)])).contains("seaway_member_"));
}

#[test]
fn times_are_cumulative_and_those_of_a_pool_that_went_stay() {
    let mut histogram = Histogram::default();
    histogram.buckets[0] = 3;
    histogram.buckets[14] = 1;
    histogram.sum = 90_000_000;
    let mut view = view(&[("a", 1)]);
    view.services[0].pools[0].latencies =
        Some(Box::new(Latencies { connect: histogram, ..Latencies::default() }));
    let mut objects = ObjectSeries::new(SeriesLimits::default());
    let labels = "namespace=\"default\",service=\"a\"";
    for pools in [1, 0] {
        let text = text(&mut objects, &view);
        for (le, count) in [("0.0005", 3), ("60.0", 3), ("+Inf", 4)] {
            let mut lines = text.lines().filter(|it| {
                it.starts_with("seaway_service_connect_seconds_bucket{")
                    && it.contains(labels)
                    && it.contains(&format!("le=\"{le}\""))
            });
            let line = lines.next().unwrap_or_else(|| panic!("{le} with {pools} pools\n{text}"));
            assert!(line.ends_with(&format!("}} {count}")), "{line}");
        }
        assert!(text.contains(&format!("seaway_service_connect_seconds_sum{{{labels}}} 90.0")), "{text}");
        view.services[0].pools.clear();
    }
}

#[test]
fn no_name_ends_a_line_or_a_label() {
    let mut objects = ObjectSeries::new(SeriesLimits::default());
    let text = text(&mut objects, &view(&[("a\"} 1\nseaway_ready 0", 1)]));
    assert!(
        text.lines()
            .all(|it| it.starts_with("seaway_se") || it.starts_with("seaway_member_") || it.starts_with('#')),
        "{text}"
    );
}
