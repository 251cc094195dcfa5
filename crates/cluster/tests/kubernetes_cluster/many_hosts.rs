//! What one more Service costs where there are many hosts: writes, and events of watches, as the API server counts them.
//!
//! Each of the simulated hosts watches what a host watches of hosts and Addresses, and writes what it has applied as a host does.
//! Counts are asserted; the CPU is printed.

#![allow(clippy::print_stderr, reason = "figures are for people who read the output")]

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    fs,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::StreamExt;
use kube::{
    Api, Client,
    api::{PostParams, WatchEvent, WatchParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use seaway_cluster::{
    ExpiredHostPolicy, HostStatusWriter, Leadership, ProgramInfo, WatchTimings, selector_of_host,
};
use seaway_model::{Change, Fact, Name, fact::HostStatus};
use seaway_testkit::{kubernetes, skip};
use serde_json::json;
use tokio::{sync::mpsc, task::JoinSet, time::timeout};

use crate::scene::{PACE, PATIENCE, Scene, connect, eventually};

const HOSTS: usize = 500;
const SERVICES: usize = 2;

fn api(client: &Client, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("seaway.dev", "v1alpha1", kind);
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
}

/// What the API server counts.
async fn counters(client: &Client) -> HashMap<String, f64> {
    let request = http::Request::get("/metrics").body(Vec::new()).expect("a request");
    let text = client.request_text(request).await.expect("it tells its counters");
    let lines = text.lines().filter(|it| !it.starts_with('#'));
    lines
        .filter_map(|it| it.rsplit_once(' '))
        .filter_map(|(of, it)| Some((of.to_owned(), it.parse().ok()?)))
        .collect()
}

fn sum(counters: &HashMap<String, f64>, name: &str, words: &[&str]) -> f64 {
    let of = |it: &str| it.starts_with(name) && words.iter().all(|word| it.contains(word));
    counters.iter().filter(|(it, _)| of(it)).map(|(_, count)| count).sum()
}

fn writes(counters: &HashMap<String, f64>) -> f64 {
    written(counters, "loadbalancerhosts")
}

/// Those that were answered well: one of two leaders is refused.
fn slices_written(counters: &HashMap<String, f64>) -> f64 {
    written(counters, "loadbalancerhostslices")
}

fn written(counters: &HashMap<String, f64>, kind: &str) -> f64 {
    let verbs = ["APPLY", "CREATE", "POST", "PATCH", "PUT", "UPDATE"];
    let of = |verb: &str| {
        let words = [format!("resource=\"{kind}\""), format!("verb=\"{verb}\""), "code=\"20".to_owned()];
        sum(counters, "apiserver_request_total{", &words.each_ref().map(String::as_str))
    };
    verbs.into_iter().map(of).sum()
}

fn events(counters: &HashMap<String, f64>, resource: &str) -> f64 {
    sum(counters, "apiserver_watch_events_total{", &["seaway.dev", &format!("\"{resource}\"")])
}

/// Of this process, in seconds.
fn cpu() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux tells it");
    let fields: Vec<&str> = stat.rsplit_once(')').expect("a name").1.split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().expect("a number");
    (ticks(11) + ticks(12)) / 100.0
}

fn open_files() -> usize {
    let limits = fs::read_to_string("/proc/self/limits").expect("Linux tells it");
    let line = limits.lines().find(|it| it.starts_with("Max open files")).expect("a limit");
    line.split_whitespace().nth(3).and_then(|it| it.parse().ok()).unwrap_or(usize::MAX)
}

/// Passes on what a watch tells, and begins it again where it was when it ends.
async fn follow(
    of: Api<DynamicObject>,
    fields: Option<String>,
    mut version: String,
    tell: mpsc::UnboundedSender<u64>,
) {
    loop {
        let params = WatchParams { field_selector: fields.clone(), ..WatchParams::default() };
        let Ok(stream) = of.watch(&params, &version).await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let mut stream = std::pin::pin!(stream);
        while let Some(Ok(event)) = stream.next().await {
            match event {
                WatchEvent::Added(it) | WatchEvent::Modified(it) | WatchEvent::Deleted(it) => {
                    version = it.metadata.resource_version.unwrap_or_default();
                    let _ = tell.send(version.parse().unwrap_or_default());
                }
                WatchEvent::Bookmark(it) => version = it.metadata.resource_version,
                WatchEvent::Error(error) => panic!("a watch: {error:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_more_address_is_written_once_by_each_of_500_hosts_and_heard_by_none_of_the_others() {
    if open_files() < 8 * HOSTS {
        return skip(None, "500 hosts need 4000 open files: ulimit -n");
    }
    let Some(scene) = Scene::alone() else { return };
    scene.cluster.define(seaway_cluster::crds::definitions());
    let client = kubernetes::client(&scene.kubeconfig).await;
    let began = Instant::now();

    // What they watch: their own object, slices of all, and Addresses.
    let patient = WatchTimings { answer: PATIENCE, ..PACE };
    let cluster = connect(&scene.kubeconfig, patient).await;
    let says = |host: usize, applied| HostStatus {
        applied,
        addresses: vec![IpAddr::from([10, 0, (host / 250) as u8, (host % 250) as u8])],
        ..HostStatus::default()
    };
    let name = |host: usize| format!("host-{host}");
    let listed = api(&client, "LoadBalancerHost").list(&Default::default()).await.expect("is listed");
    let version = listed.metadata.resource_version.expect("a version");
    let (own, mut of_own) = mpsc::unbounded_channel();
    let (other, of_others) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    let mut reports = Vec::new();
    for host in 0..HOSTS {
        let itself = selector_of_host(&Name::from(name(host)));
        let hosts = api(&client, "LoadBalancerHost");
        tasks.spawn(follow(hosts, Some(itself), version.clone(), own.clone()));
        tasks.spawn(follow(api(&client, "LoadBalancerHostSlice"), None, version.clone(), other.clone()));
        let (tell, mut addresses) = mpsc::unbounded_channel();
        tasks.spawn(follow(api(&client, "Address"), None, version.clone(), tell));
        let writer = Arc::new(HostStatusWriter::start(&cluster, &name(host), ProgramInfo::default()));
        reports.push(writer.clone());
        tasks.spawn(async move {
            while let Some(version) = addresses.recv().await {
                writer.publish(says(host, version));
            }
        });
    }
    // And a controller.
    let gathering =
        connect(&scene.kubeconfig, WatchTimings { gather: WatchTimings::default().gather, ..patient }).await;
    let (tell, mut changes) = mpsc::channel(1_024);
    let mut controller = gathering.watch(tell.clone(), ExpiredHostPolicy::Ignored);
    controller.gather_addresses(&gathering, Leadership::always(), tell);
    let mut applied: HashMap<Name, u64> = HashMap::new();
    let mut hear = async |at_least: u64| {
        while applied.values().filter(|it| **it >= at_least).count() < HOSTS {
            match timeout(PATIENCE, changes.recv()).await.expect("hosts say it in time") {
                Some(Change::Put(Fact::Host(report))) => {
                    _ = applied.insert(report.host.clone(), report.applied)
                }
                Some(_) => {}
                None => panic!("the watch goes on"),
            }
        }
    };
    eventually("all watches have begun", async || {
        let there = counters(&client).await;
        let watching = |kind: &str| {
            sum(
                &there,
                "apiserver_longrunning_requests{",
                &[&format!("resource=\"{kind}\""), "verb=\"WATCH\""],
            )
        };
        let kinds = ["loadbalancerhosts", "loadbalancerhostslices", "addresses"];
        kinds.iter().all(|kind| watching(kind) >= HOSTS as f64).then_some(())
    })
    .await;

    // They say for the first time who they are, all at once, and are silent then.
    let before = (counters(&client).await, cpu(), Instant::now());
    for (host, writer) in reports.iter().enumerate() {
        writer.publish(says(host, 1));
    }
    hear(1).await;
    eventually("all have written, and are gathered", async || {
        let listed = api(&client, "LoadBalancerHost").list(&Default::default()).await.ok()?;
        let calm = |it: &DynamicObject| {
            it.data["status"]["applied"] == "1" && it.data["status"]["addressesChanged"].is_null()
        };
        let slices = api(&client, "LoadBalancerHostSlice").list(&Default::default()).await.ok()?;
        let hosts = slices.items.iter().filter_map(|it| it.data["spec"]["hosts"].as_array()).flatten();
        // An object is there a moment before it says anything.
        let gathered = hosts.filter(|it| it["addresses"][0].is_string()).count();
        (gathered == HOSTS && listed.items.iter().filter(|it| calm(it)).count() == HOSTS).then_some(())
    })
    .await;
    let took = before.2.elapsed();
    // A write is counted once it was answered, which may be after it was heard of.
    let heard = Cell::new(0);
    let of_others = RefCell::new(of_others);
    let written = eventually("each host has heard of each slice that was written", async || {
        while of_others.borrow_mut().try_recv().is_ok() {
            heard.set(heard.get() + 1);
        }
        let written = slices_written(&counters(&client).await) - slices_written(&before.0);
        (heard.get() as f64 >= written * HOSTS as f64).then_some(written)
    })
    .await;
    let after = counters(&client).await;
    let told = |kind: &str| events(&after, kind) - events(&before.0, kind);
    let (of_hosts, of_slices) = (told("loadbalancerhosts"), told("loadbalancerhostslices"));
    let server = |it| sum(it, "process_cpu_seconds_total", &[]);
    eprintln!(
        "the first start of {HOSTS} hosts: {} writes of hosts, {written} of slices, {of_hosts} events of hosts, {of_slices} of \
         slices; CPU of the API server {:.2} s, of the hosts and this test {:.2} s, in {took:.1?}",
        writes(&after) - writes(&before.0),
        server(&after) - server(&before.0),
        cpu() - before.1,
    );
    assert!(of_hosts <= 16.0 * HOSTS as f64, "{of_hosts} events; where each hears of all others, 500,000");
    // Sixteen, once in five seconds.
    let rounds = took.as_secs_f64() / 5.0 + 2.0;
    let most = 16.0 * rounds * (HOSTS as f64 + 4.0);
    assert!(of_slices <= most, "{of_slices} events of slices in {took:.1?}, {most} at most");
    while of_own.try_recv().is_ok() {}

    // The first Service begins when all are calm.
    let mut slices = 0.0;
    for service in 0..SERVICES {
        let before = (counters(&client).await, cpu(), Instant::now());
        let at = format!("203.0.113.{service}");
        let address: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "seaway.dev/v1alpha1", "kind": "Address",
            "metadata": { "name": at.replace('.', "-") }, "spec": { "address": at, "pool": "public" },
        }))
        .expect("is an object");
        let created =
            api(&client, "Address").create(&PostParams::default(), &address).await.expect("is created");
        hear(created.metadata.resource_version.and_then(|it| it.parse().ok()).expect("a version")).await;
        for _ in 0..HOSTS {
            timeout(PATIENCE, of_own.recv()).await.expect("each host hears what it wrote").expect("goes on");
        }
        // A write is counted once it was answered, which may be after it was heard of.
        let after = eventually("all writes are counted", async || {
            let now = counters(&client).await;
            (writes(&now) - writes(&before.0) >= HOSTS as f64).then_some(now)
        })
        .await;
        if service == 0 {
            slices = slices_written(&after);
        }
        let written = writes(&after) - writes(&before.0);
        let told = |kind: &str| events(&after, kind) - events(&before.0, kind);
        let (of_hosts, of_addresses) = (told("loadbalancerhosts"), told("addresses"));
        let server = |it| sum(it, "process_cpu_seconds_total", &[]);
        eprintln!(
            "Service {service}: {written} writes, {of_hosts} events of hosts, {of_addresses} of Addresses; CPU of the API \
             server {:.2} s, of the hosts and this test {:.2} s, in {:.1?}",
            server(&after) - server(&before.0),
            cpu() - before.1,
            before.2.elapsed(),
        );
        let hosts = HOSTS as f64;
        // One that was not answered in time is written again.
        assert!(written <= 2.0 * hosts, "one write of each host that serves it: {written}");
        // Each hears its own, and the controller all of them.
        // Each hears its own, and the controller all of them, as does the garbage collector of Kubernetes.
        let (least, most) = (hosts, 8.0 * hosts);
        assert!(
            of_hosts >= least && of_hosts <= most,
            "{of_hosts} events; where each hears of all others, 250,000"
        );
        let (least, most) = (hosts, 4.0 * hosts);
        assert!(of_addresses >= least && of_addresses <= most, "one for each that serves it: {of_addresses}");
    }
    assert_eq!(slices_written(&counters(&client).await), slices, "no host is told of another");

    // All start again at once, with the addresses that they had.
    let before = (counters(&client).await, cpu(), Instant::now());
    let again = applied.values().max().copied().unwrap_or_default() + 1;
    let started: Vec<_> = (0..HOSTS)
        .map(|host| {
            let writer = HostStatusWriter::start(&cluster, &name(host), ProgramInfo::default());
            writer.publish(says(host, again));
            writer
        })
        .collect();
    let mut told = 0;
    while told < HOSTS {
        match timeout(PATIENCE, changes.recv()).await.expect("hosts say it in time") {
            Some(Change::Put(Fact::Host(report))) if report.applied >= again => told += 1,
            Some(_) => {}
            None => panic!("the watch goes on"),
        }
    }
    for _ in 0..HOSTS {
        timeout(PATIENCE, of_own.recv()).await.expect("each host hears what it wrote").expect("goes on");
    }
    let after = eventually("all writes are counted", async || {
        let now = counters(&client).await;
        (writes(&now) - writes(&before.0) >= HOSTS as f64).then_some(now)
    })
    .await;
    let written = writes(&after) - writes(&before.0);
    let of_hosts = events(&after, "loadbalancerhosts") - events(&before.0, "loadbalancerhosts");
    eprintln!(
        "a start of all again: {written} writes, {of_hosts} events of hosts; CPU of the hosts and this test {:.2} s, in {:.1?}",
        cpu() - before.1,
        before.2.elapsed()
    );
    assert!(written <= 2.0 * HOSTS as f64, "one write of each: {written}");
    assert!(of_hosts <= 8.0 * HOSTS as f64, "{of_hosts} events; where each hears of all others, 500,000");
    assert_eq!(slices_written(&counters(&client).await), slices, "no host is told of another");
    drop(started);
    eprintln!("all of it took {:.1?}", began.elapsed());
}

/// As hosts do it: by their own watches, of an API server that selects by a field of the status.
#[tokio::test]
async fn hosts_hear_of_each_others_addresses_and_not_of_what_else_they_say() {
    let Some(scene) = Scene::up("others") else { return };
    let cluster = connect(&scene.kubeconfig, PACE).await;
    let [a, b] = ["a", "b"].map(|it| Name::from(format!("{}-{it}", scene.namespace)));
    let says = |applied, address: [u8; 4]| HostStatus {
        applied,
        addresses: vec![address.into()],
        ..HostStatus::default()
    };
    let writer = HostStatusWriter::start(&cluster, &b, ProgramInfo::default());
    writer.publish(says(7, [10, 9, 9, 1]));
    let is = async |applied: &str, calm: bool| {
        let path = "jsonpath={.status.applied} {.status.addressesChanged}";
        let told = scene.try_kubectl(&["get", "lbhost", &b, "-o", path], "").unwrap_or_default();
        (told.trim() == if calm { applied.to_owned() } else { format!("{applied} true") }).then_some(())
    };
    eventually("it is written, and no change any more", async || is("7", true).await).await;

    let (tell, mut changes) = mpsc::channel(1_024);
    let _watch = cluster.watch_as_host(&a, std::iter::empty(), tell);
    let mut next = async || loop {
        match timeout(PATIENCE, changes.recv()).await.expect("it is told in time").expect("it goes on") {
            Change::Put(Fact::Host(it)) if it.host == b => return (it.applied, it.addresses.clone()),
            _ => {}
        }
    };
    assert_eq!(next().await, (7, vec![IpAddr::from([10, 9, 9, 1])]), "as it is listed");
    writer.publish(says(8, [10, 9, 9, 1]));
    eventually("how far it is is written", async || is("8", true).await).await;
    writer.publish(says(9, [10, 9, 9, 2]));
    assert_eq!(
        next().await,
        (9, vec![IpAddr::from([10, 9, 9, 2])]),
        "of its other address, and of nothing between"
    );

    // Its own object it hears whatever changes there.
    let own = HostStatusWriter::start(&cluster, &a, ProgramInfo::default());
    own.publish(says(1, [10, 9, 9, 3]));
    eventually("it is written", async || scene.try_kubectl(&["get", "lbhost", &a], "").ok()).await;
    scene.kubectl(&["patch", "lbhost", &a, "--type=merge", "-p", r#"{"spec":{"drain":true}}"#]);
    loop {
        match timeout(PATIENCE, changes.recv()).await.expect("it is told in time").expect("it goes on") {
            Change::Put(Fact::Host(it)) if it.host == a && it.drain => break,
            _ => {}
        }
    }
    drop((writer, own));

    // Deletions are not heard: before it is forgotten, it has no address any more.
    cluster.forget_host(&b).await.expect("it is forgotten");
    // At once, and not within an hour.
    loop {
        match timeout(PATIENCE, changes.recv()).await.expect("it is told in time").expect("it goes on") {
            Change::Put(Fact::Host(it)) if it.host == b && it.addresses.is_empty() => break,
            _ => {}
        }
    }
    assert!(scene.try_kubectl(&["get", "lbhost", &b], "").is_err(), "and it is gone");
    scene.kubectl(&["delete", "lbhost", &a]);
}

/// Whoever upgrades hosts and forgets the definitions is served all the same.
#[tokio::test]
async fn hosts_say_what_they_serve_and_hear_of_each_other_though_definitions_are_older() {
    let Some(scene) = Scene::alone() else { return };
    let mut lines: Vec<&str> = seaway_cluster::crds::definitions().lines().collect();
    lines.retain(|it| !it.contains("selectableFields"));
    let at = lines.iter().position(|it| it.trim() == "addressesChanged:").expect("it is defined");
    lines.drain(at..at + 3);
    scene.cluster.define(&lines.join("\n"));

    let cluster = scene.connect().await;
    let writer = HostStatusWriter::start(&cluster, "b", ProgramInfo::default());
    let says = |applied, last| HostStatus {
        applied,
        addresses: vec![IpAddr::from([10, 9, 9, last])],
        ..HostStatus::default()
    };
    writer.publish(says(7, 1));
    let path = "jsonpath={.status.applied}";
    eventually("it is written", async || {
        (scene.try_kubectl(&["get", "lbhost", "b", "-o", path], "").ok()? == "7").then_some(())
    })
    .await;
    let (tell, mut changes) = mpsc::channel(1_024);
    let _watch = cluster.watch_as_host(&"a".into(), std::iter::empty(), tell);
    writer.publish(says(8, 2));
    loop {
        match timeout(PATIENCE, changes.recv()).await.expect("it is told in time").expect("it goes on") {
            Change::Put(Fact::Host(it))
                if *it.host == *"b" && it.addresses == [IpAddr::from([10, 9, 9, 2])] =>
            {
                break;
            }
            _ => {}
        }
    }
}
