//! Whose password is next, and who may have one more wait.
//!
//! ```text
//!   namespace ──► Service ──► first come, first served
//!   each in turn   each in turn
//! ```
//! Others are never refused because of who has many: when much waits, each has a share of the room, and who has nothing waiting
//! has room for one. The shares shrink while more come, so all that wait are a few times the room at most.

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
};

use seaway_model::{Name, ObjectRef, load_balancer::PasswordHash};

/// What waits, of all: hashed in 13 seconds, where each takes 50 ms. Requests do not wait for longer than 10.
const MOST: usize = 256;
pub(super) const MOST_OF_NAMESPACE: usize = 128;
pub(super) const MOST_OF_SERVICE: usize = 64;
pub(super) const MOST_OF_CLIENT: usize = 4;

/// Of bcrypt with a cost of 10. Room is counted in these, so that fewer costly ones fit.
const USUAL_COST: usize = 1 << 10;
/// A round of bcrypt takes as long as so many of sha-crypt.
const SHA_ROUNDS: u32 = 24;

/// How long it takes to hash, in rounds of bcrypt.
pub(super) fn cost(hash: &PasswordHash) -> usize {
    match hash {
        PasswordHash::Bcrypt { cost, .. } => 1_usize.checked_shl(u32::from(*cost)).unwrap_or(usize::MAX),
        PasswordHash::Sha256Crypt { rounds, .. } | PasswordHash::Sha512Crypt { rounds, .. } => {
            usize::try_from(rounds / SHA_ROUNDS).unwrap_or(usize::MAX)
        }
    }
}

#[derive(Default)]
pub(super) struct FairPasswordQueue {
    all: Load,
    namespaces: HashMap<Name, Namespace>,
    order: VecDeque<Name>,
}

#[derive(Default)]
struct Namespace {
    load: Load,
    /// Those that have any, the next first.
    services: VecDeque<(Name, Service)>,
}

#[derive(Default)]
struct Service {
    load: Load,
    waiting: VecDeque<(u128, usize)>,
}

#[derive(Clone, Copy, Default)]
struct Load {
    number: usize,
    cost: usize,
}

impl Load {
    fn add(&mut self, cost: usize) {
        self.number = self.number.saturating_add(1);
        self.cost = self.cost.saturating_add(cost);
    }

    fn remove(&mut self, cost: usize) {
        self.number = self.number.saturating_sub(1);
        self.cost = self.cost.saturating_sub(cost);
    }

    /// One more is within that room. The first always is.
    fn has_room(self, cost: usize, room: usize) -> bool {
        let fits = self.cost.saturating_add(cost) <= room.saturating_mul(USUAL_COST);
        self.number == 0 || self.number < room && fits
    }

    /// What one of so many may have of that room: `most`, until it is full.
    fn share(self, cost: usize, room: usize, of: usize, most: usize) -> usize {
        if self.has_room(cost, room) { most } else { room.checked_div(of).unwrap_or(room).min(most) }
    }
}

impl FairPasswordQueue {
    pub(super) fn admits(&self, of: &ObjectRef, cost: usize) -> bool {
        // Nothing of it waits.
        let Some(own) = self.namespaces.get(&of.namespace) else { return true };
        let share = self.all.share(cost, MOST, self.namespaces.len(), MOST_OF_NAMESPACE);
        if !own.load.has_room(cost, share) {
            return false;
        }
        let Some((_, service)) = own.services.iter().find(|(name, _)| *name == of.name) else { return true };
        let share = own.load.share(cost, MOST_OF_SERVICE, own.services.len(), MOST_OF_SERVICE);
        service.load.has_room(cost, share)
    }

    pub(super) fn push(&mut self, of: &ObjectRef, fingerprint: u128, cost: usize) {
        self.all.add(cost);
        let namespace = self.namespaces.entry(of.namespace.clone()).or_default();
        if namespace.load.number == 0 {
            self.order.push_back(of.namespace.clone());
        }
        namespace.load.add(cost);
        let at = namespace.services.iter().position(|(name, _)| *name == of.name);
        if at.is_none() {
            namespace.services.push_back((of.name.clone(), Service::default()));
        }
        let at = at.unwrap_or(namespace.services.len().saturating_sub(1));
        if let Some((_, service)) = namespace.services.get_mut(at) {
            service.load.add(cost);
            service.waiting.push_back((fingerprint, cost));
        }
    }

    /// The first that somebody still wants. One that is left takes no turn.
    pub(super) fn pop<T>(&mut self, mut take: impl FnMut(u128) -> Option<T>) -> Option<T> {
        loop {
            let name = self.order.pop_front()?;
            let Some(namespace) = self.namespaces.get_mut(&name) else { continue };
            let taken = namespace.pop(&mut self.all, &mut take);
            if namespace.load.number == 0 {
                self.namespaces.remove(&name);
            } else {
                self.order.push_back(name);
            }
            if taken.is_some() {
                return taken;
            }
        }
    }
}

impl Namespace {
    fn pop<T>(&mut self, all: &mut Load, take: &mut impl FnMut(u128) -> Option<T>) -> Option<T> {
        loop {
            let (name, mut service) = self.services.pop_front()?;
            let mut taken = None;
            while taken.is_none()
                && let Some((fingerprint, cost)) = service.waiting.pop_front()
            {
                [&mut *all, &mut self.load, &mut service.load].into_iter().for_each(|it| it.remove(cost));
                taken = take(fingerprint);
            }
            if !service.waiting.is_empty() {
                self.services.push_back((name, service));
            }
            if taken.is_some() {
                return taken;
            }
        }
    }
}

/// What each client has waiting: the namespace of each.
#[derive(Default)]
pub(super) struct Clients(HashMap<IpAddr, Vec<Name>>);

impl Clients {
    /// A namespace may believe headers that name any client (the PROXY protocol). So what is said to be of a client in one
    /// does not keep it from having one in another.
    pub(super) fn admits(&self, client: IpAddr, namespace: &Name) -> bool {
        let fits = |its: &Vec<Name>| its.len() < MOST_OF_CLIENT || !its.contains(namespace);
        self.0.get(&client).is_none_or(fits)
    }

    pub(super) fn add(&mut self, client: IpAddr, namespace: &Name) {
        self.0.entry(client).or_default().push(namespace.clone());
    }

    pub(super) fn remove(&mut self, client: IpAddr, namespace: &Name) {
        let Some(its) = self.0.get_mut(&client) else { return };
        if let Some(at) = its.iter().position(|it| it == namespace) {
            its.swap_remove(at);
        }
        if its.is_empty() {
            self.0.remove(&client);
        }
    }
}
