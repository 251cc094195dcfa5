//! Addresses on `lo` answer at our ports alone, where tenants share a cluster: an address that is put there is guarded before it
//! is there. What cannot be guarded is served all the same, and told.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use seaway_announce::{Error, Guard, Steering};
use seaway_model::{Problem, Reason, unit::Present};
use tracing::{info, warn};

/// Somebody may have cleaned up what he did not know, as a firewall that is loaded again does. The kernel's rules are written
/// again this often, though nothing else changes.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// Rules that are younger are left alone: many looks may follow each other.
const YOUNG: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) struct Guarding {
    state: Mutex<State>,
    steering: Arc<Steering>,
}

#[derive(Debug, Default)]
struct State {
    /// The rules are in the kernel, for all of ours.
    since: Option<Instant>,
    /// Why they are not, as it was told last.
    failed: Option<String>,
}

impl Guarding {
    pub(super) fn new(steering: Arc<Steering>) -> Guarding {
        Guarding { state: Mutex::default(), steering }
    }

    /// All of ours are guarded; nothing is done where there are none.
    pub(super) fn keep(&self, ours: impl Iterator<Item = IpAddr>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.since.is_some_and(|it| it.elapsed() < YOUNG) {
            return;
        }
        let ours: Vec<IpAddr> = ours.collect();
        if !ours.is_empty() {
            state.note(self.steering.guard(&ours));
        }
    }

    /// Before an address is put on `lo`, beside those that are there.
    pub(super) fn begin(&self, ip: IpAddr, ours: impl Iterator<Item = IpAddr>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.failed.is_some() {
            // All of them are tried together when they are looked at next.
            return;
        }
        // Its table may be gone: then it is made anew.
        let added = state.since.is_some() && Guard::add(ip).is_ok();
        if !added {
            let all: Vec<IpAddr> = ours.chain([ip]).collect();
            state.note(self.steering.guard(&all));
        }
    }

    /// After it was taken away, or was found to be somebody else's.
    pub(super) fn end(&self, ip: IpAddr) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.since.is_some()
            && let Err(error) = Guard::remove(ip)
        {
            warn!(address = %ip, %error, "cannot remove the address from the nftables table seaway-addresses");
        }
    }

    pub(super) fn clear(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.since.take().is_some()
            && let Err(error) = Guard::clear()
        {
            warn!(%error, "the table inet seaway-addresses of nftables stays");
        }
        if let Err(error) = self.steering.clear() {
            warn!(%error, "the table inet seaway-steering of nftables stays");
        }
    }

    /// What is told of an address that is not guarded.
    pub(super) fn problems(&self, wanted: &Present) -> Vec<(seaway_model::Owner, Problem)> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(why) = &state.failed else { return Vec::new() };
        let all = wanted.addresses.iter().flat_map(|(ip, owners)| owners.iter().map(move |it| (ip, it)));
        let problem = |(ip, owner): (&IpAddr, &seaway_model::Owner)| {
            let message = format!("at {ip}, other ports of this machine answer as well: {why}");
            let fix = "Give seaway the capability NET_ADMIN on a kernel with nf_tables and nft_socket (modprobe nft_socket); \
                       or drop what comes to other ports of it before it comes here.";
            (owner.clone(), Problem::new(owner.object(), Reason::NotPermitted, message).fix(fix))
        };
        all.map(problem).collect()
    }
}

impl State {
    fn note(&mut self, done: Result<(), Error>) {
        let failed = done.err().map(|error| seaway_engine::chain(&error));
        match (&self.failed, &failed) {
            (None, Some(why)) => warn!("addresses of pools are not guarded: {why}"),
            (Some(_), None) => info!("addresses of pools are guarded"),
            _ => {}
        }
        self.since = failed.is_none().then(Instant::now);
        self.failed = failed;
    }
}
