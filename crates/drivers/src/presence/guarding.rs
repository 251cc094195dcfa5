//! Addresses on `lo` answer at our ports alone, where tenants share a cluster: an address that is put there is guarded before it
//! is there. What cannot be guarded is served all the same, and told.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use seaway_announce::{Error, FirewallOutcome, FirewallRules, Steering};
use seaway_model::{Problem, Reason, unit::HostAddresses};
use tracing::{info, warn};

/// Somebody may have cleaned up what he did not know, as a firewall that is loaded again does. The kernel's rules are written
/// again this often, though nothing else changes.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// Rules that are younger are left alone: many looks may follow each other.
const YOUNG: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) struct FirewallGuard {
    state: Mutex<State>,
    steering: Arc<Steering>,
}

#[derive(Debug, Default)]
struct State {
    /// The rules are in the kernel, for all of ours.
    since: Option<Instant>,
    /// Why they are not, as it was told last.
    failed: Option<String>,
    /// Why rules of others may translate what is for ours, though they are guarded.
    translatable: Option<String>,
}

impl FirewallGuard {
    pub(super) fn new(steering: Arc<Steering>) -> FirewallGuard {
        FirewallGuard { state: Mutex::default(), steering }
    }

    /// All of ours are guarded; nothing is done where there are none.
    pub(super) fn protect(&self, ours: impl Iterator<Item = IpAddr>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.since.is_some_and(|it| it.elapsed() < YOUNG) {
            return;
        }
        let ours: Vec<IpAddr> = ours.collect();
        if !ours.is_empty() {
            state.note(self.steering.set_guarded(&ours));
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
        let added = state.since.is_some() && FirewallRules::add(ip).is_ok();
        if !added {
            let all: Vec<IpAddr> = ours.chain([ip]).collect();
            state.note(self.steering.set_guarded(&all));
        }
    }

    /// After it was taken away, or was found to be somebody else's.
    pub(super) fn end(&self, ip: IpAddr) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.since.is_some()
            && let Err(error) = FirewallRules::remove(ip)
        {
            warn!(address = %ip, %error, "cannot remove the address from the nftables table seaway-addresses");
        }
    }

    pub(super) fn clear(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.since.take().is_some()
            && let Err(error) = FirewallRules::clear()
        {
            warn!(%error, "the nftables table inet seaway-addresses cannot be removed");
        }
        if let Err(error) = self.steering.clear() {
            warn!(%error, "the nftables table inet seaway-steering cannot be removed");
        }
    }

    /// What is told of an address that is not guarded.
    pub(super) fn problems(&self, wanted: &HostAddresses) -> Vec<(seaway_model::Owner, Problem)> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((what, fix)) = state.problem_and_fix() else { return Vec::new() };
        let all = wanted.addresses.iter().flat_map(|(ip, owners)| owners.iter().map(move |it| (ip, it)));
        let problem = |(ip, owner): (&IpAddr, &seaway_model::Owner)| {
            let problem = Problem::new(owner.object(), Reason::NotPermitted, format!("at {ip}, {what}"));
            (owner.clone(), problem.fix(fix))
        };
        all.map(problem).collect()
    }
}

impl State {
    fn note(&mut self, done: Result<FirewallOutcome, Error>) {
        let chain = |error: &Error| seaway_engine::chain(error);
        let failed = done.as_ref().err().map(chain);
        match (&self.failed, &failed) {
            (None, Some(why)) => warn!("addresses of pools are not protected: {why}"),
            (Some(_), None) => info!("addresses of pools are protected by nftables"),
            _ => {}
        }
        let translatable = done.ok().and_then(|it| it.translatable).as_ref().map(chain);
        match (&self.translatable, &translatable) {
            (None, Some(why)) => {
                warn!("rules of other programs may redirect traffic to addresses of pools: {why}")
            }
            (Some(_), None) if failed.is_none() => {
                info!("no rules of other programs redirect traffic to addresses of pools any more")
            }
            _ => {}
        }
        self.since = failed.is_none().then(Instant::now);
        (self.failed, self.translatable) = (failed, translatable);
    }

    /// What does not hold at each of ours, and what to do.
    fn problem_and_fix(&self) -> Option<(String, &'static str)> {
        if let Some(why) = &self.failed {
            let fix = "Give seaway the capability NET_ADMIN on a kernel with nf_tables and nft_socket (modprobe nft_socket); \
                       or have a firewall before this machine drop packets to the other ports of this address.";
            return Some((
                format!("ports of this machine that belong to no Service are reachable, too: {why}"),
                fix,
            ));
        }
        let why = self.translatable.as_ref()?;
        let what = "rules of kube-proxy and of hostPort on this machine may send its traffic to pods of other namespaces";
        let fix = "Use Linux 5.2 or later with nft_chain_nat and nft_nat (modprobe nft_chain_nat nft_nat); or let no tenant write \
                   spec.externalIPs or hostPort (docs/tenants.md).";
        Some((format!("{what}: {why}"), fix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_may_translate_is_told_for_as_long_as_they_may() {
        let source = || std::io::Error::other("not supported");
        let cannot = || Error::Failed { doing: "guarding".to_owned(), source: source() };
        let mut state = State::default();
        state.note(Ok(FirewallOutcome { translatable: Some(cannot()) }));
        assert!(state.since.is_some(), "the rest is guarded");
        let (what, fix) = state.problem_and_fix().expect("it is told");
        assert!(
            what.contains("kube-proxy") && what.contains("guarding") && fix.contains("externalIPs"),
            "{what} {fix}"
        );
        state.note(Err(cannot()));
        assert!(
            state
                .problem_and_fix()
                .is_some_and(|(what, _)| what.contains("ports of this machine that belong"))
        );
        state.note(Ok(FirewallOutcome { translatable: None }));
        assert_eq!(state.problem_and_fix(), None);
    }
}
