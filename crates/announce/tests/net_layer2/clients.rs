//! Who asks: datagrams to an address each millisecond, and ARP by hand.

use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::{
    ifaddrs::getifaddrs,
    sys::socket::{LinkAddr, MsgFlags, bind, recv, send},
};
use seaway_testkit::topology::{Namespace, until};
use socket2::{Domain, Protocol, Socket, Type};
use std::os::fd::AsRawFd;

use crate::host::ECHO;

/// Asks an address each millisecond, from its start until it is dropped.
pub(crate) struct Pinger {
    asked: Arc<Mutex<Vec<Question>>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone)]
struct Question {
    at: Instant,
    /// When and by whom it was answered.
    answer: Option<(Instant, String)>,
}

impl Pinger {
    pub(crate) fn start(from: &Namespace, to: IpAddr) -> Pinger {
        let wildcard: SocketAddr = if to.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
        let socket = from.run(|| UdpSocket::bind(wildcard)).expect("a port");
        socket.set_nonblocking(true).expect("non-blocking");
        let (asked, ended) = (Arc::<Mutex<Vec<Question>>>::default(), Arc::<AtomicBool>::default());
        let (all, end) = (asked.clone(), ended.clone());
        let thread = thread::spawn(move || {
            let mut next = Instant::now();
            let mut buffer = [0; 64];
            while !end.load(Ordering::Relaxed) {
                let number = {
                    let mut all = all.lock().expect("no panic");
                    all.push(Question { at: Instant::now(), answer: None });
                    all.len() - 1
                };
                let _ = socket.send_to(&u64::try_from(number).expect("small").to_be_bytes(), (to, ECHO));
                next += Duration::from_millis(1);
                loop {
                    loop {
                        match socket.recv(&mut buffer) {
                            Ok(length) if length > 8 => {
                                let number = u64::from_be_bytes(buffer[..8].try_into().expect("eight"));
                                let name = String::from_utf8_lossy(&buffer[8..length]).into_owned();
                                let mut all = all.lock().expect("no panic");
                                all[usize::try_from(number).expect("ours")].answer =
                                    Some((Instant::now(), name));
                            }
                            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                            _ => {}
                        }
                    }
                    let now = Instant::now();
                    if now >= next {
                        break;
                    }
                    thread::park_timeout((next - now).min(Duration::from_micros(500)));
                }
                // A machine that was busy does not have it catch up.
                next = next.max(Instant::now() - Duration::from_millis(1));
            }
        });
        Pinger { asked, ended, thread: Some(thread) }
    }

    fn all(&self) -> Vec<Question> {
        self.asked.lock().expect("no panic").clone()
    }

    /// Who answered last.
    pub(crate) fn answered_by(&self) -> Option<String> {
        self.all().iter().rev().find_map(|it| it.answer.as_ref()).map(|(_, name)| name.clone())
    }

    pub(crate) fn until_answered(&self) -> String {
        self.until_answered_since(Instant::now())
    }

    /// Who answers a question that was asked since then.
    pub(crate) fn until_answered_since(&self, since: Instant) -> String {
        let mut name = None;
        until("the address answers", || {
            let all = self.all();
            let answer = all.iter().rev().take_while(|it| it.at >= since).find_map(|it| it.answer.clone());
            name = answer.map(|(_, name)| name);
            name.is_some()
        });
        name.expect("it was found")
    }

    /// From the first question since then that was lost to the first behind it that was answered by another.
    pub(crate) fn outage(&self, since: Instant, owner: &str) -> Duration {
        until("another host answers", || self.answered_by().is_some_and(|it| it != owner));
        let all = self.all();
        let lost = all.iter().position(|it| it.at >= since && it.answer.is_none());
        let good = all
            .iter()
            .position(|it| it.at >= since && it.answer.as_ref().is_some_and(|(_, name)| name != owner))
            .expect("another answers");
        lost.filter(|lost| *lost < good).map_or(Duration::ZERO, |lost| all[good].at - all[lost].at)
    }

