//! Addresses that this host announces by BGP: carries what the plan wants to the speaker, and back what came of it.
//!
//! ```text
//!     World::bgp ──► Bgp::follow ──► seaway_announce::bgp (a thread) ──► sessions with routers
//!          ▲                                    │ states
//!          └── Fact::Host ◄── Host::report ◄────┘
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use seaway_announce::{
    bfd,
    bgp::{PeerState, SessionState, Settings, Speaker},
};
use seaway_drivers::presence::Presence;
use seaway_model::{
    Name, ObjectRef,
    bgp::{BgpReport, BgpSessionState, DesiredBgp, PeerReport, Route, Session},
};
use seaway_watchdog::{WatchGuard, Watchdog};
use secrecy::{ExposeSecret, SecretString};
use tracing::{info, warn};

use crate::layer2::{RECHECK_INTERVAL, time};

/// Routers prefer other hosts for so long before routes are withdrawn for good (RFC 8326).
const GRACEFUL_SHUTDOWN: Duration = Duration::from_secs(1);
const LONGEST_PASSWORD: usize = 80;

/// Passwords of sessions by the Secrets that have them, or why one cannot be read.
pub type BgpPasswords = BTreeMap<ObjectRef, Result<SecretString, String>>;

/// One session, for metrics and pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BgpPeerStatus {
    pub name: Name,
    pub report: PeerReport,
    /// Prefixes that the peer announced; all were dropped.
    pub received: u64,
}

pub(crate) struct Bgp {
    presence: Arc<Presence>,
    state: Mutex<Status>,
    /// Held while a speaker ends, so that who withdraws all waits for that.
    ending: Mutex<()>,
}

#[derive(Default)]
struct Status {
    running: Option<RunningSpeaker>,
    /// Sessions that are wanted and cannot be, and why.
    lacking: BTreeMap<Name, String>,
    wanted: BTreeSet<Name>,
    /// When it could not be started, and why.
    failed: Option<(Instant, String)>,
    /// Since when this host is to announce nothing.
    leaving: Option<Instant>,
    /// This process announces nothing any more.
    ended: bool,
}

struct RunningSpeaker {
    // Dropped first: from then on its threads may end.
    watching: Option<WatchGuard>,
    /// How many threads that is: that of BFD comes with the first session that has it.
    watched: usize,
    /// What it was told last.
    wanted: Option<DesiredBgp>,
    speaker: Speaker,
}

impl Bgp {
    pub(crate) fn new(presence: Arc<Presence>) -> Bgp {
        Bgp { presence, state: Mutex::default(), ending: Mutex::default() }
    }

    /// `changed` is called, from another thread, when this host has another thing to report; it must not wait. Tells when it is to be
    /// called again, though nothing changes.
    pub(crate) fn reconcile(
        &self,
        wanted: &DesiredBgp,
        passwords: &BgpPasswords,
        watchdog: Option<&Watchdog>,
        changed: &Arc<dyn Fn() + Send + Sync>,
    ) -> Option<Duration> {
        let mut state = self.state();
        if state.ended {
            return None;
        }
        state.wanted = wanted.sessions.iter().map(|it| it.name.clone()).collect();
        if wanted.sessions.is_empty() {
            state.lacking.clear();
            state.leaving = None;
            let _ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
            let running = state.running.take();
            drop(state);
            if let Some(RunningSpeaker { watching, speaker, .. }) = running {
                drop(watching);
                speaker.shut_down(Duration::ZERO);
                info!("no BGP peer is left for this host: its sessions ended");
                changed();
            }
            return None;
        }
        let (mut wanted, lacking) = self.wanted(wanted, passwords);
        let before = state.running.as_ref().and_then(|it| it.wanted.clone()).filter(|_| wanted.is_leaving);
        let again = keep_while_leaving(&mut wanted, before, &mut state.leaving, Instant::now());
        for session in &mut wanted.sessions {
            session.routes.retain(|it| self.is_here(it));
        }
        let is_other = state.lacking != lacking;
        for (peer, why) in lacking.iter().filter(|(peer, why)| state.lacking.get(*peer) != Some(*why)) {
            warn!(%peer, "no BGP session: {why}");
        }
        state.lacking = lacking;
        if state.running.is_none() {
            if state.failed.as_ref().is_some_and(|(at, _)| at.elapsed() < RECHECK_INTERVAL) {
                return None;
            }
            // What is announced is served by now, also if a process of before was killed: routers may keep what they had.
            let settings = Settings { restarting: true, ..Settings::default() };
            let tell = changed.clone();
            match Speaker::start(settings, move || tell()) {
                Ok(speaker) => {
                    state.failed = None;
                    state.running =
                        Some(RunningSpeaker { watching: None, watched: 0, wanted: None, speaker });
                    info!(peers = wanted.sessions.len(), "BGP sessions are starting");
                }
                Err(error) => {
                    let why = error.to_string();
                    if state.failed.as_ref().is_none_or(|(_, told)| *told != why) {
                        warn!(%error, "addresses cannot be announced by BGP; retrying");
                    }
                    state.failed = Some((Instant::now(), why));
                    drop(state);
                    changed();
                    return None;
                }
            }
        }
        if let Some(running) = &mut state.running {
            if running.wanted.as_ref() != Some(&wanted) {
                running.speaker.set_desired(wanted.clone());
                running.wanted = Some(wanted);
            }
            running.watch(watchdog);
        }
        drop(state);
        if is_other {
            changed();
        }
        again
    }

