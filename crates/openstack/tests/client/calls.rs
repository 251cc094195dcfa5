//! How calls are made: what is repeated and what is not, within which limits, and what is told of them.

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use seaway_openstack::{
    Accept, Backoff, Call, Class, Cloud, Fence, Limits, Method, Retry, Service, Settings, Source, Timing,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    counted::RecordedMetrics,
    hurried::FastClock,
    keystone::{TOKEN, connect, credentials, granted, quick, signs_in},
    scripted::{Request, ScriptedReply, ScriptedServer},
};

fn networks() -> Call {
    Call::get(Service::Network, "list networks", "/networks")
}

fn new_port() -> Call {
    Call::post(Service::Network, "make a port", "/ports", json!({"port": {"name": "p"}}))
}

/// A cloud that answers calls with these acts, in turn, the last one for ever.
fn in_turn(acts: Vec<fn() -> ScriptedReply>) -> ScriptedServer {
    let turn = AtomicUsize::new(0);
    ScriptedServer::start(move |request| {
        if signs_in(request) {
            return granted(request);
        }
        let turn = turn.fetch_add(1, Ordering::SeqCst);
        acts[turn.min(acts.len() - 1)]()
    })
}

fn fine() -> ScriptedReply {
    ScriptedReply::Json(200, json!({"networks": []}))
}

fn patient(clock: &Arc<FastClock>) -> Settings {
    Settings {
        timing: Timing { call: Duration::from_secs(60), ..quick().timing },
        backoff: Backoff::default(),
        clock: clock.clone(),
        ..quick()
    }
}

/// How many requests a call comes to, and how it ends.
#[track_caller]
fn check_repeats(call: Call, acts: Vec<fn() -> ScriptedReply>, requests: usize, class: Option<Class>) {
    let told = call.to_string();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let server = in_turn(acts);
        let cloud = connect(&server, patient(&Arc::new(FastClock::new()))).await.expect("let in");
        let outcome = cloud.call(call).await;
        assert_eq!(outcome.as_ref().err().map(|error| error.class()), class.as_ref(), "{told}: {outcome:?}");
        assert_eq!(server.seen().len() - 1, requests, "{told}");
    });
}

#[test]
fn what_may_be_repeated_is_and_what_may_have_been_done_is_not() {
    let busy: fn() -> ScriptedReply = || ScriptedReply::Json(503, json!(null));
    let many: fn() -> ScriptedReply = || ScriptedReply::Json(429, json!(null));
    let gateway: fn() -> ScriptedReply = || ScriptedReply::Json(502, json!(null));
    let broken: fn() -> ScriptedReply = || ScriptedReply::Json(500, json!(null));
    let lost: fn() -> ScriptedReply = || ScriptedReply::HangUp;
    let put = || Call::put(Service::Network, "change a port", "/ports/1", json!({}));
    let delete = || Call::delete(Service::Network, "delete a port", "/ports/1");

    for again in [busy, many, gateway, lost] {
        for call in [networks(), put(), delete()] {
            check_repeats(call, vec![again, again, fine], 3, None);
        }
    }
    check_repeats(networks(), vec![broken, fine], 1, Some(Class::Broken));
    check_repeats(networks(), vec![busy], 5, Some(Class::Busy));
    check_repeats(networks(), vec![lost], 5, Some(Class::Unreachable));

    // Who writes it in Neutron's own words has done nothing; who does not may have passed it on before.
    let said: fn() -> ScriptedReply =
        || ScriptedReply::Json(503, json!({"NeutronError": {"message": "try again"}}));
    check_repeats(new_port(), vec![said, many, fine], 3, None);
    let envoy: fn() -> ScriptedReply =
        || ScriptedReply::Json(503, json!({"message": "upstream connect error"}));
    let once = || Call::put(Service::Network, "change a port", "/ports/1", json!({})).at_most_once();
    let of_a_revision = || put().if_revision(7);
    for unknown in [gateway, broken, lost, busy, envoy] {
        for call in [new_port(), once(), of_a_revision()] {
            check_repeats(call, vec![unknown, fine], 1, Some(Class::Lost));
        }
    }
    check_repeats(delete().if_revision(7), vec![lost, fine], 2, None);
}

#[tokio::test]
async fn a_write_is_not_sent_again_by_who_leads_no_more_and_what_is_read_is() {
    let put = || Call::put(Service::Network, "change a port", "/ports/1", json!({}));
    let delete = || Call::delete(Service::Network, "delete a port", "/ports/1");
    let writes = [put(), delete(), new_port()].map(|it| (it, true));
    for (call, writes) in writes.into_iter().chain([(networks(), false)]) {
        let leads = Arc::new(AtomicBool::new(true));
        let (asked, ends) = (leads.clone(), leads.clone());
        let acts = in_turn(vec![|| ScriptedReply::Json(429, json!(null)), fine]);
        let fence = Fence::new(move || asked.swap(false, Ordering::SeqCst));
        let cloud = connect(&acts, Settings { fence, ..patient(&Arc::new(FastClock::new())) });
        let cloud = cloud.await.expect("to sign in is no write");
        let told = call.to_string();
        let outcome = cloud.call(call).await;
        let class = outcome.err().map(|error| error.class().clone());
        assert_eq!(class, writes.then_some(Class::Fenced), "{told}");
        assert_eq!(
            acts.seen().len() - 1,
            if writes { 1 } else { 2 },
            "{told}: it was asked before each attempt"
        );
        assert_eq!(ends.load(Ordering::SeqCst), !writes, "{told}");
    }
}

