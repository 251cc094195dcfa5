//! One session (RFC 4271, 8.2.2), of a speaker that only connects: time and bytes in, actions out.

use std::{net::Ipv4Addr, time::Duration};

use super::{
    message::{self, Family, GracefulRestart, MOST, Message, Notification, Open},
    settings::Timing,
};
use seaway_model::bgp::{PeerFamilies, RemoteAs};

/// Since any moment; it never goes back.
pub(crate) type Moment = Duration;

/// What does not change in a session. A change of it ends the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) local_as: u32,
    pub(crate) remote_as: RemoteAs,
    pub(crate) hold: Duration,
    pub(crate) keepalive: Option<Duration>,
    pub(crate) connect_retry: Duration,
    pub(crate) families: PeerFamilies,
    pub(crate) graceful_restart: Option<Duration>,
    pub(crate) has_password: bool,
    pub(crate) timing: Timing,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Connect,
    Send(Vec<u8>),
    /// What was to be sent goes first.
    Close,
    Established(NegotiatedCapabilities),
    Refresh(Family),
}

/// What both sides can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NegotiatedCapabilities {
    pub(crate) is_internal: bool,
    pub(crate) families: PeerFamilies,
    pub(crate) has_four_byte_as: bool,
    pub(crate) has_extended_next_hop: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Idle { until: Moment },
    Connect { until: Moment },
    OpenSent,
    OpenConfirm,
    Established { since: Moment },
}

#[derive(Debug)]
pub(crate) struct SessionStateMachine {
    config: Config,
    /// Ours, at this connection.
    id: Ipv4Addr,
    state: State,
    /// A message that has not come as a whole.
    begun: Vec<u8>,
    hold_until: Option<Moment>,
    keepalive_at: Option<Moment>,
    /// As both sides agreed; 0 is without.
    hold: Duration,
    peer: Option<Open>,
    is_restarting: bool,
    /// In a row.
    failures: u32,
    random: u64,
    pub(crate) last_error: Option<String>,
    pub(crate) resets: u64,
    pub(crate) received: u64,
}

