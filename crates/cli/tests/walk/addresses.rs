//! Addresses: pools, requests, sharing, restarts. Pools lie within 127.0.0.0/8, which is local without privilege.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use seaway_testkit::stopwatch::{Stopwatch, median};

use crate::{
    backends::{Backend, Talk, Web, manifest},
    harness::{Seaway, Setup, own_address, own_addresses, path, run, stdout, until},
};

fn pool(name: &str, range: &str, more: &str) -> String {
    format!(
        "apiVersion: seaway.dev/v1alpha1\nkind: AddressPool\nmetadata: {{name: {name}}}\nspec:\n  addresses: [\"{range}\"]\n{more}"
    )
}

fn at(ip: Ipv4Addr, port: u16) -> SocketAddr {
    (ip, port).into()
}

#[test]
fn an_address_of_a_pool_is_served_and_kept_over_a_restart() {
    let backend = Backend::start("a");
    let [first, last] = own_addresses();
    let setup = Setup::new()
        .write("pool.yaml", &pool("local", &format!("{first}-{last}"), ""))
        .write("b.yaml", &manifest("b", 8080, &[], &[backend.at]));
    let (folder, ip) = (setup.folder.clone(), setup.ip);
    let seaway = setup.start();
    assert!(Talk::open(at(first, 8080)).is_ok());
    // Older by name, and yet it does not get the address that is taken.
    folder.write("a.yaml", &manifest("a", 8080, &[], &[backend.at]));
    until("the second one is served", || Talk::open(at(last, 8080)).is_ok());
    assert!(seaway.stop().success());
    folder.remove("a.yaml");
    folder.write("a.yaml", &manifest("a", 8081, &[], &[backend.at]));
    let again = Setup::again(folder, ip).start();
    assert!(Talk::open(at(first, 8080)).is_ok() && Talk::open(at(last, 8081)).is_ok(), "{}", again.status());
}

#[test]
fn a_full_pool_is_told_within_a_second_most_times_and_served_as_soon_as_something_is_free() {
    let backend = Backend::start("a");
    let only = own_address();
    let seaway = Setup::new()
        .write("pool.yaml", &pool("local", &only.to_string(), ""))
        .write("a.yaml", &manifest("a", 8080, &[], &[backend.at]))
        .start();
    let is_told = |seaway: &Seaway| {
        seaway.problems().iter().any(|it| it.0 == "PoolExhausted" && it.2.contains("b.yaml"))
    };
    let mut took = Vec::new();
    for turn in 0..5 {
        if turn > 0 {
            seaway.folder.remove("b.yaml");
            until("nothing is wrong", || !is_told(&seaway));
        }
        let watch = Stopwatch::of(seaway.child.id());
        seaway.folder.write("b.yaml", &manifest("b", 8081, &[], &[backend.at]));
        until("it is told", || is_told(&seaway));
        took.push(watch.elapsed());
    }
    assert!(median(took.clone()) <= Duration::from_secs(1), "{took:?}");
    seaway.folder.remove("a.yaml");
    until("it is served", || Talk::open(at(only, 8081)).is_ok());
    assert!(Talk::open(at(only, 8080)).is_err());
}

#[test]
fn a_requested_address_is_given_and_one_outside_of_the_pools_is_told() {
    let backend = Backend::start("a");
    let [first, _, wanted] = own_addresses();
    let seaway = Setup::new()
        .write("pool.yaml", &pool("local", &format!("{first}-{wanted}"), ""))
        .write(
            "a.yaml",
            &manifest("a", 8080, &[("metallb.io/loadBalancerIPs", &wanted.to_string())], &[backend.at]),
        )
        .write("b.yaml", &manifest("b", 8080, &[("seaway.dev/address", "192.0.2.1")], &[backend.at]))
        .start();
    assert!(Talk::open(at(wanted, 8080)).is_ok());
    until("the other is told", || {
        seaway.problems().iter().any(|it| it.0 == "AddressOutsidePools" && it.2.contains("b.yaml:7:"))
    });
}

#[test]
fn two_services_share_an_address_by_key_and_their_ports_are_distinct() {
    let (one, two) = (Backend::start("one"), Backend::start("two"));
    let only = own_address();
    let share = [("seaway.dev/share", "key")];
    let seaway = Setup::new()
        .write("pool.yaml", &pool("local", &only.to_string(), ""))
        .write("a.yaml", &manifest("a", 8080, &share, &[one.at]))
        .write("b.yaml", &manifest("b", 8081, &share, &[two.at]))
        .start();
    assert_eq!(Talk::open(at(only, 8080)).expect("served").with, "one");
    assert_eq!(Talk::open(at(only, 8081)).expect("served").with, "two");
    assert!(seaway.problems().is_empty(), "{:?}", seaway.problems());
}