#[tokio::test]
async fn a_cloud_that_says_when_is_asked_then() {
    let server = in_turn(vec![
        || ScriptedReply::JsonWith(503, ("retry-after", "17"), json!(null)),
        || ScriptedReply::JsonWith(429, ("retry-after", "3"), json!(null)),
        fine,
    ]);
    let clock = Arc::new(FastClock::new());
    let cloud = connect(&server, patient(&clock)).await.expect("let in");
    cloud.call(networks()).await.expect("works in the end");
    let slept = clock.slept();
    let asked = [17, 3].map(Duration::from_secs);
    assert!(slept.iter().zip(asked).all(|(slept, asked)| *slept > asked), "never sooner: {slept:?}");
    assert!(slept.iter().sum::<Duration>() < Duration::from_secs(24), "and not much later: {slept:?}");
}

#[tokio::test]
async fn no_pause_that_a_cloud_asks_for_makes_us_hammer_or_panic() {
    let zero: fn() -> ScriptedReply = || ScriptedReply::JsonWith(503, ("retry-after", "0"), json!(null));
    let endless: fn() -> ScriptedReply =
        || ScriptedReply::JsonWith(503, ("retry-after", "18446744073709551615"), json!(null));
    for (act, requests) in [(zero, 5), (endless, 1)] {
        let server = in_turn(vec![act]);
        let clock = Arc::new(FastClock::new());
        let mut told = credentials(&format!("{}/v3", server.url()));
        told.timeout = Some(Duration::from_secs_f64(1e19));
        let cloud = Cloud::connect(Source::Given(told), patient(&clock)).await.expect("let in");
        assert_eq!(cloud.call(networks()).await.unwrap_err().class(), &Class::Busy);
        assert_eq!(server.count("GET", "/networks"), requests);
        assert!(clock.slept().iter().all(|it| *it > Duration::from_millis(200)), "{:?}", clock.slept());
        assert_eq!(clock.slept().len(), requests - 1);
    }
}

#[tokio::test]
async fn a_cloud_that_wants_a_longer_pause_than_a_call_has_is_not_waited_for() {
    let server = in_turn(vec![|| ScriptedReply::JsonWith(503, ("retry-after", "3600"), json!(null))]);
    let clock = Arc::new(FastClock::new());
    let cloud = connect(&server, patient(&clock)).await.expect("let in");
    let error = cloud.call(networks()).await.unwrap_err();
    assert_eq!(error.retry(), Retry::After(Duration::from_secs(3600)));
    assert!(clock.slept().is_empty(), "{:?}", clock.slept());
}

#[tokio::test]
async fn no_more_requests_are_under_way_than_the_limit_and_none_is_lost() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let come = (Mutex::new(0_usize), Condvar::new());
    let server = {
        let (now, most) = (now.clone(), most.clone());
        ScriptedServer::start(move |request| {
            if signs_in(request) {
                return granted(request);
            }
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // As many as may be under way wait for each other, so that they are, however slow they come.
            let mut all = come.0.lock().expect("nobody panics");
            *all += 1;
            come.1.notify_all();
            let full = all.next_multiple_of(3).min(40);
            let waits = |all: &mut usize| *all < full;
            drop(come.1.wait_timeout_while(all, Duration::from_secs(60), waits).expect("nobody panics"));
            // Long enough for others to come, were they let through.
            std::thread::sleep(Duration::from_millis(10));
            now.fetch_sub(1, Ordering::SeqCst);
            fine()
        })
    };
    let limits = Limits { per_second: 100_000, in_flight: 3 };
    let cloud = connect(&server, Settings { limits, ..quick() }).await.expect("let in");
    let mut calls = JoinSet::new();
    for _ in 0..40 {
        let cloud = cloud.clone();
        calls.spawn(async move { cloud.call(networks()).await });
    }
    assert!(calls.join_all().await.iter().all(Result::is_ok));
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn requests_are_spread_when_there_are_more_than_the_limit_per_second() {
    let server = in_turn(vec![fine]);
    let clock = Arc::new(FastClock::new());
    let limits = Limits { per_second: 10, in_flight: 1 };
    let cloud = connect(&server, Settings { limits, ..patient(&clock) }).await.expect("let in");
    for _ in 0..29 {
        cloud.call(networks()).await.expect("works");
    }
    let slept: Duration = clock.slept().iter().sum();
    assert_eq!(slept, Duration::from_secs(2), "thirty requests, ten of them at once");
}

