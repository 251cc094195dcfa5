//! That the networks which tests stand in are as they say, and leave nothing behind.
#![cfg(feature = "topology")]

use std::{
    io::ErrorKind,
    net::{SocketAddr, UdpSocket},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    process::{Command, Stdio},
};

use seaway_testkit::topology::{
    Backend, Datagrams, Namespace, Talk, Web, ask, in_a_network_of_its_own, until,
};

/// client 10.9.1.2 – 10.9.1.1 router 10.9.2.1 – 10.9.2.2 server, and the same in IPv6.
fn through_a_router() -> [Namespace; 3] {
    let [client, router, server] = ["client", "router", "server"].map(Namespace::create);
    client.cable("v0", &router, "left");
    server.cable("v0", &router, "right");
    router.forward();
    for (namespace, link, network, end) in
        [(&client, "v0", 1, 2), (&router, "left", 1, 1), (&router, "right", 2, 1), (&server, "v0", 2, 2)]
    {
        namespace.address(link, &format!("10.9.{network}.{end}/24"));
        namespace.address(link, &format!("fd00:{network}::{end}/64"));
    }
    for (namespace, network) in [(&client, 1), (&server, 2)] {
        namespace.route("default", &format!("10.9.{network}.1"));
        namespace.route("default", &format!("fd00:{network}::1"));
    }
    [client, router, server]
}

/// Namespaces can be made; where they cannot, that is said or fails.
fn with_root(body: fn()) {
    in_a_network_of_its_own(body);
}

#[test]
fn what_answers_in_one_namespace_is_reached_from_another_through_a_router() {
    with_root(|| {
        let [client, _router, server] = through_a_router();
        let web = server.run(|| Web::start_at("web", "[::]:80"));
        let tcp = server.run(|| Backend::start_at("tcp", "10.9.2.2:7"));
        let udp = server.run(|| Datagrams::start_at("udp", "[fd00:2::2]:7"));
        for url in ["http://10.9.2.2/", "http://[fd00:2::2]/there"] {
            assert_eq!(client.curl(url).as_deref(), Ok("web"), "{url}");
        }
        assert_eq!(web.count(), 2);
        assert!(web.last_request().starts_with("GET /there "), "{}", web.last_request());
        web.answer(503);
        assert!(client.curl("http://10.9.2.2/").is_err_and(|it| it.contains("503")));
        client.run(|| {
            let mut talk = Talk::open(tcp.at).expect("reached");
            assert_eq!(talk.with, "tcp");
            talk.echo(b"there and back").expect("echoed");
            let socket = UdpSocket::bind("[::]:0").expect("a port");
            assert_eq!(ask(&socket, udp.at, b"x").expect("answered"), b"udp x");
        });
        let at = tcp.at;
        drop((web, tcp));
        let refused = client.curl("http://10.9.2.2/").expect_err("nobody listens any more");
        assert!(refused.contains("(7)"), "{refused}");
        let refused = client.run(|| Talk::open(at)).expect_err("nobody listens any more");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn nothing_is_left_of_a_namespace_after_a_panic() {
    with_root(|| {
        let (mut name, mut process) = (String::new(), 0);
        let panic = catch_unwind(AssertUnwindSafe(|| {
            let namespace = Namespace::create("panics");
            let sleeping = namespace.start("sleep", &["60"]);
            (name, process) = (namespace.name().to_owned(), sleeping.id());
            until("it runs in there", || {
                let inside = String::from_utf8(run("ip", &["netns", "pids", &name]).stdout).expect("numbers");
                inside.contains(&process.to_string())
            });
            // It outlives the value, and ends with the namespace.
            std::mem::forget(sleeping);
            panic!("as a test that fails");
        }));
        assert!(panic.is_err());
        assert!(!Path::new("/run/netns").join(&name).exists(), "{name}");
        until("its process is dead", || {
            let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
            status.is_empty() || status.contains("State:\tZ")
        });
    });
}

#[test]
fn what_a_killed_test_left_is_swept_away_by_the_next() {
    with_root(|| {
        let this = std::env::current_exe().expect("this test");
        let mut child = Command::new(this);
        child.args(["--exact", "child_that_is_killed", "--ignored", "--nocapture"]).stdout(Stdio::null());
        let mut child = child.spawn().expect("it starts");
        let left = || {
            let names = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
            let mut names = names.map(|it| it.file_name().to_string_lossy().into_owned());
            names.find(|it| it.starts_with(&format!("sw{}-", child.id())))
        };
        until("it has made one", || left().is_some());
        let name = left().expect("seen just now");
        child.kill().expect("it is a child");
        child.wait().expect("it is a child");
        let again = Namespace::create("next");
        assert!(!Path::new("/run/netns").join(&name).exists(), "{name} is left beside {}", again.name());
    });
}

#[test]
#[ignore = "run by another test, which kills it"]
fn child_that_is_killed() {
    let _namespace = Namespace::create("left");
    loop {
        std::thread::park();
    }
}

#[test]
fn a_process_in_a_namespace_dies_with_its_parent() {
    with_root(|| {
        let namespace = Namespace::create("parent");
        let listening: SocketAddr = "127.0.0.1:80".parse().expect("an address");
        let mut dies = namespace.start("sleep", &["60"]);
        assert!(dies.is_running());
        assert!(!dies.stop().success(), "by a signal");
        let web = namespace.run(|| Web::start_at("own", listening));
        assert_eq!(namespace.curl("http://127.0.0.1/").as_deref(), Ok("own"));
        assert_eq!(web.at, listening);
        // A thread that starts a process and ends takes it along.
        let process = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let sleeping = namespace.start("sleep", &["60"]);
                let id = sleeping.id();
                until("it is asked to die with this thread", || {
                    std::fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|it| it == "sleep\n")
                });
                std::mem::forget(sleeping);
                id
            });
            thread.join().expect("it does not panic")
        });
        until("it is dead", || {
            let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
            status.is_empty() || status.contains("State:\tZ")
        });
    });
}

fn run(program: &str, arguments: &[&str]) -> std::process::Output {
    Command::new(program).args(arguments).output().expect("it starts")
}
