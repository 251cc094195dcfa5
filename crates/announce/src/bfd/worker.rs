//! The thread: sockets in, sessions, sockets out.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    net::IpAddr,
    os::fd::AsFd,
    sync::Arc,
    time::{Duration, SystemTime},
};

use aws_lc_rs::hmac;
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    time::{ClockId, clock_gettime},
};
use seaway_watchdog::Heartbeat;

use super::{
    detector::{DetectorShared, ShutdownMode},
    packet::Packet,
    session::{Moment, Session},
    settings::{BfdState, BfdStatus, Diagnostic, Key, Profile},
    sockets::{MOST_HOPS, PacketMetadata, Receiver, Sender, SocketKind, scope},
};
use crate::layer2::locked;

/// Packets of one socket before others have a turn.
const PACKETS: usize = 512;
/// Until a socket that could not be opened is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// The process before this one lets its ports go in a moment: within a detection time, no peer notices.
const RETRY_AT_FIRST: Duration = Duration::from_millis(5);
const AT_FIRST: Duration = Duration::from_secs(15);
/// Longer than any packet without authentication.
const BUFFER: usize = 128;
/// That a session ended on purpose is said so often.
const FAREWELLS: usize = 3;

type ChangeCallback = Box<dyn FnMut(&BTreeMap<Key, BfdStatus>) + Send>;

pub(super) struct Worker {
    shared: Arc<DetectorShared>,
    changed: ChangeCallback,
    heartbeat: Heartbeat,
    began: Moment,
    seed: hmac::Key,
    entries: BTreeMap<Key, Entry>,
    receivers: BTreeMap<SocketKind, Receiver>,
    /// Why a port could not be opened.
    troubles: BTreeMap<SocketKind, String>,
    look_again: Moment,
    buffer: Vec<u8>,
}

struct Entry {
    session: Session,
    profile: Profile,
    sender: Option<Sender>,
    /// Why it cannot send.
    trouble: Option<String>,
    told: BfdStatus,
}

impl Worker {
    pub(super) fn new(shared: Arc<DetectorShared>, changed: ChangeCallback, heartbeat: Heartbeat) -> Worker {
        Worker {
            shared,
            changed,
            heartbeat,
            began: now(),
            seed: seed(),
            entries: BTreeMap::new(),
            receivers: BTreeMap::new(),
            troubles: BTreeMap::new(),
            look_again: Moment::MAX,
            buffer: vec![0; BUFFER],
        }
    }

    pub(super) fn run(mut self) {
        self.heartbeat.enter_thread();
        while self.shared.ended() == ShutdownMode::No {
            self.heartbeat.beat();
            self.turn();
            self.wait();
        }
        if self.shared.ended() == ShutdownMode::Told {
            self.entries.values_mut().for_each(Entry::stop);
        }
    }

    fn turn(&mut self) {
        let wanted = locked(&self.shared.wanted).take();
        let time = now();
        if let Some(wanted) = wanted {
            self.set_desired(wanted, time);
        }
        if time >= self.look_again {
            self.open_sockets(time);
        }
        // Before anything expires: what came while this thread had no processor was not late.
        self.receive_packets();
        let time = now();
        for entry in self.entries.values_mut() {
            if let Some(packet) = entry.session.tick(time) {
                entry.send(&packet);
            }
        }
        self.report_changes();
    }

    fn wait(&self) {
        let time = now();
        let next = self.entries.values().map(|it| it.session.next()).min().unwrap_or(Moment::MAX);
        let pause = next.min(self.look_again).saturating_sub(time);
        let pause = pause.min(Duration::from_secs(1)).saturating_add(Duration::from_micros(999));
        let timeout = PollTimeout::try_from(pause).unwrap_or(PollTimeout::from(100_u8));
        let own = std::iter::once(self.shared.wake.as_fd());
        let all = own.chain(self.receivers.values().map(AsFd::as_fd));
        let mut polled: Vec<_> = all.map(|it| PollFd::new(it, PollFlags::POLLIN)).collect();
        // Interrupted or not, the turn looks at everything.
        let _ = poll(&mut polled, timeout);
        let _ = self.shared.wake.read();
    }

