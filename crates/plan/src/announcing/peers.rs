//! With whom a host has BGP sessions.

use std::collections::BTreeMap;

use seaway_model::{
    Kind, Name, ObjectRef, Time,
    bgp::{Password, PeerAddress, Session},
    fact::{AnnouncementObject, BgpPeer, Labels},
};

use super::{AnnouncingObjects, matches_any};

/// Where Secrets of a folder are that say no namespace.
const OF_FOLDER: &str = "default";

impl AnnouncingObjects {
    /// Without their routes, in the order of their names.
    pub(crate) fn sessions(&self, host: &Labels, is_cluster: bool) -> Vec<Session> {
        let of_host = self.peers_of(host).into_values();
        let mut sessions: Vec<Session> =
            of_host.map(|(it, peer)| self.session(it, peer, is_cluster)).collect();
        sessions.sort_by(|a, b| a.name.cmp(&b.name));
        sessions
    }

    /// One for each address: of several objects, the oldest.
    fn peers_of(&self, host: &Labels) -> BTreeMap<Target, (&AnnouncementObject, &BgpPeer)> {
        let mut peers: Vec<_> = self.peers().filter(|(_, peer)| selects(peer, host)).collect();
        peers.sort_by_key(|(it, _)| age(it));
        let mut chosen = BTreeMap::new();
        for (it, peer) in peers {
            chosen.entry(target(peer)).or_insert((it, peer));
        }
        chosen
    }

    pub(crate) fn has_sessions(&self, host: &Labels) -> bool {
        self.peers().any(|(_, peer)| selects(peer, host))
    }

    /// Of those that have no session on some host, since an older one is for the same address: which that is.
    pub(super) fn displaced(&self, hosts: &[Labels]) -> BTreeMap<ObjectRef, ObjectRef> {
        let mut displaced = BTreeMap::new();
        for host in hosts {
            let chosen = self.peers_of(host);
            for (it, peer) in self.peers().filter(|(_, peer)| selects(peer, host)) {
                let first = chosen.get(&target(peer)).map(|(first, _)| &first.object);
                if let Some(first) = first.filter(|first| **first != it.object) {
                    displaced.insert(it.object.clone(), first.clone());
                }
            }
        }
        displaced
    }

    fn session(&self, it: &AnnouncementObject, peer: &BgpPeer, is_cluster: bool) -> Session {
        Session {
            name: peer_name(&it.object),
            to: peer.to.clone(),
            local_as: peer.local_as,
            remote_as: peer.remote_as,
            router_id: peer.router_id,
            hold: peer.hold,
            keepalive: peer.keepalive,
            connect_retry: peer.connect_retry,
            password: peer.password.as_ref().map(|it| self.password(it, is_cluster)),
            hops: peer.hops,
            graceful_restart: peer.graceful_restart,
            bfd: peer.bfd.as_ref().and_then(|name| self.profile(name)),
            next_hops: peer.next_hops,
            families: peer.families,
            routes: Vec::new(),
        }
    }

    pub(super) fn password(&self, secret: &ObjectRef, is_cluster: bool) -> Password {
        if is_cluster {
            return Password { secret: secret.clone(), value: None };
        }
        let secret = in_folder(secret);
        let value = self.passwords.get(&secret).cloned();
        Password { secret, value }
    }
}

pub(super) fn in_folder(secret: &ObjectRef) -> ObjectRef {
    let namespace = Some(secret.namespace.clone()).filter(|it| !it.is_empty());
    let namespace = namespace.unwrap_or_else(|| OF_FOLDER.into());
    ObjectRef::new(Kind::Secret, namespace, secret.name.clone())
}

type Target = (u8, Name, u16);

fn target(peer: &BgpPeer) -> Target {
    match &peer.to {
        PeerAddress::Ip { address, port, .. } => (0, address.to_string().into(), *port),
        PeerAddress::Interface(name) => (1, name.clone(), 0),
    }
}

fn selects(peer: &BgpPeer, host: &Labels) -> bool {
    peer.host_selectors.is_empty() || matches_any(&peer.host_selectors, host)
}

fn age(it: &AnnouncementObject) -> (Option<Time>, ObjectRef) {
    (it.created, it.object.clone())
}

/// As sessions and reports call it.
fn peer_name(object: &ObjectRef) -> Name {
    match object.namespace.is_empty() {
        true => object.name.clone(),
        false => format!("{}/{}", object.namespace, object.name).into(),
    }
}
