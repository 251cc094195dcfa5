//! A large folder: one change costs what one change costs.
#![allow(clippy::print_stdout, reason = "its figures are for reading")]

use std::{
    fmt::Write,
    fs,
    sync::mpsc,
    time::{Duration, Instant},
};

use seaway_files::Folder;
use seaway_model::{Change, Fact};

const SERVICES: usize = 5_000;

#[test]
fn one_endpoint_of_five_thousand_services_is_changed_at_once() {
    let root = tempfile::tempdir().expect("a folder");
    let file = root.path().join("all.yaml");
    let mut text = String::new();
    for service in 0..SERVICES {
        write_service(&mut text, service);
    }
    fs::write(&file, &text).expect("is written");
    let state = root.path().join(".state");
    fs::create_dir(&state).expect("is made");

    let begun = Instant::now();
    let (folder, first) = Folder::open_with(root.path(), Some(&state), None).expect("a folder");
    let opened = begun.elapsed();
    assert!(first.len() > 2 * SERVICES);
    drop(first);
    let (sender, changes) = mpsc::channel();
    let _watch = folder.watch(move |changes| drop(sender.send(changes))).expect("is watched");

    let mut took = Vec::new();
    for round in 0..10 {
        let wanted = format!("10.9.{round}.1");
        let changed = text.replacen("10.0.0.1]", &format!("{wanted}]"), 1);
        fs::write(root.path().join(".next"), &changed).expect("is written");
        let begun = Instant::now();
        fs::rename(root.path().join(".next"), &file).expect("is moved");
        let told = changes.recv_timeout(Duration::from_secs(20)).expect("is told");
        took.push(begun.elapsed());
        assert!(matches!(told.as_slice(), [Change::Put(Fact::Endpoints(_))]), "{told:?}");
    }
    took.sort();
    let status = fs::read_to_string("/proc/self/status").expect("is told");
    let resident: Vec<&str> =
        status.lines().filter(|line| line.starts_with("VmRSS") || line.starts_with("VmHWM")).collect();
    println!("{resident:?}");
    // Times of a debug build on a busy machine; docs/performance.md has the true ones.
    println!(
        "opened in {opened:?}, changed in {:?} at best, {:?} mostly, {} bytes",
        took[0],
        took[5],
        text.len()
    );
    // Whatever the machine does beside it: to read all of it again would cost what opening did.
    assert!(took[0] * 4 < opened, "{opened:?} {took:?}");
}

fn write_service(text: &mut String, number: usize) {
    let (a, b) = (number / 250, number % 250);
    write!(
        text,
        "apiVersion: v1
kind: Service
metadata:
  name: s{number}
  labels:
    app: s{number}
spec:
  type: LoadBalancer
  selector:
    app: s{number}
  ports:
  - name: http
    port: {port}
    targetPort: 8080
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: s{number}-1
  labels:
    kubernetes.io/service-name: s{number}
addressType: IPv4
ports:
- name: http
  port: 8080
endpoints:
- addresses: [10.{a}.{b}.1]
  conditions: {{ready: true}}
- addresses: [10.{a}.{b}.2]
  conditions: {{ready: true}}
- addresses: [10.{a}.{b}.3]
  conditions: {{ready: true}}
- addresses: [10.{a}.{b}.4]
  conditions: {{ready: true}}
---
",
        port = 10_000 + number
    )
    .expect("a string takes all");
}