    /// With passwords, of those that can be read: without its own, no session is begun.
    fn wanted(&self, wanted: &DesiredBgp, passwords: &BgpPasswords) -> (DesiredBgp, BTreeMap<Name, String>) {
        let (mut wanted, mut lacking) = (wanted.clone(), BTreeMap::new());
        for session in &mut wanted.sessions {
            if let Err(why) = fill_in_password(session, passwords) {
                lacking.insert(session.name.clone(), why);
            }
        }
        (wanted, lacking)
    }

    /// One that the machine had before, as by keepalived, is not ours to announce. Of a network, some address is.
    fn is_here(&self, route: &Route) -> bool {
        let is_address = route.prefix.prefix_len() == route.prefix.max_prefix_len();
        !is_address || self.presence.is_ours(route.prefix.addr())
    }

    /// What became of each session, for the report of this host.
    pub(crate) fn record_sessions(&self) {
        let state = self.state();
        if state.ended {
            return;
        }
        let before = self.presence.bgp();
        let report = state.report(&before);
        log_changes(&before, &report);
        self.presence.note_bgp(report);
    }

    /// Nothing, where there is no peer.
    pub(crate) fn peers_now(&self) -> Vec<BgpPeerStatus> {
        let state = self.state();
        let states = state.states();
        let report = state.report(&self.presence.bgp());
        let status = |(name, report): (Name, PeerReport)| {
            let received = states.get(&name).map_or(0, |it| it.received);
            BgpPeerStatus { name, report, received }
        };
        report.peers.into_iter().map(status).collect()
    }

    /// For good: routers send clients elsewhere, then all is withdrawn. Whether anything was announced.
    pub(crate) fn withdraw(&self) -> bool {
        let is_announcing = !self.presence.bgp().routes.is_empty();
        if let Some(speaker) = self.end() {
            speaker.shut_down(if is_announcing { GRACEFUL_SHUTDOWN } else { Duration::ZERO });
        }
        self.presence.note_bgp(BgpReport::default());
        is_announcing
    }

    /// For good, without delay: what this process serves ends now.
    pub(crate) fn end_sessions(&self) {
        if let Some(speaker) = self.end() {
            speaker.shut_down(Duration::ZERO);
        }
    }

    /// Another process of this host goes on: routers that agreed to it keep the routes.
    pub(crate) fn hand_over(&self) {
        if let Some(speaker) = self.end() {
            speaker.restart();
        }
        self.presence.note_bgp(BgpReport::default());
    }

    /// What is passed on late begins nothing again. The speaker ends without our lock: its thread may ask for it.
    fn end(&self) -> Option<Speaker> {
        let mut state = self.state();
        state.ended = true;
        if state.running.is_none() {
            drop(state);
            // One that ends for want of peers has withdrawn all by then.
            drop(self.ending.lock().unwrap_or_else(PoisonError::into_inner));
            return None;
        }
        let RunningSpeaker { watching, speaker, .. } = state.running.take()?;
        drop(watching);
        Some(speaker)
    }

    fn state(&self) -> MutexGuard<'_, Status> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningSpeaker {
    fn watch(&mut self, watchdog: Option<&Watchdog>) {
        let parts = self.speaker.parts();
        if parts.len() != self.watched {
            self.watched = parts.len();
            self.watching = watchdog.map(|it| it.watch(parts));
        }
    }
}

impl Status {
    fn states(&self) -> BTreeMap<Name, PeerState> {
        self.running.as_ref().map(|it| it.speaker.states()).unwrap_or_default()
    }

