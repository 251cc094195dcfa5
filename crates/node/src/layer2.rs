//! Addresses that this host announces by ARP and NDP: carries what the plan wants to the announcer, and back what came of it.
//!
//! ```text
//!     World::layer2 ──► Layer2::follow ──► seaway_announce::layer2 (a thread) ──► ARP, NDP, heartbeats of hosts
//!          ▲                                        │ states
//!          └── Fact::Host ◄── Presence::report ◄────┘
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use seaway_announce::layer2::{
    AddressState, AddressStatus, Announcer, Counters, DesiredAnnouncements, HeartbeatKey, Peer, Settings,
    Timing, WantedAddress,
};
use seaway_drivers::{acme::read_secret, presence::Presence};
use seaway_model::{
    Name, Time,
    layer2::{Layer2Progress, Layer2State},
};
use seaway_plan::Layer2Wanted;
use seaway_watchdog::{WatchGuard, Watchdog};
use secrecy::{ExposeSecret, SecretString};
use tracing::{info, warn};

/// What another host that knows it could forge is worth more than a word that somebody remembers.
const SHORTEST_KEY: usize = 32;
/// The file of the key is looked at this often, and what could not be started is tried again.
pub const RECHECK_INTERVAL: Duration = Duration::from_secs(5);

/// How this host announces, as the configuration says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer2Settings {
    /// Of the key that all hosts share.
    pub key_file: Option<PathBuf>,
    /// UDP, between hosts.
    pub port: u16,
}

impl Default for Layer2Settings {
    fn default() -> Layer2Settings {
        Layer2Settings { key_file: None, port: Settings::PORT }
    }
}

/// How many addresses are in each state, and what happened, for metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layer2Counts {
    pub states: BTreeMap<Layer2Progress, u64>,
    pub moves: u64,
    pub conflicts: u64,
    pub overlaps: u64,
}

pub(crate) struct Layer2 {
    host: Name,
    presence: Arc<Presence>,
    state: Mutex<Status>,
}

#[derive(Default)]
struct Status {
    running: Option<RunningAnnouncer>,
    /// Of announcers that ended.
    before: Counters,
    key: Option<SecretString>,
    key_file: Option<PathBuf>,
    /// What is wrong with the file, as it was logged.
    key_trouble: Option<String>,
    looked: Option<Instant>,
    /// When it could not be started, and why.
    failed: Option<(Instant, String)>,
    /// This process announces nothing any more.
    ended: bool,
}

struct RunningAnnouncer {
    // Dropped first: from then on its thread may end.
    watching: Option<WatchGuard>,
    announcer: Announcer,
    port: u16,
    has_key: bool,
}

impl Layer2 {
    pub(crate) fn new(host: Name, presence: Arc<Presence>) -> Layer2 {
        Layer2 { host, presence, state: Mutex::default() }
    }