#[tokio::test]
async fn a_dry_run_reads_and_lists_what_it_did_not_write() {
    let server = in_turn(vec![fine]);
    let cloud = connect(&server, Settings { dry_run: true, ..quick() }).await.expect("let in");
    cloud.call(networks()).await.expect("reads are real");
    let error = cloud.call(new_port()).await.expect_err("writes are not");
    assert_eq!(error.class(), &Class::DryRun);
    _ = cloud.call(Call::delete(Service::LoadBalancer, "delete", "/lbaas/loadbalancers/1")).await;
    assert_eq!(
        cloud.refused_writes(),
        ["POST network /ports", "DELETE load-balancer /lbaas/loadbalancers/1"]
    );
    assert_eq!(server.count("POST", "/ports") + server.count("DELETE", "/"), 0);
}

#[tokio::test]
async fn a_request_says_all_that_the_call_does() {
    let server = in_turn(vec![fine]);
    let cloud = connect(&server, quick()).await.expect("let in");
    let call = Call::new(Service::Network, Method::PUT, "change a port", "/ports/1")
        .query("fixed_ips", "subnet_id=a b")
        .query("fixed_ips", "ip_address=::1&")
        .body(json!({"port": {}}))
        .microversion(2, 96)
        .if_revision(7);
    cloud.call(call).await.expect("works");
    let sent = server.seen().pop().expect("a request");
    assert_eq!(
        sent.path,
        "/network/v2.0/ports/1?fixed_ips=subnet_id%3Da+b&fixed_ips=ip_address%3D%3A%3A1%26"
    );
    assert_eq!((sent.method.as_str(), &sent.body), ("PUT", &json!({"port": {}})));
    for (name, value) in [
        ("x-auth-token", TOKEN),
        ("if-match", "revision_number=7"),
        ("openstack-api-version", "network 2.96"),
        ("accept", "application/json"),
        ("content-type", "application/json"),
    ] {
        assert_eq!(sent.headers.get(name).map(String::as_str), Some(value), "{name}");
    }
    let id = &sent.headers["x-openstack-request-id"];
    assert!(id.len() == 40 && id.starts_with("req-"), "{id}");
}

#[tokio::test]
async fn a_payload_comes_as_text_and_an_empty_reply_as_null() {
    let server = in_turn(vec![
        || {
            ScriptedReply::Raw(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 4\r\n\r\n1234".to_vec(),
            )
        },
        || ScriptedReply::Raw(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec()),
    ]);
    let cloud = connect(&server, quick()).await.expect("let in");
    let payload = networks().accept(Accept::Text);
    assert_eq!(cloud.call(payload).await.expect("works").body, Value::String("1234".into()));
    let reply = cloud.call(Call::delete(Service::Network, "delete", "/ports/1")).await.expect("works");
    assert_eq!((reply.status, reply.body), (204, Value::Null));
}

#[tokio::test]
async fn ten_thousand_members_fit_into_a_reply_and_what_never_ends_does_not() {
    let member = json!({"id": "0".repeat(36), "name": "x".repeat(60), "address": "10.0.0.1", "protocol_port": 80,
        "more": "y".repeat(400)});
    let members = json!({"members": vec![member; 10_000]});
    let body = members.clone();
    let server = ScriptedServer::start(move |request| match request {
        _ if signs_in(request) => granted(request),
        Request { path, .. } if path.contains("members") => ScriptedReply::Json(200, body.clone()),
        _ => {
            let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n".to_vec();
            ScriptedReply::Raw([head, vec![b' '; 65 << 20]].concat())
        }
    });
    let timing = Timing { attempt: Duration::from_secs(60), call: Duration::from_secs(60), ..quick().timing };
    let cloud = connect(&server, Settings { timing, ..quick() }).await.expect("let in");
    let reply = cloud.call(Call::get(Service::LoadBalancer, "list members", "/members")).await.expect("fits");
    assert_eq!(reply.body, members);
    assert_eq!(cloud.call(networks()).await.expect_err("too large").class(), &Class::TooLarge);
}

#[tokio::test]
async fn calls_are_counted_and_timed_by_service_operation_and_outcome() {
    let server = in_turn(vec![|| ScriptedReply::Json(503, json!(null)), fine, || {
        ScriptedReply::Json(404, json!({"NeutronError": "no"}))
    }]);
    let counted = RecordedMetrics::default();
    let cloud = connect(&server, Settings { metrics: counted.metrics(), ..quick() }).await.expect("let in");
    cloud.call(networks()).await.expect("works");
    cloud.call(networks()).await.expect_err("not found");
    let labels = "service=\"network\",operation=\"list networks\"";
    for (series, value) in [
        (format!("seaway_openstack_calls_total{{{labels},outcome=\"ok\"}}"), 1),
        (format!("seaway_openstack_calls_total{{{labels},outcome=\"not-found\"}}"), 1),
        (format!("seaway_openstack_call_duration_seconds_count{{{labels}}}"), 2),
        (format!("seaway_openstack_repeats_total{{{labels}}}"), 1),
    ] {
        assert_eq!(counted.value(&series), value, "{series} of\n{}", counted.text());
    }
}