    fn report(&self, before: &BgpReport) -> BgpReport {
        let states = self.states();
        let mut report = BgpReport::default();
        for name in &self.wanted {
            let state = states.get(name);
            let said = match (self.lacking.get(name), state) {
                (Some(why), _) => failed(BgpSessionState::NoPassword, why),
                (None, Some(state)) => peer_report(state),
                (None, None) => match &self.failed {
                    Some((_, why)) => failed(BgpSessionState::Failed, why),
                    None => failed(BgpSessionState::Connecting, ""),
                },
            };
            let is_up = said.what == BgpSessionState::Established;
            let same = before.peers.get(name).filter(|it| it.what == said.what && !is_up);
            let since = same.map_or(said.since, |it| it.since);
            report.peers.insert(name.clone(), PeerReport { since, ..said });
            for prefix in state.filter(|_| is_up).iter().flat_map(|it| it.routes.iter()) {
                report.routes.entry(*prefix).or_default().insert(name.clone());
            }
        }
        while report.routes.len() > BgpReport::MAX_ROUTES {
            report.routes.pop_last();
        }
        report
    }
}

/// Of a host that is to announce nothing any more: what it announced `before` stays for a while, in which routers are asked to prefer
/// others, and nothing else comes to it. Tells how long that lasts yet.
fn keep_while_leaving(
    wanted: &mut DesiredBgp,
    before: Option<DesiredBgp>,
    leaving: &mut Option<Instant>,
    now: Instant,
) -> Option<Duration> {
    if !wanted.is_leaving {
        *leaving = None;
        return None;
    }
    let since = *leaving.get_or_insert(now);
    let left = GRACEFUL_SHUTDOWN.saturating_sub(now.saturating_duration_since(since));
    for session in &mut wanted.sessions {
        let had = before.iter().filter(|_| !left.is_zero()).flat_map(|it| &it.sessions);
        let had = had.filter(|it| it.name == session.name).flat_map(|it| &it.routes);
        session.routes = had.cloned().collect();
    }
    let has_routes = wanted.sessions.iter().any(|it| !it.routes.is_empty());
    has_routes.then_some(left)
}

fn fill_in_password(session: &mut Session, passwords: &BgpPasswords) -> Result<(), String> {
    let Some(password) = &mut session.password else { return Ok(()) };
    let read = match password.value.take() {
        Some(value) => value,
        None => {
            let read = passwords.get(&password.secret);
            read.ok_or_else(|| {
                format!("the password cannot be read: {} must have the key `password`", password.secret)
            })?
            .clone()?
        }
    };
    password.value = Some(usable(&read).map_err(|why| format!("the password of {} {why}", password.secret))?);
    Ok(())
}

/// What TCP MD5 takes. Editors and `echo` end a file with an end of line, which no router has in its password.
fn usable(password: &SecretString) -> Result<SecretString, String> {
    let text = password.expose_secret();
    let text = text.strip_suffix('\n').unwrap_or(text);
    match text.len() {
        0 => Err("is empty".to_owned()),
        1..=LONGEST_PASSWORD => Ok(text.to_owned().into()),
        length => Err(format!("has {length} bytes, and TCP MD5 takes {LONGEST_PASSWORD} at most")),
    }
}

fn failed(what: BgpSessionState, why: &str) -> PeerReport {
    let since = time(SystemTime::now());
    PeerReport { what, since, sent: 0, resets: 0, remote_as: None, bfd_up: None, detail: why.into() }
}

fn peer_report(state: &PeerState) -> PeerReport {
    let why = match &state.session {
        SessionState::Idle { why } if state.last_error.is_none() => Some(why.as_str()),
        _ => state.last_error.as_deref(),
    };
    let why = why.filter(|it| !it.is_empty());
    let what = match (&state.session, why) {
        (SessionState::Established, _) => BgpSessionState::Established,
        (_, Some(_)) => BgpSessionState::Failed,
        (_, None) => BgpSessionState::Connecting,
    };
    let trouble = state.bfd.as_ref().and_then(|it| it.trouble.clone());
    PeerReport {
        what,
        since: time(state.since),
        sent: state.sent,
        resets: state.resets,
        remote_as: state.remote_as,
        bfd_up: state.bfd.as_ref().map(|it| it.what == bfd::BfdState::Up),
        detail: why.map(str::to_owned).or(trouble).unwrap_or_default().into(),
    }
}

/// What operators look for first.
fn log_changes(before: &BgpReport, now: &BgpReport) {
    for (peer, it) in &now.peers {
        let was = before.peers.get(peer);
        let is_up = it.what == BgpSessionState::Established;
        let was_up = was.is_some_and(|it| it.what == BgpSessionState::Established);
        let again = was.is_some_and(|was| was.resets != it.resets);
        match (was_up, is_up) {
            (false, true) => info!(%peer, "BGP session established"),
            (true, true) if again => info!(%peer, "BGP session established again"),
            (true, false) => warn!(%peer, "BGP session lost: {}", it.detail),
            (false, false)
                if it.what == BgpSessionState::Failed && was.is_none_or(|was| was.detail != it.detail) =>
            {
                warn!(%peer, "no BGP session: {}", it.detail);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