    /// `changed` is called, from another thread, when this host has another thing to report; it must not wait.
    pub(crate) fn reconcile(
        &self,
        wanted: &Layer2Wanted,
        settings: &Layer2Settings,
        watchdog: Option<&Watchdog>,
        changed: &Arc<dyn Fn() + Send + Sync>,
    ) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.ended {
            return;
        }
        if !wanted.asked {
            if state.running.is_some() {
                state.end();
                self.presence.note_layer2(BTreeMap::new());
                changed();
            }
            return;
        }
        let has_another_key = state.look_at_key(settings.key_file.as_deref());
        let is_other = |it: &RunningAnnouncer| it.port != settings.port || it.has_key != state.key.is_some();
        if state.running.as_ref().is_some_and(is_other) || has_another_key {
            state.end();
        }
        if wanted.needs_key && state.key.is_none() {
            state.end();
            let states = self.all(&wanted.offered, Layer2Progress::NoKey, &Name::default());
            if self.presence.note_layer2(states) {
                changed();
            }
            return;
        }
        if state.running.is_none() {
            if state.failed.as_ref().is_some_and(|(at, _)| at.elapsed() < RECHECK_INTERVAL) {
                return;
            }
            match self.start(&state, settings, changed) {
                Ok(announcer) => {
                    let watching = watchdog.map(|it| it.watch([announcer.part()]));
                    let has_key = state.key.is_some();
                    state.failed = None;
                    state.running =
                        Some(RunningAnnouncer { watching, announcer, port: settings.port, has_key });
                    info!(port = settings.port, "addresses are announced by ARP and NDP (announce: l2)");
                }
                Err(error) => {
                    let why = error.to_string();
                    if state.failed.as_ref().is_none_or(|(_, told)| *told != why) {
                        warn!(%error, "addresses cannot be announced by ARP and NDP; retrying");
                    }
                    let what = match error {
                        seaway_announce::Error::NotPermitted { .. } => Layer2Progress::NotPermitted,
                        _ => Layer2Progress::Failed,
                    };
                    let states = self.all(&wanted.offered, what, &why.as_str().into());
                    state.failed = Some((Instant::now(), why));
                    if self.presence.note_layer2(states) {
                        changed();
                    }
                    return;
                }
            }
        }
        if let Some(running) = &state.running {
            running.announcer.set_desired(self.wanted(wanted));
        }
    }

    fn start(
        &self,
        state: &Status,
        settings: &Layer2Settings,
        changed: &Arc<dyn Fn() + Send + Sync>,
    ) -> Result<Announcer, seaway_announce::Error> {
        let settings = Settings {
            host: self.host.clone(),
            key: state.key.as_ref().map(|it| HeartbeatKey::new(it.expose_secret())),
            port: settings.port,
            timing: Timing::default(),
        };
        let (presence, changed) = (self.presence.clone(), changed.clone());
        Announcer::start(settings, move |states| {
            let states = states_of(states);
            log_changes(&presence.layer2(), &states);
            if presence.note_layer2(states) {
                changed();
            }
        })
    }

    /// All in one state, since when they were in it.
    fn all(
        &self,
        offered: &BTreeSet<IpAddr>,
        what: Layer2Progress,
        detail: &Name,
    ) -> BTreeMap<IpAddr, Layer2State> {
        let (before, now) = (self.presence.layer2(), time(SystemTime::now()));
        let state = |ip: &IpAddr| {
            let same = before.get(ip).filter(|it| it.what == what && it.detail == *detail);
            let since = same.map_or(now, |it| it.since);
            (*ip, Layer2State { what, interface: Name::default(), since, detail: detail.clone() })
        };
        offered.iter().map(state).collect()
    }

    /// Every host may announce what it offers itself: who that is, hosts tell each other.
    fn wanted(&self, wanted: &Layer2Wanted) -> DesiredAnnouncements {
        let peers = wanted.peers.iter();
        let candidates: Arc<[Name]> = peers.clone().map(|it| &it.name).chain([&self.host]).cloned().collect();
        // One that the machine had before, as by keepalived, is not ours to announce.
        let offered = wanted.offered.iter().filter(|ip| self.presence.is_ours(**ip));
        DesiredAnnouncements {
            peers: peers.map(|it| Peer { name: it.name.clone(), addresses: it.addresses.clone() }).collect(),
            addresses: offered
                .map(|ip| WantedAddress { address: *ip, candidates: candidates.clone() })
                .collect(),
            interfaces: wanted.interfaces.clone(),
        }
    }

    /// Withdraws everything and tells other hosts; returns once that is done. What is passed on late begins nothing again.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.ended = true;
        state.end();
        self.presence.note_layer2(BTreeMap::new());
    }

    /// The same; whether it announced anything.
    pub(crate) fn withdraw(&self) -> bool {
        let is_announcing = self.presence.layer2().values().any(|it| it.what.is_announcing());
        self.stop();
        is_announcing
    }

    /// Nothing, while no pool asks for it.
    pub(crate) fn counts(&self) -> Option<Layer2Counts> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let counters = state.running.as_ref().map(|it| it.announcer.counters())?;
        let mut counts = Layer2Counts {
            states: Layer2Progress::ALL.into_iter().map(|it| (it, 0)).collect(),
            moves: state.before.moves + counters.moves,
            conflicts: state.before.conflicts + counters.conflicts,
            overlaps: state.before.overlaps + counters.overlaps,
        };
        for it in self.presence.layer2().values() {
            *counts.states.entry(it.what).or_default() += 1;
        }
        Some(counts)
    }
}

