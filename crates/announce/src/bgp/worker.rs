//! The thread: sockets in, sessions, sockets out.

use std::{collections::BTreeMap, net::Ipv4Addr, os::fd::AsFd, sync::Arc, time::Duration};

use aws_lc_rs::rand;
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::eventfd::{EfdFlags, EventFd},
    time::{ClockId, clock_gettime},
};
use seaway_model::{
    Name,
    bgp::{DesiredBgp, PeerAddress},
};
use seaway_watchdog::Heartbeat;

use super::{
    fsm::Moment,
    interface_addresses::router_id,
    link::PeerLink,
    message::Notification,
    neighbors::Neighbors,
    settings::Settings,
    speaker::{ShutdownMode, SpeakerShared},
};
use crate::{Event, LinkWatch, Links, bfd::Bfd, layer2::locked};

const BUFFER: usize = 64 * 1024;
/// Until peers took the withdrawal of all routes; who reads nothing does not hold up the end.
const FAREWELL: Duration = Duration::from_secs(1);
/// Addresses are looked at no more often.
const REST: Duration = Duration::from_secs(1);
/// Where there is no news of them.
const LATER: Duration = Duration::from_secs(30);
const GOODBYE: &str = "seaway stops";

pub(super) struct Worker {
    settings: Settings,
    shared: Arc<SpeakerShared>,
    changed: Box<dyn Fn() + Send>,
    heartbeat: Heartbeat,
    links: BTreeMap<Name, PeerLink>,
    neighbors: Neighbors,
    bfd: Option<(Bfd, Arc<EventFd>)>,
    watched: BTreeMap<crate::bfd::Key, crate::bfd::Profile>,
    id: Option<Ipv4Addr>,
    /// News of our addresses; without it they are looked at when a session begins.
    addresses: Option<LinkWatch>,
    look_at: Moment,
    loopback: Option<u32>,
    buffer: Vec<u8>,
}

impl Worker {
    pub(super) fn new(
        settings: Settings,
        shared: Arc<SpeakerShared>,
        changed: Box<dyn Fn() + Send>,
        heartbeat: Heartbeat,
    ) -> Worker {
        Worker {
            id: settings.router_id,
            settings,
            shared,
            changed,
            heartbeat,
            links: BTreeMap::new(),
            neighbors: Neighbors::default(),
            bfd: None,
            watched: BTreeMap::new(),
            addresses: LinkWatch::open().ok(),
            look_at: Moment::ZERO,
            loopback: None,
            buffer: vec![0; BUFFER],
        }
    }

    pub(super) fn run(mut self) {
        self.heartbeat.enter_thread();
        loop {
            match self.shared.ended() {
                ShutdownMode::No => {}
                ShutdownMode::Restarting => return,
                ShutdownMode::Leaving(graceful) => return self.leave(graceful),
            }
            let wanted = locked(&self.shared.wanted).take();
            if let Some(wanted) = wanted {
                self.set_desired(wanted);
            }
            self.turn();
            self.wait(Moment::MAX);
        }
    }

    /// First others are preferred to us, then nothing leads here any more, then sessions end.
    fn leave(mut self, graceful: Duration) {
        let is_any = self.links.values().any(PeerLink::is_established);
        for (is_gone, time) in [(false, graceful), (true, FAREWELL)] {
            if !is_any || time.is_zero() {
                continue;
            }
            self.links.values_mut().for_each(|it| it.leave(is_gone));
            let until = now().saturating_add(time);
            while now() < until {
                self.turn();
                if is_gone && self.links.values_mut().all(PeerLink::is_settled) {
                    break;
                }
                self.wait(until);
            }
        }
        let time = now();
        for link in self.links.values_mut() {
            link.end(time, Notification::shut_down(GOODBYE), GOODBYE, &mut self.buffer);
        }
        if let Some((bfd, _)) = self.bfd.take() {
            bfd.shut_down();
        }
        self.report_changes();
    }

    fn set_desired(&mut self, wanted: DesiredBgp) {
        let (time, timing) = (now(), self.settings.timing);
        let mut before = std::mem::take(&mut self.links);
        let is_leaving = wanted.is_leaving;
        for session in wanted.sessions {
            let name = session.name.clone();
            let mut link = match before.remove(&name) {
                Some(mut link) => {
                    link.sync(session, timing, seed(), time, &mut self.buffer);
                    link
                }
                None => {
                    let is_restarting = self.settings.restarting;
                    let mut link = PeerLink::new(session, timing, is_restarting, seed(), time);
                    if is_restarting && let Ok(observed) = Links::open().and_then(|mut it| it.observe()) {
                        link.foresee(&observed);
                    }
                    locked(&self.shared.told).insert(name.clone(), link.first());
                    link
                }
            };
            if is_leaving {
                link.leave(false);
            }
            self.links.insert(name, link);
        }
        for (name, mut link) in before {
            link.end(
                time,
                Notification::REMOVED,
                "the peer was removed from the configuration",
                &mut self.buffer,
            );
            locked(&self.shared.told).remove(&name);
        }
        let interfaces = self.links.values().filter_map(|it| match &it.wanted.to {
            PeerAddress::Interface(name) => Some(name),
            PeerAddress::Ip { .. } => None,
        });
        self.neighbors.set_desired(interfaces, time);
        if self.id.is_none() {
            self.id = router_id(self.links.values().map(|it| &it.wanted.to));
        }
    }