    fn set_desired(&mut self, wanted: BTreeMap<Key, Profile>, time: Moment) {
        for (key, entry) in &mut self.entries {
            if !wanted.contains_key(key) {
                entry.stop();
            }
        }
        self.entries.retain(|key, _| wanted.contains_key(key));
        for (key, profile) in wanted {
            match self.entries.get_mut(&key) {
                Some(entry) if entry.profile == profile => {}
                Some(entry) => {
                    entry.profile = profile;
                    entry.session.set_profile(profile, time);
                }
                None => {
                    let mine = self.discriminator(&key);
                    self.entries.insert(key, Entry::new(profile, mine, time));
                }
            }
        }
        let kinds: Vec<SocketKind> = self.entries.keys().map(SocketKind::of).collect();
        self.receivers.retain(|kind, _| kinds.contains(kind));
        self.troubles.retain(|kind, _| kinds.contains(kind));
        self.look_again = time;
    }

    /// The same for each process of this machine until it boots again, so that one goes on with the session of another; unknown
    /// to others, and of no other session.
    fn discriminator(&self, key: &Key) -> u32 {
        let taken = |number| self.entries.values().any(|it| it.session.mine() == number);
        let number = |round: u32| {
            let of = format!("{round} {key:?}");
            let tag = hmac::sign(&self.seed, of.as_bytes());
            tag.as_ref().iter().take(4).fold(0_u32, |all, byte| all << 8 | u32::from(*byte))
        };
        (0..=u32::MAX).map(number).find(|it| *it != 0 && !taken(*it)).unwrap_or(1)
    }

    fn open_sockets(&mut self, time: Moment) {
        let is_first = time < self.began.saturating_add(AT_FIRST);
        let retry = time.saturating_add(if is_first { RETRY_AT_FIRST } else { RETRY });
        self.look_again = Moment::MAX;
        let kinds: BTreeSet<SocketKind> = self.entries.keys().map(SocketKind::of).collect();
        for kind in kinds {
            let peers: BTreeSet<IpAddr> =
                self.entries.keys().filter(|key| SocketKind::of(key) == kind).map(|key| key.peer).collect();
            let peers: Vec<IpAddr> = peers.into_iter().collect();
            // One that cannot be changed is opened again.
            if self.receivers.get(&kind).is_some_and(|it| it.set_peers(kind, &peers).is_ok()) {
                continue;
            }
            self.receivers.remove(&kind);
            match Receiver::open(kind, &peers) {
                Ok(receiver) => {
                    self.receivers.insert(kind, receiver);
                    self.troubles.remove(&kind);
                }
                Err(error) => {
                    self.look_again = self.look_again.min(retry);
                    self.troubles.insert(kind, unopened(kind, &error));
                }
            }
        }
        for (key, entry) in &mut self.entries {
            if entry.sender.is_some() {
                continue;
            }
            match Sender::open(key) {
                Ok(sender) => {
                    entry.sender = Some(sender);
                    entry.trouble = None;
                }
                Err(error) => {
                    self.look_again = self.look_again.min(time.saturating_add(RETRY));
                    let from = key.local.map(|it| format!(" from {it}")).unwrap_or_default();
                    let by =
                        key.interface.as_deref().map(|it| format!(" by interface {it}")).unwrap_or_default();
                    entry.trouble = Some(format!("BFD cannot send to {}{from}{by}: {error}", key.peer));
                }
            }
        }
    }

    fn receive_packets(&mut self) {
        for (kind, receiver) in &self.receivers {
            for _ in 0..PACKETS {
                let Some((bytes, arrival)) = receiver.receive(&mut self.buffer) else { break };
                let Some(packet) = Packet::read(bytes) else { continue };
                let time = now();
                let mut all = self.entries.iter_mut();
                let found = all.find(|(key, entry)| is_for(key, entry, *kind, &packet, &arrival));
                if let Some((_, entry)) = found
                    && let Some(answer) = entry.session.receive(&packet, time)
                {
                    entry.send(&answer);
                }
            }
        }
    }