impl Status {
    fn end(&mut self) {
        let Some(running) = self.running.take() else { return };
        let counters = running.announcer.counters();
        self.before = Counters {
            moves: self.before.moves + counters.moves,
            conflicts: self.before.conflicts + counters.conflicts,
            overlaps: self.before.overlaps + counters.overlaps,
        };
        drop(running.watching);
        running.announcer.stop();
    }

    /// Whether there is another key than before. One that cannot be read any more stays in use.
    fn look_at_key(&mut self, file: Option<&Path>) -> bool {
        let is_same_file = self.key_file.as_deref() == file;
        if is_same_file && self.looked.is_some_and(|it| it.elapsed() < RECHECK_INTERVAL) {
            return false;
        }
        self.looked = Some(Instant::now());
        if !is_same_file {
            self.key_file = file.map(Path::to_owned);
        }
        let Some(file) = file else { return self.key.take().is_some() };
        match read_key(file) {
            Ok(key) => {
                self.key_trouble = None;
                let is_same = |it: &SecretString| it.expose_secret() == key.expose_secret();
                let is_other = !self.key.as_ref().is_some_and(is_same);
                if is_other && self.key.is_some() {
                    warn!(file = %file.display(), "the key of hosts that announce addresses changed; until all hosts \
                         have a line of the key in common, two hosts may answer for one address");
                }
                self.key = Some(key);
                is_other
            }
            Err(why) => {
                if self.key_trouble.as_ref() != Some(&why) {
                    warn!("layer2.keyFile: {why}");
                }
                self.key_trouble = Some(why);
                false
            }
        }
    }
}

/// Secrets that their owner alone may read, one in each line: the first signs, and all are accepted.
pub fn read_key(file: &Path) -> Result<SecretString, String> {
    let text = read_secret(file)?;
    let key = text.expose_secret().trim();
    let shortest = key.lines().map(|line| line.trim().len()).filter(|it| *it > 0).min().unwrap_or(0);
    if shortest < SHORTEST_KEY {
        let of_a_line = if key.lines().nth(1).is_some() { " in one of its lines" } else { "" };
        return Err(format!(
            "{} has {shortest} characters{of_a_line}, and a key needs {SHORTEST_KEY}. Type: openssl rand -hex 32 > {0}",
            file.display(),
        ));
    }
    Ok(SecretString::from(key.to_owned()))
}

/// What operators look for first; of many at once, a few.
fn log_changes(before: &BTreeMap<IpAddr, Layer2State>, now: &BTreeMap<IpAddr, Layer2State>) {
    const MOST: usize = 20;
    let what = |states: &BTreeMap<IpAddr, Layer2State>, ip: &IpAddr| states.get(ip).map(|it| it.what);
    let is_announced = |states: &BTreeMap<IpAddr, Layer2State>, ip: &IpAddr| {
        what(states, ip).is_some_and(Layer2Progress::is_announcing)
    };
    let all: BTreeSet<&IpAddr> = before.keys().chain(now.keys()).collect();
    let changed: Vec<&IpAddr> =
        all.into_iter().filter(|ip| is_announced(before, ip) != is_announced(now, ip)).collect();
    for ip in changed.iter().take(MOST) {
        match is_announced(now, ip) {
            true => info!(address = %ip, "this host now announces the address"),
            false => info!(address = %ip, "this host no longer announces the address"),
        }
    }
    if let Some(more @ 1..) = changed.len().checked_sub(MOST) {
        info!(more, "announcements of more addresses by this host began or ended (not listed one by one)");
    }
}