    /// How many questions that were asked since then have no answer, but for those of the last moment.
    pub(crate) fn lost(&self, since: Instant) -> usize {
        let all = self.all();
        let end = Instant::now() - Duration::from_millis(200);
        all.iter().filter(|it| it.at >= since && it.at < end && it.answer.is_none()).count()
    }
}

impl Drop for Pinger {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// All frames of ARP, or of IPv6, that one interface hears; and by which others are sent.
pub(crate) struct Tap {
    socket: Socket,
}

pub(crate) const ARP: u16 = 0x0806;
pub(crate) const IPV6: u16 = 0x86dd;

impl Tap {
    pub(crate) fn open(on: &Namespace, kind: u16) -> Tap {
        on.run(|| {
            let protocol = Protocol::from(i32::from(kind.to_be()));
            let socket = Socket::new(Domain::PACKET, Type::RAW, Some(protocol)).expect("root may");
            let link: LinkAddr = getifaddrs()
                .expect("interfaces")
                .filter(|it| it.interface_name == "eth0")
                .find_map(|it| it.address.and_then(|it| it.as_link_addr().copied()))
                .expect("eth0");
            bind(socket.as_raw_fd(), &link).expect("bound");
            socket.set_nonblocking(true).expect("non-blocking");
            Tap { socket }
        })
    }

    pub(crate) fn send(&self, frame: &[u8]) {
        send(self.socket.as_raw_fd(), frame, MsgFlags::empty()).expect("sent");
    }

    /// All that came since the last call.
    pub(crate) fn heard(&self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut buffer = [0; 2_000];
        while let Ok(length) = recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            all.push(buffer[..length].to_vec());
        }
        all
    }
}

/// A frame of ARP, as it stands on the wire.
pub(crate) fn arp(
    to: [u8; 6],
    operation: u8,
    (mac, sender): ([u8; 6], Ipv4Addr),
    target: Ipv4Addr,
) -> Vec<u8> {
    [
        &to[..],
        &mac,
        &[8, 6, 0, 1, 8, 0, 6, 4, 0, operation],
        &mac,
        &sender.octets(),
        &[0; 6],
        &target.octets(),
    ]
    .concat()
}

/// Whose answers these are, of those for the address: the MACs.
pub(crate) fn answers(frames: &[Vec<u8>], address: Ipv4Addr, to: [u8; 6]) -> Vec<[u8; 6]> {
    let answers = frames.iter().filter(|it| it.len() >= 42 && it[20..22] == [0, 2] && it[..6] == to);
    answers
        .filter(|it| it[28..32] == address.octets())
        .map(|it| it[22..28].try_into().expect("six"))
        .collect()
}

/// Who answered, and when.
type Told = Arc<Mutex<Vec<(Instant, [u8; 6])>>>;

/// Asks by ARP each ten milliseconds until it is dropped.
pub(crate) struct Asker {
    told: Told,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Asker {
    pub(crate) fn start(on: &Namespace, own: Ipv4Addr, address: Ipv4Addr) -> Asker {
        let (tap, mac) = (Tap::open(on, ARP), crate::lan::mac(on));
        let (told, ended) = (Told::default(), Arc::<AtomicBool>::default());
        let (all, end) = (told.clone(), ended.clone());
        let thread = thread::spawn(move || {
            let request = arp([0xff; 6], 1, (mac, own), address);
            while !end.load(Ordering::Relaxed) {
                tap.send(&request);
                thread::park_timeout(Duration::from_millis(10));
                let found = answers(&tap.heard(), address, mac);
                let now = Instant::now();
                all.lock().expect("no panic").extend(found.into_iter().map(|it| (now, it)));
            }
        });
        Asker { told, ended, thread: Some(thread) }
    }

    pub(crate) fn told(&self) -> Vec<(Instant, [u8; 6])> {
        self.told.lock().expect("no panic").clone()
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
