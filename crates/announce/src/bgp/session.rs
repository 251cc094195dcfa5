//! A session with what it announces, without its socket.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use super::{
    fsm::{Action, Config, Moment, NegotiatedCapabilities, SessionStateMachine, State},
    message::{Family, Notification, RouteEncoding},
    rib::AdjRibOut,
};
use seaway_model::bgp::Route;

/// A peer that takes nothing for so long is gone (RFC 9687).
const SEND_HOLD: Duration = Duration::from_secs(480);

/// What its socket is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Connect,
    /// What is to be sent goes first, as far as it goes at once.
    Close,
}

/// Our addresses at a connection, and what replaces them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LocalAddresses {
    pub(crate) v4: Option<Ipv4Addr>,
    pub(crate) v6: Option<Ipv6Addr>,
}

#[derive(Debug)]
pub(crate) struct Session {
    config: Config,
    machine: SessionStateMachine,
    rib: AdjRibOut,
    local: LocalAddresses,
    agreed: Option<NegotiatedCapabilities>,
    out: Vec<u8>,
    /// Bytes of it that are written.
    written: usize,
    /// Since when the peer has not taken anything.
    blocked: Option<Moment>,
    actions: Vec<Action>,
    commands: Vec<Command>,
}

impl Session {
    pub(crate) fn new(config: Config, is_restarting: bool, seed: u64) -> Session {
        Session {
            machine: SessionStateMachine::new(config.clone(), is_restarting, seed),
            config,
            rib: AdjRibOut::new(),
            local: LocalAddresses::default(),
            agreed: None,
            out: Vec::new(),
            written: 0,
            blocked: None,
            actions: Vec::new(),
            commands: Vec::new(),
        }
    }

    pub(crate) fn machine(&self) -> &SessionStateMachine {
        &self.machine
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn rib(&self) -> &AdjRibOut {
        &self.rib
    }

    pub(crate) fn set_desired(&mut self, routes: &[Route], is_leaving: bool) {
        self.rib.set_desired(routes, is_leaving);
    }

    pub(crate) fn connected(&mut self, now: Moment, id: Ipv4Addr, local: LocalAddresses) {
        self.local = local;
        self.machine.connected(now, id, &mut self.actions);
        self.act();
    }

    pub(crate) fn retry(&mut self, at: Moment) {
        self.machine.retry(at);
    }

    pub(crate) fn retry_now(&mut self, now: Moment) {
        self.machine.retry_now(now);
    }

    /// Ours may change while it is established.
    pub(crate) fn set_local(&mut self, local: LocalAddresses) {
        self.local = local;
        if let Some(agreed) = self.agreed {
            self.rib.set_next_hops(self.manner(agreed));
        }
    }

    pub(crate) fn lost(&mut self, now: Moment, why: &str) {
        self.machine.lost(now, why, &mut self.actions);
        self.act();
    }

    pub(crate) fn receive(&mut self, now: Moment, bytes: &[u8]) {
        self.machine.receive(now, bytes, &mut self.actions);
        self.act();
    }

    pub(crate) fn reset(&mut self, now: Moment, notification: Notification, why: &str) {
        self.machine.reset(now, notification, why, &mut self.actions);
        self.act();
    }

    pub(crate) fn tick(&mut self, now: Moment) {
        if self.blocked.is_some_and(|since| now.saturating_sub(since) >= self.send_hold()) {
            let why = "send hold timer expired: the peer reads nothing from the connection";
            // Not only closed: the peer would keep our routes, as for a restart.
            self.machine.reset(now, Notification::SEND_HOLD_TIMER, why, &mut self.actions);
            self.act();
        }
        self.machine.tick(now, &mut self.actions);
        self.act();
    }

    pub(crate) fn next(&self) -> Moment {
        let blocked = self.blocked.map(|since| since.saturating_add(self.send_hold()));
        self.machine.next().min(blocked.unwrap_or(Moment::MAX))
    }

    fn send_hold(&self) -> Duration {
        SEND_HOLD.max(self.config.hold.saturating_mul(2))
    }

    pub(crate) fn commands(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.commands)
    }

    /// What is to be written next. Of routes no more is made than goes in one go: what changes meanwhile is said once.
    pub(crate) fn output(&mut self) -> &[u8] {
        if self.written >= self.out.len() {
            self.out.clear();
            self.written = 0;
            self.rib.write(&mut self.out);
        }
        self.out.get(self.written..).unwrap_or_default()
    }

    /// So much of it was written; nothing where the peer has to take something first.
    pub(crate) fn wrote(&mut self, now: Moment, bytes: usize) {
        self.written = self.written.saturating_add(bytes);
        let is_all = self.written >= self.out.len();
        self.blocked = if is_all { None } else { self.blocked.filter(|_| bytes == 0).or(Some(now)) };
    }

    /// Something waits for the peer to take it.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    fn act(&mut self) {
        for action in std::mem::take(&mut self.actions) {
            match action {
                Action::Connect => {
                    self.clear();
                    self.commands.push(Command::Connect);
                }
                // Where something waits already, that tells the peer as well that we are there.
                Action::Send(bytes) if self.is_blocked() && self.machine.is_established() => drop(bytes),
                Action::Send(bytes) => self.out.extend(bytes),
                Action::Close => {
                    self.agreed = None;
                    self.rib.end();
                    self.commands.push(Command::Close);
                }
                Action::Established(agreed) => {
                    self.agreed = Some(agreed);
                    self.rib.begin(self.manner(agreed), agreed.families);
                }
                Action::Refresh(family) => self.rib.refresh(family),
            }
        }
    }

    /// Of a connection that is no more.
    pub(crate) fn clear(&mut self) {
        self.out = Vec::new();
        (self.written, self.blocked) = (0, None);
    }

    fn manner(&self, agreed: NegotiatedCapabilities) -> RouteEncoding {
        let v6 = self.local.v6.map(IpAddr::V6);
        let v4 = self.local.v4.map(IpAddr::V4).or(v6.filter(|_| agreed.has_extended_next_hop));
        RouteEncoding {
            is_internal: agreed.is_internal,
            local_as: self.config.local_as,
            has_four_byte_as: agreed.has_four_byte_as,
            next_hops: [v4, v6],
        }
    }

    /// What of the routes cannot be announced in this session.
    pub(crate) fn complaint(&self) -> Option<String> {
        if !matches!(self.machine.state(), State::Established { .. }) {
            return None;
        }
        if let Some(prefix) = self.rib.left_out() {
            return Some(format!(
                "{prefix} and similar routes are not announced: they have more communities than fit into one BGP message"
            ));
        }
        let (family, lacks_next_hop) = self.rib.unsaid()?;
        let family = match family {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        };
        Some(if lacks_next_hop {
            format!(
                "{family} routes are not announced: the interface of the session has no {family} address, and no next \
                 hop is configured"
            )
        } else {
            format!("{family} routes are not announced: the peer has not activated {family} for this session")
        })
    }
}

#[cfg(test)]
mod tests;
