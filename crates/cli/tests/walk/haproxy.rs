//! `seaway run` with HAProxy as its data plane.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream},
    os::unix::net::UnixStream,
    process::Output,
    sync::Arc,
};

use nix::sys::signal::Signal;

use crate::{
    backends::Backend,
    harness::{Folder, PATIENCE, Seaway, Setup, own_address, run, stderr, until},
};

const PORT: u16 = 8080;

fn shop(backends: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: shop\n  annotations:\n    seaway.dev/backends: {backends:?}\nspec:\n  type: LoadBalancer\n  ports: [{{port: {PORT}}}]\n"
    )
}

fn setup(folder: &Arc<Folder>, ip: std::net::Ipv4Addr) -> Setup {
    let files = folder.0.path().join("haproxy");
    Setup::again(folder.clone(), ip)
        .config(&format!("dataPlane: {{driver: haproxy, haproxy: {{folder: {}}}}}\n", files.display()))
}

/// The id of HAProxy's process that reads the configuration and starts the others; none, while it does not run.
fn master(seaway: &Seaway) -> Option<i32> {
    let mut stream = UnixStream::connect(seaway.folder.0.path().join("haproxy/master.sock")).ok()?;
    stream.write_all(b"show proc\n").ok()?;
    stream.shutdown(Shutdown::Write).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.lines().find(|it| it.contains("master"))?.split_whitespace().next()?.parse().ok()
}

/// Whether a new connection leads to that member.
fn answers(seaway: &Seaway, name: &str) -> bool {
    let told = TcpStream::connect(seaway.at(PORT)).and_then(|mut stream| {
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut told = vec![0; name.len()];
        stream.read_exact(&mut told).map(|()| told)
    });
    told.is_ok_and(|it| it == name.as_bytes())
}

#[test]
fn services_of_a_folder_are_served_by_haproxy_through_changes_deaths_and_restarts() {
    let (alice, bob) = (Backend::start("alice"), Backend::start("bob"));
    let folder = Arc::new(Folder::new());
    folder.write("shop.yaml", &shop(&alice.at.to_string()));
    let ip = own_address();
    let seaway = setup(&folder, ip).start();
    until("HAProxy serves", || answers(&seaway, "alice"));
    assert!(seaway.log().contains("HAProxy started"), "{}", seaway.log());

    folder.write("shop.yaml", &shop(&bob.at.to_string()));
    until("the other member serves", || answers(&seaway, "bob"));

    // What HAProxy counted is shown by the names of the native data plane.
    let counted = |name: &str| {
        let (_, text) = seaway.get("/metrics").unwrap_or_default();
        let of = text.lines().find(|it| it.starts_with(name) && it.contains("protocol=\"tcp\""));
        of.and_then(|it| it.rsplit(' ').next()?.parse::<f64>().ok()).unwrap_or_default()
    };
    until("its connections are counted", || counted("seaway_connections_total") >= 2.0);
    assert!(seaway.member(bob.at)["sessions"]["total"].as_u64() >= Some(1), "{}", seaway.state());

    let first = master(&seaway).expect("HAProxy runs");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(first), Signal::SIGKILL).expect("it is ours");
    // Its worker may serve for a moment yet.
    until("HAProxy was started again", || master(&seaway).is_some_and(|it| it != first));
    until("it serves", || answers(&seaway, "bob"));

    // A second process in the same folder harms nothing, nor does one that would take over.
    let first = master(&seaway).expect("HAProxy runs");
    let mut second = setup(&folder, own_address());
    second.folder = Arc::new(Folder::new());
    let second = second.write("shop.yaml", &shop(&alice.at.to_string())).start();
    until("it is said", || second.log().contains("is used by another running process of Seaway"));
    assert!(second.stop().success());
    assert_eq!(master(&seaway), Some(first));
    assert!(answers(&seaway, "bob"));
    let again = taken_over(&seaway);
    assert!(!again.status.success());
    assert!(stderr(&again).contains("--take-over passes sockets of Seaway"), "{}", stderr(&again));

    // Killed, Seaway leaves HAProxy behind, which serves on; the next Seaway replaces it.
    let left = master(&seaway).expect("HAProxy runs");
    seaway.signal(Signal::SIGKILL);
    drop(seaway);
    assert!(nix::sys::signal::kill(nix::unistd::Pid::from_raw(left), None).is_ok(), "HAProxy serves on");
    folder.write("shop.yaml", &shop(&alice.at.to_string()));
    let seaway = setup(&folder, ip).start();
    until("the next one serves", || answers(&seaway, "alice"));
    until("another HAProxy serves", || master(&seaway).is_some_and(|it| it != left));

    let at = seaway.at(PORT);
    assert!(seaway.stop().success());
    assert!(TcpStream::connect(at).is_err(), "HAProxy has ended");

    // A second signal does not wait for connections, and leaves no HAProxy behind.
    let mut seaway = setup(&folder, ip).start();
    until("it serves", || answers(&seaway, "alice"));
    let _open = TcpStream::connect(at).expect("it is served");
    let last = master(&seaway).expect("HAProxy runs");
    seaway.signal(Signal::SIGINT);
    until("no connection is taken", || TcpStream::connect(at).is_err());
    assert!(nix::sys::signal::kill(nix::unistd::Pid::from_raw(last), None).is_ok(), "it waits for one");
    seaway.signal(Signal::SIGINT);
    assert!(!seaway.wait().success());
    until("HAProxy has ended", || nix::sys::signal::kill(nix::unistd::Pid::from_raw(last), None).is_err());
}

fn taken_over(seaway: &Seaway) -> Output {
    let folder = &seaway.folder;
    let (config, state, manifests) =
        (folder.0.path().join("seaway.yaml"), folder.state(), folder.manifests());
    run(&[
        "run",
        "--take-over",
        "--config",
        config.to_str().expect("a plain path"),
        "--state-dir",
        state.to_str().expect("a plain path"),
        manifests.to_str().expect("a plain path"),
    ])
}