fn states_of(states: &BTreeMap<IpAddr, AddressStatus>) -> BTreeMap<IpAddr, Layer2State> {
    let state = |it: &AddressStatus| {
        let (what, detail) = match &it.what {
            AddressState::NotServed => return None,
            AddressState::Probing => (Layer2Progress::Probing, String::new()),
            AddressState::Announcing => (Layer2Progress::Announcing, String::new()),
            AddressState::Standby { owner } => (Layer2Progress::Standby, owner.to_string()),
            AddressState::NoInterface => (Layer2Progress::NoInterface, String::new()),
            AddressState::Conflict { ours, theirs } => {
                let what = if it.answering { Layer2Progress::Contested } else { Layer2Progress::Conflict };
                (what, format!("{theirs}; this host has {ours}"))
            }
            AddressState::Isolated => (Layer2Progress::Isolated, String::new()),
            AddressState::NoKey => (Layer2Progress::NoKey, String::new()),
            AddressState::NotPermitted => (Layer2Progress::NotPermitted, String::new()),
        };
        let interface = it.interface.as_deref().unwrap_or_default().into();
        Some(Layer2State { what, interface, since: time(it.since), detail: detail.into() })
    };
    states.iter().filter_map(|(ip, it)| Some((*ip, state(it)?))).collect()
}

pub(crate) fn time(at: SystemTime) -> Time {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use seaway_announce::layer2::Mac;
    use tempfile::TempDir;

    use super::*;

    const LONG: &str = "0123456789abcdef0123456789abcdef";

    fn key_file(folder: &TempDir, text: &str) -> PathBuf {
        let path = folder.path().join("layer2.key");
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
        path
    }

    #[test]
    fn a_key_is_long_and_its_owner_alone_may_read_it() {
        let folder = TempDir::new().expect("a folder");
        let read = |path: &Path| read_key(path).map(|it| it.expose_secret().to_owned());
        let path = key_file(&folder, &format!("{LONG}\n"));
        assert_eq!(read(&path), Ok(LONG.to_owned()));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("set");
        assert!(read(&path).expect_err("others may read it").contains("chmod 600"));
        let told = read(&key_file(&folder, &LONG[1..])).expect_err("it is short");
        assert!(told.contains("31 characters") && told.contains("openssl rand -hex 32"), "{told}");
        // While one replaces another there are two, and a short one would be accepted as well as a long one.
        let two = format!("{LONG}\n\n{}\n", LONG.replace('0', "f"));
        assert_eq!(read(&key_file(&folder, &two)), Ok(two.trim().to_owned()));
        for weak in [format!("{LONG}\nabc\n"), format!("abc\n{LONG}\n")] {
            let told = read(&key_file(&folder, &weak)).expect_err("one is short");
            assert!(told.contains("3 characters in one of its lines"), "{told}");
        }
        assert!(read(&key_file(&folder, "\n\n")).expect_err("there is none").contains("0 characters"));
    }

    #[test]
    fn a_key_that_changes_is_noticed_and_one_that_is_gone_stays_in_use() {
        let folder = TempDir::new().expect("a folder");
        let path = key_file(&folder, LONG);
        let mut status = Status::default();
        assert!(!status.look_at_key(None) && status.key.is_none());
        assert!(status.look_at_key(Some(&path)) && status.key.is_some(), "a file is named now");
        assert!(!status.look_at_key(Some(&path)), "it was looked at right now");
        let again = |status: &mut Status| {
            status.looked = None;
            status.look_at_key(Some(&path))
        };
        assert!(!again(&mut status), "it is the same");
        key_file(&folder, &LONG.replace('0', "f"));
        assert!(again(&mut status));
        fs::remove_file(&path).expect("removed");
        assert!(!again(&mut status) && status.key.is_some());
        assert!(status.look_at_key(None) && status.key.is_none(), "no file is named any more");
    }

    #[test]
    fn both_machines_of_a_conflict_are_told_and_whether_this_one_answers() {
        let what = AddressState::Conflict { ours: Mac([2, 0, 0, 0, 0, 1]), theirs: Mac([2, 0, 0, 0, 0, 2]) };
        let said = |answering| {
            let state = AddressStatus {
                what: what.clone(),
                since: UNIX_EPOCH,
                interface: Some("eth0".into()),
                answering,
            };
            let ip: IpAddr = [192, 0, 2, 1].into();
            states_of(&[(ip, state)].into()).remove(&ip).expect("is told")
        };
        assert_eq!(said(false).detail.as_str(), "02:00:00:00:00:02; this host has 02:00:00:00:00:01");
        assert_eq!(
            (said(false).what, said(true).what),
            (Layer2Progress::Conflict, Layer2Progress::Contested)
        );
        assert_eq!(said(true).interface.as_str(), "eth0");
    }
}