impl SessionStateMachine {
    /// It connects at the first tick.
    pub(crate) fn new(config: Config, is_restarting: bool, seed: u64) -> SessionStateMachine {
        SessionStateMachine {
            config,
            id: Ipv4Addr::UNSPECIFIED,
            state: State::Idle { until: Moment::ZERO },
            begun: Vec::new(),
            hold_until: None,
            keepalive_at: None,
            hold: Duration::ZERO,
            peer: None,
            is_restarting,
            failures: 0,
            random: seed | 1,
            last_error: None,
            resets: 0,
            received: 0,
        }
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// No session told the peer of the restart yet.
    pub(crate) fn is_restarting(&self) -> bool {
        self.is_restarting
    }

    pub(crate) fn is_established(&self) -> bool {
        matches!(self.state, State::Established { .. })
    }

    pub(crate) fn remote_as(&self) -> Option<u32> {
        self.peer.as_ref().map(|it| it.number)
    }

    /// The peer keeps our routes while we restart.
    pub(crate) fn is_graceful(&self) -> bool {
        let keeps = |it: &Open| it.graceful.is_some();
        self.config.graceful_restart.is_some()
            && self.is_established()
            && self.peer.as_ref().is_some_and(keeps)
    }

    /// When something is due.
    pub(crate) fn next(&self) -> Moment {
        match self.state {
            State::Idle { until } | State::Connect { until } => until,
            _ => self.hold_until.into_iter().chain(self.keepalive_at).min().unwrap_or(Moment::MAX),
        }
    }

    pub(crate) fn tick(&mut self, now: Moment, actions: &mut Vec<Action>) {
        match self.state {
            State::Idle { until } if until <= now => {
                self.state = State::Connect { until: now.saturating_add(self.config.timing.connect) };
                actions.push(Action::Connect);
            }
            State::Connect { until } if until <= now => {
                let why = if self.config.has_password {
                    "the peer does not answer: it is down, or it has another TCP MD5 password"
                } else {
                    "the peer does not answer: it is down, a firewall drops connections to it, or it expects a \
                     TCP MD5 password"
                };
                self.end(now, None, why.into(), actions);
            }
            State::Idle { .. } | State::Connect { .. } => {}
            _ if self.hold_until.is_some_and(|it| it <= now) => {
                let why = match self.state {
                    State::OpenSent => "the peer accepted the connection, but sent no OPEN message".into(),
                    _ if self.hold.is_zero() => {
                        "the peer did not confirm the session with a KEEPALIVE message".into()
                    }
                    _ => format!(
                        "hold timer expired: nothing came from the peer for {} s",
                        self.hold.as_secs()
                    ),
                };
                self.end(now, Some(Notification::HOLD_TIMER), why, actions);
            }
            _ if self.keepalive_at.is_some_and(|it| it <= now) => {
                actions.push(Action::Send(keep_alive()));
                self.keepalive_at = self.keepalive_from(now);
            }
            _ => {}
        }
    }

    pub(crate) fn connected(&mut self, now: Moment, id: Ipv4Addr, actions: &mut Vec<Action>) {
        if !matches!(self.state, State::Connect { .. }) {
            return;
        }
        (self.state, self.id) = (State::OpenSent, id);
        self.hold_until = Some(now.saturating_add(self.config.timing.open));
        let (families, config) = (self.config.families, &self.config);
        let graceful = config.graceful_restart.map(|time| GracefulRestart {
            is_restarting: self.is_restarting,
            time: u16::try_from(time.as_secs()).unwrap_or(u16::MAX).min(0xfff),
            families,
            // What forwards is beside this thread, and does not end with a session.
            is_forwarding: true,
        });
        let open = Open {
            number: config.local_as,
            hold: seconds(config.hold),
            id,
            families,
            has_four_byte_as: true,
            has_extended_next_hop: families.v4,
            has_refresh: true,
            graceful,
        };
        let mut bytes = Vec::new();
        open.write(&mut bytes);
        actions.push(Action::Send(bytes));
    }

    /// Tries again so soon, however often it failed.
    pub(crate) fn retry(&mut self, at: Moment) {
        if let State::Idle { until } = &mut self.state {
            *until = at;
        }
    }

    /// What it waited for has come.
    pub(crate) fn retry_now(&mut self, now: Moment) {
        if let State::Idle { until } = &mut self.state {
            *until = now.min(*until);
        }
    }

    /// The connection failed, or was closed.
    pub(crate) fn lost(&mut self, now: Moment, why: &str, actions: &mut Vec<Action>) {
        if !matches!(self.state, State::Idle { .. }) {
            self.end(now, None, why.into(), actions);
        }
    }

    /// Ends it for a reason of our own; Seaway tries again soon.
    pub(crate) fn reset(
        &mut self,
        now: Moment,
        notification: Notification,
        why: &str,
        actions: &mut Vec<Action>,
    ) {
        if !matches!(self.state, State::Idle { .. }) {
            self.end(now, Some(notification), why.into(), actions);
        }
    }

    pub(crate) fn receive(&mut self, now: Moment, mut bytes: &[u8], actions: &mut Vec<Action>) {
        if matches!(self.state, State::Idle { .. } | State::Connect { .. }) {
            return;
        }
        while !bytes.is_empty() {
            // Only what is cut off at the end is copied.
            let is_begun = !self.begun.is_empty();
            let before = self.begun.len();
            if is_begun {
                let room = MOST.saturating_sub(before);
                self.begun.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
            }
            let read = message::read(if is_begun { &self.begun } else { bytes });
            match read {
                Ok(Some((message, length))) => {
                    let taken = if is_begun { length.saturating_sub(before) } else { length };
                    self.begun.clear();
                    bytes = bytes.get(taken..).unwrap_or_default();
                    self.take(now, message, actions);
                    if matches!(self.state, State::Idle { .. }) {
                        return;
                    }
                }
                Ok(None) => {
                    if !is_begun {
                        self.begun.extend_from_slice(bytes);
                    }
                    return;
                }
                Err(notification) => {
                    let why = format!("the peer sent a message that is not valid BGP: {notification}");
                    return self.end(now, Some(notification), why, actions);
                }
            }
        }
    }

    fn take(&mut self, now: Moment, message: Message, actions: &mut Vec<Action>) {
        if let Message::Notification(it) = &message {
            return self.end(now, None, self.refusal(it), actions);
        }
        match (self.state, message) {
            (State::OpenSent, Message::Open(open)) => self.open(now, open, actions),
            (State::OpenConfirm, Message::KeepAlive) => self.establish(now, actions),
            (State::Established { .. }, Message::KeepAlive) => self.hold_until = self.hold_from(now),
            (State::Established { .. }, Message::Update { prefixes }) => {
                self.received = self.received.saturating_add(prefixes.into());
                self.hold_until = self.hold_from(now);
            }
            (State::Established { .. }, Message::RouteRefresh(family)) => {
                actions.extend(family.map(Action::Refresh));
            }
            (state, _) => {
                let notification = Notification::unexpected(match state {
                    State::OpenSent => 1,
                    State::OpenConfirm => 2,
                    _ => 3,
                });
                let why = format!("the peer violates the protocol: {notification}");
                self.end(now, Some(notification), why, actions);
            }
        }
    }

    fn open(&mut self, now: Moment, open: Open, actions: &mut Vec<Action>) {
        let (ours, theirs) = (self.config.local_as, open.number);
        let expected = match self.config.remote_as {
            RemoteAs::Number(number) => (number != theirs).then(|| format!("{number} is configured")),
            RemoteAs::Internal => (ours != theirs).then(|| format!("our own, {ours}, is configured")),
            RemoteAs::External => (ours == theirs).then(|| {
                "the peer has another AS number than this BGPPeer \
                 configures"
                    .into()
            }),
        };
        let expected =
            expected.or_else(|| (theirs == 0).then(|| "the AS number 0 is not valid (RFC 7607)".into()));
        let is_own = open.id == self.id && ours == theirs;
        let wrong = if let Some(expected) = expected {
            Some((Notification::BAD_AS, format!("AS mismatch: the peer is AS {theirs}, and {expected}")))
        } else if open.id.is_unspecified() || is_own {
            let why = format!(
                "the peer's router ID, {}, is 0.0.0.0 or the same as that of this host: give each router \
                 its own",
                open.id
            );
            Some((Notification::BAD_IDENTIFIER, why))
        } else if matches!(open.hold, 1 | 2) {
            let why = format!("the peer asks for a hold time of {} s; the least is 3 s", open.hold);
            Some((Notification::BAD_HOLD_TIME, why))
        } else {
            None
        };
        self.hold = Duration::from_secs(open.hold.min(seconds(self.config.hold)).into());
        self.peer = Some(open);
        if let Some((notification, why)) = wrong {
            return self.end(now, Some(notification), why, actions);
        }
        self.state = State::OpenConfirm;
        self.hold_until = self.hold_from(now).or(Some(now.saturating_add(self.config.timing.open)));
        self.keepalive_at = self.keepalive_from(now);
        actions.push(Action::Send(keep_alive()));
    }

    fn establish(&mut self, now: Moment, actions: &mut Vec<Action>) {
        let Some(peer) = &self.peer else { return };
        let (ours, theirs) = (self.config.families, peer.families);
        let agreed = NegotiatedCapabilities {
            is_internal: peer.number == self.config.local_as,
            families: PeerFamilies { v4: ours.v4 && theirs.v4, v6: ours.v6 && theirs.v6 },
            has_four_byte_as: peer.has_four_byte_as,
            has_extended_next_hop: peer.has_extended_next_hop,
        };
        self.state = State::Established { since: now };
        self.hold_until = self.hold_from(now);
        self.last_error = None;
        // Later sessions do not tell of a restart that is over.
        self.is_restarting = false;
        actions.push(Action::Established(agreed));
    }

    fn end(
        &mut self,
        now: Moment,
        notification: Option<Notification>,
        why: String,
        actions: &mut Vec<Action>,
    ) {
        let is_connected = !matches!(self.state, State::Idle { .. } | State::Connect { .. });
        if let Some(notification) = notification.filter(|_| is_connected) {
            let mut bytes = Vec::new();
            notification.write(&mut bytes);
            actions.push(Action::Send(bytes));
        }
        actions.push(Action::Close);
        if let State::Established { since } = self.state {
            self.resets = self.resets.saturating_add(1);
            // One that held is not counted with those that never came up.
            if now.saturating_sub(since) >= self.config.hold {
                self.failures = 0;
            }
        }
        let first = self.config.timing.first_retry;
        let most = self.config.connect_retry.max(first);
        let pause = first.saturating_mul(2_u32.saturating_pow(self.failures)).min(most);
        self.failures = self.failures.saturating_add(1);
        self.state = State::Idle { until: now.saturating_add(self.jittered(pause)) };
        self.last_error = Some(why);
        self.begun = Vec::new();
        (self.hold_until, self.keepalive_at) = (None, None);
    }

    fn refusal(&self, notification: &Notification) -> String {
        if (notification.code, notification.subcode) == (2, 2) {
            let ours = self.config.local_as;
            let theirs = self.remote_as().map(|it| format!(", AS {it},")).unwrap_or_default();
            return format!(
                "AS mismatch: the peer{theirs} expects another AS than ours, {ours}: {notification}"
            );
        }
        format!("the peer ended the session: {notification}")
    }

    fn hold_from(&self, now: Moment) -> Option<Moment> {
        (!self.hold.is_zero()).then(|| now.saturating_add(self.hold))
    }

    fn keepalive_from(&mut self, now: Moment) -> Option<Moment> {
        if self.hold.is_zero() {
            return None;
        }
        let third = self.hold.checked_div(3).unwrap_or(self.hold);
        let pause = self.config.keepalive.filter(|it| !it.is_zero()).map_or(third, |it| it.min(third));
        Some(now.saturating_add(self.jittered(pause)))
    }

    /// Three quarters of it, or up to all (RFC 4271, 10).
    fn jittered(&mut self, pause: Duration) -> Duration {
        // Xorshift: whoever starts at the same time does not go on at the same time.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let share = u32::try_from(self.random % 256).unwrap_or(0).saturating_add(768);
        pause.saturating_mul(share).checked_div(1024).unwrap_or(pause)
    }
}

/// As an OPEN says a hold time: 0 is without, and the least is 3.
fn seconds(hold: Duration) -> u16 {
    let seconds = u16::try_from(hold.as_secs()).unwrap_or(u16::MAX);
    if hold.is_zero() { 0 } else { seconds.max(3) }
}

fn keep_alive() -> Vec<u8> {
    let mut bytes = Vec::new();
    message::keep_alive(&mut bytes);
    bytes
}
