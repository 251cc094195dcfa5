//! Which member a client address had last: one table per pool and process, only where a Service asks for it.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use seaway_snapshot::client_hash;

/// Clients that are remembered per pool. Beyond that the first choice, which is a hash, mostly says the same.
const MOST: usize = 1 << 17;
const SHARDS: usize = 16;

#[derive(Default)]
pub(crate) struct AffinityTable {
    shards: [Mutex<HashMap<IpAddr, Entry>>; SHARDS],
}

#[derive(Clone, Copy)]
struct Entry {
    member: SocketAddr,
    seen: u64,
}

impl AffinityTable {
    pub(crate) fn member_of(&self, client: IpAddr, time: Duration, now: u64) -> Option<SocketAddr> {
        let entry = *self.shard(client).get(&client.to_canonical())?;
        (!expired(entry, time, now)).then_some(entry.member)
    }

    pub(crate) fn remember(&self, client: IpAddr, member: SocketAddr, time: Duration, now: u64) {
        let mut shard = self.shard(client);
        let client = client.to_canonical();
        if shard.len() >= MOST / SHARDS && !shard.contains_key(&client) {
            make_room(&mut shard, time, now);
        }
        shard.insert(client, Entry { member, seen: now });
    }

    #[allow(clippy::indexing_slicing, reason = "a remainder of how many there are")]
    fn shard(&self, client: IpAddr) -> MutexGuard<'_, HashMap<IpAddr, Entry>> {
        let shard = (client_hash(client) >> 60) as usize % SHARDS;
        // Entries are written in one go, so a table is whole even if a thread died over it.
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn expired(entry: Entry, time: Duration, now: u64) -> bool {
    now.saturating_sub(entry.seen) > time.as_millis() as u64
}

/// Old entries go, and an eighth of all if that is not enough, so that a full table is not walked for every client.
fn make_room(shard: &mut HashMap<IpAddr, Entry>, time: Duration, now: u64) {
    shard.retain(|_, entry| !expired(*entry, time, now));
    let room = MOST / SHARDS / 8;
    if shard.len().saturating_add(room) > MOST / SHARDS {
        let mut ages: Vec<u64> = shard.values().map(|entry| entry.seen).collect();
        let (_, oldest_kept, _) = ages.select_nth_unstable(room);
        let oldest_kept = *oldest_kept;
        let mut surplus = room;
        shard.retain(|_, entry| {
            let goes = surplus > 0 && entry.seen <= oldest_kept;
            surplus = usize::saturating_sub(surplus, goes.into());
            !goes
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn member(last: u8) -> SocketAddr {
        ([10, 0, 0, last], 80).into()
    }

    #[test]
    fn a_client_keeps_its_member_while_it_comes_back_in_time() {
        let table = AffinityTable::default();
        let client = IpAddr::from([1, 2, 3, 4]);
        table.remember(client, member(1), Duration::from_secs(1), 1000);
        assert_eq!(table.member_of(client, Duration::from_secs(1), 2000), Some(member(1)));
        assert_eq!(table.member_of(client, Duration::from_secs(1), 2001), None);
    }

    #[test]
    fn the_table_is_bounded_and_keeps_the_youngest() {
        let table = AffinityTable::default();
        let clients = 2 * MOST as u32;
        for number in 0..clients {
            table.remember(IpAddr::from(number.to_be_bytes()), member(1), HOUR, u64::from(number) + 1);
        }
        let kept: usize = table.shards.iter().map(|shard| shard.lock().unwrap().len()).sum();
        assert!(kept <= MOST && kept > MOST / 2, "{kept}");
        let last = IpAddr::from((clients - 1).to_be_bytes());
        assert_eq!(table.member_of(last, HOUR, u64::from(clients)), Some(member(1)));
        assert_eq!(table.member_of(IpAddr::from([0, 0, 0, 0]), HOUR, u64::from(clients)), None);
    }
}