#[test]
fn a_port_that_another_process_has_spoils_that_listener_alone_and_is_tried_again() {
    let backend = Backend::start("a");
    let setup = Setup::new();
    let foreign = TcpListener::bind((setup.ip, 8080)).expect("free");
    let two_ports = manifest("a", 8080, &[], &[backend.at])
        .replace(
            "ports:\n  - {name: main, port: 8080, protocol: TCP}",
            "ports:\n  - {name: main, port: 8080}\n  - {name: other, port: 8081}",
        )
        .replace(
            "ports:\n- {name: main,",
            &format!("ports:\n- {{name: other, port: {}}}\n- {{name: main,", backend.at.port()),
        );
    let seaway = setup.write("a.yaml", &two_ports).start();
    // Root's processes have rights that Seaway has given up, and are not for it to look into.
    let holder = match nix::unistd::geteuid().is_root() {
        true => "taken by a process of user 0".to_owned(),
        false => format!("(process {})", std::process::id()),
    };
    until("it is told", || {
        seaway
            .problems()
            .iter()
            .any(|it| it.0 == "PortInUse" && it.1.contains("8080") && it.1.contains(&holder))
    });
    assert!(Talk::open(seaway.at(8081)).is_ok(), "{:?}", seaway.problems());
    drop(foreign);
    until("it is served", || Talk::open(seaway.at(8080)).is_ok());
    until("nothing is wrong", || seaway.problems().is_empty());
}

#[test]
fn an_address_of_the_configuration_that_no_interface_has_is_told_and_the_others_are_served() {
    let backend = Backend::start("a");
    let seaway = Setup::new()
        .address("192.0.2.77".parse().expect("an address"))
        .write("a.yaml", &manifest("a", 8080, &[], &[backend.at]))
        .start();
    assert!(Talk::open(seaway.at(8080)).is_ok());
    let told: Vec<_> = seaway.problems().into_iter().filter(|it| it.0 == "AddressMissing").collect();
    assert_eq!(told.len(), 1, "{:?}", seaway.problems());
    assert!(told[0].1.contains("no interface of this machine has 192.0.2.77"), "{told:?}");
    assert!(seaway.log().contains("no interface of this machine has 192.0.2.77"), "{}", seaway.log());
    let config = seaway.folder.0.path().join("seaway.yaml");
    let checked = run(&["config", "--check", path(&config)]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(stdout(&checked).contains("no interface of this machine has 192.0.2.77"), "{}", stdout(&checked));
}

#[test]
fn a_check_beside_a_running_process_blames_the_service_that_came_later() {
    let backend = Backend::start("a");
    let seaway = Setup::new().write("web.yaml", &manifest("web", 8080, &[], &[backend.at])).start();
    seaway.folder.write("broken.yaml", &manifest("broken", 8080, &[], &[backend.at]));
    let is_told = |it: &(String, String, String)| it.0 == "PortConflict" && it.2.contains("broken.yaml");
    until("the later one is told", || seaway.problems().iter().any(is_told));
    until("it is written down", || {
        seaway.status()["services"]["Service default/web"]["serving"][0]["port"] == 8080
    });
    let config = seaway.folder.0.path().join("seaway.yaml");
    let (manifests, state) = (seaway.folder.manifests(), seaway.folder.state());
    let check = |more: &[&str]| {
        let arguments = [&["check", path(&manifests), "--config", path(&config)], more].concat();
        stdout(&run(&arguments))
    };
    let beside = check(&["--state-dir", path(&state)]);
    assert!(beside.contains("is already used by Service default/web"), "{beside}");
    // Without it nobody knows; and it says by which rule this one was chosen.
    let alone = check(&["--state-dir", path(&manifests)]);
    assert!(alone.contains("is already used by Service default/broken"), "{alone}");
    assert!(alone.contains("when Seaway starts, the older Service gets it"), "{alone}");
}

#[test]
fn one_address_of_the_command_line_is_the_only_one_also_of_the_front_door() {
    let (web, other) = (Web::start("web"), own_address());
    let text = format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  annotations: {{seaway.dev/backends: \"{}\", \
         seaway.dev/front-door: \"true\"}}\nspec: {{type: LoadBalancer, ports: [{{port: 8080}}]}}\n",
        web.at
    );
    let setup =
        Setup::new().address(other.into()).config("frontDoor: {port: 8081}\n").write("web.yaml", &text);
    let only = setup.ip.to_string();
    let seaway = setup.argument("--address").argument(&only).start();
    for port in [8080, 8081] {
        let at = |ip: Ipv4Addr| TcpStream::connect((ip, port));
        until("it is served", || at(seaway.ip).is_ok());
        assert!(at(other).is_err(), "{port}");
    }
}

#[test]
fn without_addresses_of_its_own_the_log_says_which_are_served_and_how_to_choose() {
    let seaway = Setup::new().finding_addresses().start();
    let says = |part: &str| seaway.log().contains(part);
    assert!(says(
        "loopback is served only where there is no other address, link-local never (to choose: --address IP"
    ));
}
