//! An address of a pool on a machine where Seaway may do less than it should.
//!
//! They need root. Elsewhere they say that they were skipped; with `CI=true` or `SEAWAY_NET_TESTS=required` they fail instead.

use std::{
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket},
    process::Command,
    sync::Arc,
    thread,
    time::Duration,
};

use seaway_announce::Steering;
use seaway_drivers::presence::Presence;
use seaway_engine::{Context, Driver, Report};
use seaway_model::{Desired, Fact, LbKey, Reason, Unit, unit::HostAddresses};
use seaway_proxy::{Proxy, Settings};
use seaway_testkit::{
    balancing::{self, owner},
    conformance::{each_walk, passes, wanders},
    topology::in_a_network_of_its_own,
};

const IP: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7));
const HOST: &str = "edge-1";
const KEY: LbKey = LbKey::Whole;

/// Works off that the address is to be there.
fn settle(presence: &Presence) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let wanted = HostAddresses { addresses: [(IP, [owner()].into())].into(), ..HostAddresses::default() };
    let (unit, desired) = (Unit::HostAddresses(HOST.into()), Desired::HostAddresses(wanted));
    runtime.block_on(async {
        let mut observed = presence.observe(&Context::default(), &unit, &desired).await.expect("is observed");
        for step in presence.steps(&desired, &observed) {
            presence.apply(&Context::default(), &unit, &step, &mut observed).await.expect("is done");
        }
        presence.conclude(&unit, &desired, &observed)
    })
}

#[test]
fn addresses_on_lo_pass_the_suite_of_all_drivers() {
    in_a_network_of_its_own(|| {
        let present = |ips: &[&str]| {
            let addresses = ips.iter().map(|it| (it.parse().expect("an address"), [owner()].into()));
            Desired::HostAddresses(HostAddresses {
                addresses: addresses.collect(),
                ..HostAddresses::default()
            })
        };
        let wanted = [
            present(&["203.0.113.7"]),
            present(&["203.0.113.7", "203.0.113.8", "2001:db8::7"]),
            present(&["2001:db8::8", "203.0.113.8"]),
        ];
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let presence = Presence::new(HOST.into(), Vec::new(), []);
        runtime.block_on(passes(&presence, &Unit::HostAddresses(HOST.into()), &wanted));
        for ip in ["203.0.113.7", "203.0.113.8", "2001:db8::7", "2001:db8::8"] {
            let ip: IpAddr = ip.parse().expect("an address");
            assert!(UdpSocket::bind((ip, 0)).is_err(), "{ip} is left");
        }
    });
}

/// Whatever is cut off and started again, at each rest the kernel has the addresses that are desired, and no other one of ours.
#[test]
fn addresses_on_lo_survive_cuts_and_restarts_at_any_step() {
    in_a_network_of_its_own(|| {
        let ips: [IpAddr; 3] =
            ["203.0.113.7", "203.0.113.8", "2001:db8::7"].map(|it| it.parse().expect("an address"));
        let present = |which: &[usize]| {
            let addresses = which.iter().map(|it| (ips[*it], [owner()].into())).collect();
            Desired::HostAddresses(HostAddresses { addresses, ..HostAddresses::default() })
        };
        let wanted = [&[0][..], &[0, 1], &[1, 2], &[0, 1, 2], &[]].map(present);
        each_walk(24, wanted.len(), async |turns| {
            let start = async || Presence::new(HOST.into(), Vec::new(), []);
            let there = async |_: &Presence, desired: &Desired| {
                for ip in ips {
                    let wanted =
                        matches!(desired, Desired::HostAddresses(it) if it.addresses.contains_key(&ip));
                    assert_eq!(UdpSocket::bind((ip, 0)).is_ok(), wanted, "{ip}");
                }
            };
            wanders(start, &Unit::HostAddresses(HOST.into()), &wanted, &turns, there).await;
        });
    });
}

#[test]
fn an_address_that_may_not_be_guarded_is_served_and_a_problem_says_so() {
    in_a_network_of_its_own(|| {
        // A predecessor had the right to put it there.
        let before = settle(&Presence::new(HOST.into(), Vec::new(), []));
        assert_eq!(before.problems, []);
        let this = std::env::current_exe().expect("this test");
        let mut child = Command::new("setpriv");
        child.args(["--bounding-set=-net_admin", "--inh-caps=-all"]).arg(this);
        child.args(["--exact", "child_that_may_not_guard", "--ignored", "--nocapture"]);
        let output = child.output().expect("setpriv of util-linux");
        let told = [output.stdout, output.stderr].concat();
        let told = String::from_utf8_lossy(&told);
        assert!(output.status.success() && told.contains("1 passed"), "{told}");
    });
}

#[test]
#[ignore = "run by another test, as a process that may not change the network"]
fn child_that_may_not_guard() {
    let steering = Arc::new(Steering::new(|port| port == 22));
    let proxy = Proxy::start(Settings { workers: 1, pin: false }).expect("a data plane");
    proxy.steer_by(steering.clone());
    let concluded = settle(&Presence::new(HOST.into(), Vec::new(), []).guarded(steering));
    let [(whose, problem)] = &concluded.problems[..] else { panic!("{:?}", concluded.problems) };
    assert_eq!((whose, problem.reason), (&owner(), Reason::NotPermitted));
    let told = format!("at {IP}, ports of this machine that belong to no Service are reachable, too");
    assert!(problem.message.starts_with(&told) && problem.fix.contains("NET_ADMIN"), "{problem}");
    assert!(concluded.again.is_some(), "it is tried again");
    let holds = |fact: &Fact| matches!(fact, Fact::Host(it) if it.holds.contains(&IP));
    assert!(concluded.facts.iter().any(holds), "it stays: {:?}", concluded.facts);

    let member = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let at = member.local_addr().expect("is bound");
    thread::spawn(move || member.accept().map(|(mut client, _)| client.write_all(b"served")));
    proxy.put_pool(&KEY, Arc::new(balancing::pool(&[at])));
    proxy.open_at_pool_address(&KEY, IP, Arc::new(balancing::listener(8_080))).expect("is opened");
    let mut client = TcpStream::connect((IP, 8_080)).expect("it listens");
    client.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    let mut said = [0; 6];
    client.read_exact(&mut said).expect("a member answers");
    assert_eq!(&said, b"served");
}
