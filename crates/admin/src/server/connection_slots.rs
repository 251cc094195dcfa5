//! How many connections are held at once, and by whom.
//!
//! Nobody is kept waiting, and nobody can keep others out by holding connections: where all places are held, whoever comes
//! takes the place of one that is idle, of the source that has most. So the kubelet's question whether the process lives,
//! which is asked and answered in no time, is answered however many connections others hold.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::oneshot;

/// For this machine, over all sockets.
const OWN: usize = 128;
/// For all who are elsewhere, over all sockets.
const STRANGERS: usize = 64;
/// For one who is elsewhere: more than a browser opens.
const EACH: usize = 8;

pub(super) struct ConnectionSlots {
    held: Mutex<SlotTable>,
}

#[derive(Default)]
struct SlotTable {
    /// In the order in which they came.
    all: BTreeMap<u64, SlotHolder>,
    next: u64,
}

struct SlotHolder {
    source: Source,
    busy: Arc<AtomicBool>,
    /// Its place is somebody else's now.
    lost: oneshot::Sender<()>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Of this machine, whose processes cannot be told apart.
    Own,
    Stranger(IpAddr),
}

/// Held as long as a connection is, or until it is taken away.
pub(super) struct ConnectionSlot {
    id: u64,
    places: Arc<ConnectionSlots>,
    busy: Arc<AtomicBool>,
    lost: oneshot::Receiver<()>,
}

impl ConnectionSlots {
    pub(super) fn new() -> Arc<ConnectionSlots> {
        Arc::new(ConnectionSlots { held: Mutex::default() })
    }

    pub(super) fn take(self: &Arc<ConnectionSlots>, peer: IpAddr) -> ConnectionSlot {
        let peer = peer.to_canonical();
        let source = if peer.is_loopback() { Source::Own } else { Source::Stranger(whole(peer)) };
        let mut held = self.held();
        held.make_room(source);
        let id = held.next;
        held.next = held.next.wrapping_add(1);
        let (tell, lost) = oneshot::channel();
        let busy = Arc::new(AtomicBool::new(false));
        held.all.insert(id, SlotHolder { source, busy: Arc::clone(&busy), lost: tell });
        ConnectionSlot { id, places: Arc::clone(self), busy, lost }
    }

    /// Nothing is left half done under it.
    fn held(&self) -> MutexGuard<'_, SlotTable> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotTable {
    fn count(&self, counts: impl Fn(Source) -> bool) -> usize {
        self.all.values().filter(|it| counts(it.source)).count()
    }

    fn make_room(&mut self, source: Source) {
        let is_stranger = |it: Source| it != Source::Own;
        match source {
            Source::Own if self.count(|it| it == source) >= OWN => self.displace(|it| it == source),
            Source::Stranger(_) if self.count(|it| it == source) >= EACH => {
                self.displace(|it| it == source);
            }
            Source::Stranger(_) if self.count(is_stranger) >= STRANGERS => self.displace(is_stranger),
            _ => {}
        }
    }

    /// Of these: one of the source that has most; rather one that is idle; the oldest.
    fn displace(&mut self, of: impl Fn(Source) -> bool) {
        let those = self.all.iter().filter(|(_, it)| of(it.source));
        let first = those.min_by_key(|(id, it)| {
            let share = self.count(|other| other == it.source);
            (Reverse(share), it.busy.load(Ordering::Relaxed), **id)
        });
        let Some(id) = first.map(|(id, _)| *id) else { return };
        if let Some(holder) = self.all.remove(&id) {
            // Its connection may have ended by itself.
            let _ = holder.lost.send(());
        }
    }
}

impl ConnectionSlot {
    /// While a request is being answered.
    pub(super) fn busy_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.busy)
    }

    /// Returns when another connection has got this slot.
    pub(super) async fn until_evicted(&mut self) {
        // Its sender is dropped by nobody but who takes it away, or at the end of this place.
        let _ = (&mut self.lost).await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.places.held().all.remove(&self.id);
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

    fn is_lost(place: &mut ConnectionSlot) -> bool {
        place.lost.try_recv().is_ok()
    }

    fn take(places: &Arc<ConnectionSlots>, peer: &str) -> ConnectionSlot {
        places.take(peer.parse().unwrap())
    }

    fn lost(held: &mut [ConnectionSlot]) -> Vec<usize> {
        (0..held.len()).filter(|it| is_lost(&mut held[*it])).collect()
    }

    #[test]
    fn whoever_has_too_many_takes_them_from_himself() {
        let places = ConnectionSlots::new();
        let mut others = [take(&places, "192.0.2.1"), take(&places, "127.0.0.1")];
        let mut held: Vec<ConnectionSlot> = (0..EACH).map(|_| take(&places, "2001:db8::1")).collect();
        held[0].busy_flag().store(true, Ordering::Relaxed);
        // The same /64.
        let _more = take(&places, "2001:db8::2:1");
        assert_eq!(lost(&mut held), [1], "the oldest that is idle");
        assert_eq!(lost(&mut others), [0; 0]);
    }

    /// Eight pods that hold eight connections each made controllers fail their probes.
    #[test]
    fn the_kubelet_is_let_in_however_many_connections_others_hold() {
        let places = ConnectionSlots::new();
        let hold = |it: usize| take(&places, &format!("192.0.2.{}", it / EACH + 1));
        let mut held: Vec<ConnectionSlot> = (0..STRANGERS).map(hold).collect();
        let mut kubelet = take(&places, "198.51.100.1");
        assert_eq!(lost(&mut held), [0]);
        for round in 0..1_000 {
            held.push(take(&places, &format!("192.0.2.{}", round % EACH + 1)));
            assert!(!is_lost(&mut kubelet), "who has one place keeps it: {round}");
        }
    }

    #[test]
    fn a_probe_of_this_machine_is_let_in_too_and_those_elsewhere_take_none_of_its_places() {
        let places = ConnectionSlots::new();
        let mut own: Vec<ConnectionSlot> = (0..OWN).map(|_| take(&places, "::ffff:127.0.0.1")).collect();
        let _strangers: Vec<ConnectionSlot> =
            (0..STRANGERS + 9).map(|it| take(&places, &format!("192.0.2.{it}"))).collect();
        assert_eq!(lost(&mut own), [0; 0]);
        let _probe = take(&places, "127.0.0.1");
        assert_eq!(lost(&mut own), [0]);
    }

    #[test]
    fn who_leaves_gives_its_place_back() {
        let places = ConnectionSlots::new();
        drop((0..3 * STRANGERS).map(|it| take(&places, &format!("192.0.2.{it}"))).collect::<Vec<_>>());
        assert!(places.held().all.is_empty());
    }
}
