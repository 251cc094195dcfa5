//! How many connections are held at once, and by whom: whoever is elsewhere cannot keep this machine out.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// For this machine, over all sockets. Others of it wait.
const OWN: usize = 128;
/// For all who are elsewhere, over all sockets. Others of them are closed at once.
const STRANGERS: usize = 64;
/// For one who is elsewhere: more than a browser opens.
const EACH: usize = 8;

pub(super) struct Places {
    own: Arc<Semaphore>,
    strangers: Mutex<HashMap<IpAddr, usize>>,
}

/// Held as long as a connection is.
pub(super) enum Place {
    Own { _permit: OwnedSemaphorePermit },
    Stranger { of: IpAddr, places: Arc<Places> },
}

impl Places {
    pub(super) fn new() -> Arc<Places> {
        Arc::new(Places { own: Arc::new(Semaphore::new(OWN)), strangers: Mutex::default() })
    }

    /// None of whoever has too many already, or comes when others have all.
    pub(super) async fn take(self: &Arc<Places>, peer: IpAddr) -> Option<Place> {
        let peer = peer.to_canonical();
        if peer.is_loopback() {
            let permit = Arc::clone(&self.own).acquire_owned().await.ok()?;
            return Some(Place::Own { _permit: permit });
        }
        let of = whole(peer);
        let mut strangers = self.strangers();
        let all: usize = strangers.values().sum();
        let held = strangers.get(&of).copied().unwrap_or_default();
        if all >= STRANGERS || held >= EACH {
            return None;
        }
        strangers.insert(of, held + 1);
        Some(Place::Stranger { of, places: Arc::clone(self) })
    }

    /// Nothing is left half done under it.
    fn strangers(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Place::Stranger { of, places } = self else { return };
        let mut strangers = places.strangers();
        if let Some(held) = strangers.get_mut(of) {
            *held -= 1;
            if *held == 0 {
                strangers.remove(of);
            }
        }
    }
}

/// A machine of IPv6 has a /64 to choose its addresses from.
fn whole(peer: IpAddr) -> IpAddr {
    match peer {
        IpAddr::V4(_) => peer,
        IpAddr::V6(it) => Ipv6Addr::from_bits(it.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_who_is_elsewhere_has_a_few_places_and_all_of_them_not_those_of_this_machine() {
        let places = Places::new();
        let take = async |peer: String| places.take(peer.parse().unwrap()).await;
        let mut held = Vec::new();
        for _ in 0..EACH {
            held.push(take("2001:db8::1".to_owned()).await.unwrap());
        }
        assert!(take("2001:db8::2:1".to_owned()).await.is_none(), "the same /64");
        while held.len() < STRANGERS {
            held.push(take(format!("192.0.2.{}", held.len())).await.unwrap());
        }
        assert!(take("198.51.100.1".to_owned()).await.is_none(), "all have all");
        let _own = take("::ffff:127.0.0.1".to_owned()).await.unwrap();
        held.remove(0);
        assert!(take("2001:db8::2:1".to_owned()).await.is_some(), "who left gave its place back");
        held.clear();
        assert!(places.strangers().is_empty());
    }
}