    fn report_changes(&mut self) {
        let mut is_other = false;
        for (key, entry) in &mut self.entries {
            let trouble = entry.trouble.clone().or_else(|| self.troubles.get(&SocketKind::of(key)).cloned());
            is_other |= entry.look(trouble);
        }
        let mut told = locked(&self.shared.told);
        if !is_other && told.len() == self.entries.len() {
            return;
        }
        let states: BTreeMap<Key, BfdStatus> =
            self.entries.iter().map(|(key, it)| (key.clone(), it.told.clone())).collect();
        told.clone_from(&states);
        drop(told);
        (self.changed)(&states);
    }
}

impl Entry {
    fn new(profile: Profile, mine: u32, time: Moment) -> Entry {
        let told = BfdStatus {
            what: BfdState::Down,
            since: SystemTime::now(),
            diagnostic: Diagnostic::NONE,
            told: Diagnostic::NONE,
            is_peer_stopped: false,
            detection: None,
            downs: 0,
            trouble: None,
        };
        let seed = u64::from(mine) << 32 | u64::from(time.subsec_nanos());
        Entry { session: Session::new(profile, mine, seed, time), profile, sender: None, trouble: None, told }
    }

    fn send(&self, packet: &Packet) {
        if let Some(sender) = &self.sender {
            // What cannot be sent is lost, as on any network; a peer that does not listen says so by ICMP.
            let _ = sender.send(&packet.write());
        }
    }

    fn stop(&mut self) {
        for _ in 0..FAREWELLS {
            if let Some(packet) = self.session.stop(now()) {
                self.send(&packet);
            }
        }
    }

    /// Whether it is another than was told last.
    fn look(&mut self, trouble: Option<String>) -> bool {
        let session = &self.session;
        let heard = session.told;
        let is_same = self.told.what == session.what;
        let state = BfdStatus {
            what: session.what,
            since: if is_same { self.told.since } else { SystemTime::now() },
            diagnostic: session.diagnostic,
            told: heard.map_or(Diagnostic::NONE, |it| it.diagnostic),
            is_peer_stopped: heard.is_some_and(|it| it.state == BfdState::AdminDown),
            detection: session.detection(),
            downs: session.downs,
            trouble,
        };
        let is_other = state != self.told;
        self.told = state;
        is_other
    }
}

/// RFC 5880, 6.8.6, with what RFC 5881 and 5883 add: who is not the peer says nothing here.
fn is_for(key: &Key, entry: &Entry, kind: SocketKind, packet: &Packet, arrival: &PacketMetadata) -> bool {
    let least = if kind.is_multihop { entry.profile.minimum_ttl } else { MOST_HOPS };
    SocketKind::of(key) == kind
        && key.peer == arrival.from
        && arrival.hops >= least
        && (packet.yours == 0 || packet.yours == entry.session.mine())
        && (key.interface.is_none() || scope(key).is_ok_and(|it| it == arrival.interface))
}

fn unopened(kind: SocketKind, error: &io::Error) -> String {
    let port = kind.port();
    match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "BFD: another program of this machine has UDP port {port}, such as bfdd of FRR, or BIRD; BFD can be in one of them only"
        ),
        _ => format!("BFD: UDP port {port} cannot be opened: {error}"),
    }
}

/// Goes on while the machine is suspended, as its peers' clocks do.
fn now() -> Moment {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Moment::ZERO, Into::into)
}

/// One for each boot of the machine.
fn seed() -> hmac::Key {
    let boot = fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    hmac::Key::new(hmac::HMAC_SHA256, &boot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_another_program_has_is_named() {
        let kind = SocketKind::of(&Key::single_hop(IpAddr::from([192, 0, 2, 1])));
        let told = unopened(kind, &io::ErrorKind::AddrInUse.into());
        assert!(told.contains("UDP port 3784") && told.contains("bfdd"), "{told}");
    }
}
