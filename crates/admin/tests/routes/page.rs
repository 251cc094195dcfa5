//! The status page: what it shows, and what it says first.

use seaway_admin::{
    View,
    view::{ListenerView, MemberState, PoolView, Readiness, ServiceView},
};
use seaway_model::{L4, Problem, Reason, load_balancer::Balance, name::Kind, name::ObjectRef};

use crate::{
    client::ask,
    paths::{sample, serving, serving_with},
    view,
};

#[test]
fn the_page_is_whole_without_a_script_and_escapes_every_name() {
    sample(|at| {
        let page = ask(at, "/").body;
        assert!(!page.contains("<img"), "a name became markup");
        assert!(page.contains("&lt;img src=x onerror=&quot;"));
        for told in
            ["203.0.113.7", "10.42.0.17:<wbr>8443", "connection refused", "PortInUse", "kind: EndpointSlice"]
        {
            assert!(page.contains(told), "{told} is missing");
        }
        for http in
            ["data-label=\"Requests\">9\u{2009}000<", r#"data-label="5xx"><span class="bad">3</span>"#]
        {
            assert!(page.contains(http), "{http} is missing");
        }
        // Of one that is not even served, that is what is said.
        let unannounced =
            r#" <small class="warn" title="set &lt;announce: static&gt;">served, not announced</small>"#;
        assert_eq!(page.matches(unannounced).count(), 1);
        assert_eq!(page.matches("served, not announced").count(), 1);
        assert!(page.contains(r#"<noscript><meta http-equiv="refresh""#));
        let sought = ask(at, "/?q=%22%3E%3Cscript%3Ealert(1)%3C/script%3E").body;
        assert!(!sought.contains("<script>alert") && sought.contains("No service matches"), "{sought}");
        let links = page.split("<p class=\"urls\">").skip(1).map(|it| it.split("</p>").next().unwrap());
        let links: Vec<&str> = links.collect();
        assert_eq!(
            links,
            [
                r#"<a href="https://203.0.113.7/" target="_blank" rel="noopener noreferrer">https://203.0.113.7/</a> "#
                    .to_owned()
                    + r#"<a href="https://[2001:db8:4:17::7]/" target="_blank" rel="noopener noreferrer">https://[2001:db8:4:17::7]/</a> "#,
                r#"<a href="http://web.example/" target="_blank" rel="noopener noreferrer">http://web.example/</a> "#
                    .to_owned()
                    + r#"<a href="http://shop.example/a-long-path/to/something" target="_blank" rel="noopener noreferrer">http://shop.example/a-long-path/to/something</a> "#,
            ]
        );
        // Those lead somewhere only if they are clicked on; nothing is loaded from outside.
        let without_links = links.iter().fold(page.clone(), |page, it| page.replace(it, ""));
        for outside in ["http://", "https://", "@import", "url(", "javascript:"] {
            let without_icon = without_links.replace("http://www.w3.org/2000/svg", "");
            assert!(!without_icon.contains(outside), "the page refers to {outside}");
        }
        let hour = "last hour: 1\u{2009}000 connections";
        assert!(!page.contains(hour) && page.contains("last hour: 9\u{2009}000 requests, "), "{page}");
    });
}

#[test]
fn five_thousand_services_are_shown_a_hundred_at_a_time() {
    let many = || {
        let services = (0..5000).map(|n| seaway_admin::view::ServiceView {
            owner: format!("Service default/s{n}"),
            namespace: "default".into(),
            name: format!("s{n}"),
            ..Default::default()
        });
        View { services: services.collect(), ..View::default() }
    };
    serving(many, |at| {
        let page = ask(at, "/").body;
        assert_eq!(page.matches("<article").count(), 100);
        assert!(page.contains("4\u{2009}900 more"));
        let found = ask(at, "/?q=s4711").body;
        assert!(found.contains("Service default/s4711") && found.matches("<article").count() == 1);
    });
}

/// A Service with a listener and these members.
fn service(serving: bool, members: &[MemberState]) -> ServiceView {
    let members = members.iter().map(|state| view::member("192.0.2.1:80", "", *state, 1)).collect();
    let id = "80/TCP".into();
    ServiceView {
        listeners: vec![ListenerView { serving, ..view::listener("203.0.113.7", 80, L4::Tcp, "", 1) }],
        pools: vec![PoolView {
            id,
            service: String::new(),
            urls: Vec::new(),
            protocol: L4::Tcp,
            balance: Balance::RoundRobin,
            panic: false,
            no_member: 0,
            latency: None,
            latencies: None,
            members,
        }],
        ..ServiceView::default()
    }
}

#[test]
fn the_first_sentence_says_whether_to_worry() {
    use MemberState::{Down, Up};
    let problem = Problem::new(ObjectRef::new(Kind::Service, "default", "shop"), Reason::Invalid, "a typo");
    let well = service(true, &[Up, Up]);
    let empty = service(true, &[]);
    let table: [(&str, &str, Vec<ServiceView>, Vec<Problem>); 7] = [
        ("good", "Ready, with nothing to serve yet", vec![], vec![]),
        ("good", "Everything is served", vec![well.clone()], vec![]),
        ("warn", "Serving, with 1 problem to correct", vec![well.clone()], vec![problem]),
        (
            "warn",
            "Serving, with 1 of 4 members not usable",
            vec![well.clone(), service(true, &[Up, Down])],
            vec![],
        ),
        (
            "bad",
            "1 Service without a usable member, 2 of 4 members not usable",
            vec![well.clone(), service(true, &[Down, Down])],
            vec![],
        ),
        ("bad", "2 Services without a usable member", vec![empty.clone(), empty, well.clone()], vec![]),
        (
            "bad",
            "1 listener not served, 1 Service without a usable member, 1 of 3 members not usable",
            vec![service(false, &[Up, Up]), service(true, &[Down])],
            vec![],
        ),
    ];
    for (class, sentence, services, problems) in table {
        let process = move || View {
            readiness: Readiness::Ready,
            services: services.clone(),
            problems: problems.clone(),
            ..View::default()
        };
        serving(process, |at| {
            let page = ask(at, "/").body;
            let wanted = format!(r#"<p class="standing {class}" role="status">{sentence}</p>"#);
            let found = page.lines().find(|it| it.contains("standing "));
            assert!(page.contains(&wanted), "{wanted}: {found:?}");
        });
    }
}

#[test]
fn members_have_the_latency_of_the_last_seconds_and_pools_their_quantiles() {
    use seaway_admin::view::LatencySum;
    use seaway_model::latency::{Histogram, Latencies};

    let looks = std::sync::atomic::AtomicU64::new(0);
    let source = move || {
        let look = looks.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        let mut service = service(true, &[MemberState::Up]);
        // Each look has seen one more, which took 8 ms.
        service.pools[0].members[0].measured = LatencySum { count: look, micros: look * 8_000 };
        let mut connect = Histogram { sum: look * 8_000, ..Histogram::default() };
        connect.buckets[Histogram::bucket_of(8_000)] = look;
        service.pools[0].latencies = Some(Box::new(Latencies { connect, ..Latencies::default() }));
        View { readiness: Readiness::Ready, services: vec![service], ..View::default() }
    };
    serving(source, |at| {
        let first = ask(at, "/").body;
        assert!(first.contains(r#"data-label="Latency">–<"#) && !first.contains("p50"), "{first}");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        let page = loop {
            let page = ask(at, "/").body;
            if page.contains("p50") {
                break page;
            }
            assert!(std::time::Instant::now() < deadline, "never came: {page}");
        };
        assert!(page.contains(r#"data-label="Latency">8.0"#), "{page}");
        assert!(
            page.contains("p50 7.5\u{a0}ms, p99 10\u{a0}ms") || page.contains("p99 10\u{a0}ms"),
            "{page}"
        );
        let state: serde_json::Value = serde_json::from_str(&ask(at, "/state").body).unwrap();
        let pool = &state["services"][0]["pools"][0];
        assert!(pool["latency"]["p99"].is_number() && pool["members"][0]["latency"] == 8.0, "{pool}");
    });
}

#[test]
fn a_bar_of_the_last_hour_is_over_without_anybody_who_looks() {
    let looks = std::sync::atomic::AtomicU64::new(0);
    let source = move || {
        let look = looks.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        let mut service = service(true, &[MemberState::Up]);
        service.listeners[0].sessions.total = look;
        View { readiness: Readiness::Ready, services: vec![service], ..View::default() }
    };
    let short = std::time::Duration::from_millis(20);
    serving_with(
        |it| it.with_history_interval(short),
        source,
        |at| {
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
            // Strangers share a look for a second, and so does this one of our own.
            loop {
                let state: serde_json::Value = serde_json::from_str(&ask(at, "/state").body).unwrap();
                let bars = state["services"][0]["history"]["requests"].as_array().unwrap();
                let known = bars.iter().filter(|it| it.as_u64().unwrap() > 0).count();
                if known > 2 {
                    break;
                }
                assert!(std::time::Instant::now() < deadline, "never came: {bars:?}");
            }
        },
    );
}