    fn turn(&mut self) {
        self.heartbeat.beat();
        let time = now();
        self.judge(time);
        self.look(time);
        for name in self.neighbors.turn(time) {
            let is_there = |it: &&mut PeerLink| it.wanted.to == PeerAddress::Interface(name.clone());
            self.links.values_mut().filter(is_there).for_each(|it| it.retry_now(time));
        }
        for link in self.links.values_mut() {
            link.read_socket(time, self.id, &mut self.buffer);
        }
        // Later than what was heard: whether a peer was silent is judged by the time after.
        let time = now();
        for link in self.links.values_mut() {
            link.act(time, &mut self.neighbors, &mut self.buffer);
        }
        self.watch();
        self.report_changes();
    }

    /// Ends sessions with peers that BFD says do not hear us.
    fn judge(&mut self, time: Moment) {
        let Some((bfd, _)) = &self.bfd else { return };
        let states = bfd.states();
        for link in self.links.values_mut() {
            let state = link.watched().and_then(|(key, _)| states.get(&key).cloned());
            let is_failed = link.hear_bfd(state);
            if is_failed {
                let why = "BFD is down: the peer does not answer";
                link.end(time, Notification::BFD_DOWN, why, &mut self.buffer);
            }
        }
    }

    /// At our addresses, once for many changes. Those of pools are on `lo`, and tell nothing.
    fn look(&mut self, time: Moment) {
        let lo = self.loopback;
        let counts = |it: &Event| match it {
            Event::Address { link, .. } | Event::AddressGone { link, .. } => Some(*link) != lo,
            Event::Link(link) | Event::LinkGone(link) => !link.loopback,
            Event::Lost => true,
        };
        let news = self.addresses.as_mut().map(|it| it.events());
        let is_news = match news {
            Some(Ok(all)) => all.iter().any(counts),
            Some(Err(_)) => {
                self.addresses = None;
                true
            }
            None => false,
        };
        if is_news {
            self.look_at = self.look_at.min(time.saturating_add(REST));
        }
        if self.look_at > time {
            return;
        }
        self.look_at = Moment::MAX;
        if self.addresses.is_none() {
            self.addresses = LinkWatch::open().ok();
        }
        if let Ok(observed) = Links::open().and_then(|mut it| it.observe()) {
            self.loopback = observed.links.iter().find(|it| it.loopback).map(|it| it.index);
            self.links.values_mut().for_each(|it| it.update_addresses(&observed));
            self.neighbors.update_addresses(&observed);
        } else {
            self.look_at = time.saturating_add(REST);
        }
        if self.addresses.is_none() {
            self.look_at = time.saturating_add(LATER);
        }
    }

    fn watch(&mut self) {
        let watched: BTreeMap<_, _> = self.links.values().filter_map(PeerLink::watched).collect();
        if watched == self.watched {
            return;
        }
        if self.bfd.is_none() {
            self.bfd = start_bfd();
            *locked(&self.shared.bfd) = self.bfd.as_ref().map(|(bfd, _)| bfd.part());
        }
        if let Some((bfd, _)) = &self.bfd {
            bfd.set_desired(watched.clone());
            self.watched = watched;
        }
    }

    fn report_changes(&mut self) {
        let mut is_any = false;
        for (name, link) in &mut self.links {
            if let Some((state, is_news)) = link.changed_state() {
                locked(&self.shared.told).insert(name.clone(), state);
                is_any |= is_news;
            }
        }
        if is_any {
            (self.changed)();
        }
    }

    fn wait(&self, most: Moment) {
        let next = self.links.values().map(PeerLink::next).min().unwrap_or(Moment::MAX);
        let until = next.min(self.neighbors.next()).min(self.look_at).min(most);
        let pause = until.saturating_sub(now()).saturating_add(Duration::from_micros(999));
        let timeout = PollTimeout::try_from(pause).unwrap_or(PollTimeout::MAX);
        let addresses = self.addresses.iter().map(AsFd::as_fd);
        let woken = [self.shared.wake.as_fd()].into_iter().chain(self.neighbors.sockets()).chain(addresses);
        let bfd = self.bfd.iter().map(|(_, wake)| wake.as_fd());
        let polled = woken.chain(bfd).map(|it| PollFd::new(it, PollFlags::POLLIN));
        let mut polled: Vec<_> = polled.chain(self.links.values().filter_map(PeerLink::polled)).collect();
        // Interrupted or not, the turn looks at everything.
        let _ = poll(&mut polled, timeout);
        let _ = self.shared.wake.read();
        if let Some((_, wake)) = &self.bfd {
            let _ = wake.read();
        }
    }
}

/// Its changes wake this thread.
fn start_bfd() -> Option<(Bfd, Arc<EventFd>)> {
    let wake = Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC).ok()?);
    let waker = wake.clone();
    let bfd = Bfd::start(move |_| {
        let _ = waker.write(1);
    })
    .ok()?;
    Some((bfd, wake))
}

/// Goes on while the machine is suspended: peers do not wait for it.
fn now() -> Moment {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Moment::ZERO, Into::into)
}

fn seed() -> u64 {
    let mut bytes = [0_u8; 8];
    // Without randomness retries are not spread, no more.
    let _ = rand::fill(&mut bytes);
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
