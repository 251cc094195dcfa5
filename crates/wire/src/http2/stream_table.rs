//! The streams of a connection by their number, in slots that are used again.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// One stream of one connection; it is never another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamKey {
    slot: u32,
    pub id: u32,
}

#[derive(Debug)]
pub(super) struct StreamTable<S> {
    places: Vec<Option<(u32, S)>>,
    free: Vec<u32>,
    by_id: HashMap<u32, u32, BuildHasherDefault<StreamIdHasher>>,
}

/// Places that are kept while there is no stream.
const KEPT: usize = 8;

/// Numbers of streams go up by twos: spreading them is enough. Who chooses them badly slows only itself down, and no
/// more than as many as it may have at a time.
#[derive(Debug, Default)]
struct StreamIdHasher(u64);

impl Hasher for StreamIdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl<S> Default for StreamTable<S> {
    fn default() -> StreamTable<S> {
        StreamTable { places: Vec::new(), free: Vec::new(), by_id: HashMap::default() }
    }
}

impl<S> StreamTable<S> {
    pub(super) fn insert(&mut self, id: u32, stream: S) -> StreamKey {
        let slot = self.free.pop().unwrap_or_else(|| {
            let slot = self.places.len() as u32;
            self.places.push(None);
            slot
        });
        if let Some(place) = self.places.get_mut(slot as usize) {
            *place = Some((id, stream));
        }
        self.by_id.insert(id, slot);
        StreamKey { slot, id }
    }

    pub(super) fn find(&self, id: u32) -> Option<StreamKey> {
        self.by_id.get(&id).map(|slot| StreamKey { slot: *slot, id })
    }

    pub(super) fn of(&self, key: StreamKey) -> Option<&S> {
        let (id, stream) = self.places.get(key.slot as usize)?.as_ref()?;
        (*id == key.id).then_some(stream)
    }

    pub(super) fn of_mut(&mut self, key: StreamKey) -> Option<&mut S> {
        let (id, stream) = self.places.get_mut(key.slot as usize)?.as_mut()?;
        (*id == key.id).then_some(stream)
    }

    pub(super) fn remove(&mut self, key: StreamKey) -> Option<S> {
        self.of(key)?;
        let (_, stream) = self.places.get_mut(key.slot as usize)?.take()?;
        self.by_id.remove(&key.id);
        self.free.push(key.slot);
        if self.by_id.is_empty() && self.places.len() > KEPT {
            // A connection that is idle holds little.
            *self = StreamTable::default();
        }
        Some(stream)
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &S> {
        self.places.iter().flatten().map(|(_, stream)| stream)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (StreamKey, &mut S)> {
        self.places.iter_mut().enumerate().filter_map(|(slot, place)| {
            let (id, stream) = place.as_mut()?;
            Some((StreamKey { slot: slot as u32, id: *id }, stream))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_never_anothers() {
        let mut slots = StreamTable::default();
        let a = slots.insert(1, "a");
        let b = slots.insert(3, "b");
        slots.remove(a);
        let c = slots.insert(5, "c");
        assert_eq!((slots.of(a), slots.of(b), slots.of(c)), (None, Some(&"b"), Some(&"c")));
        assert_eq!((slots.find(1), slots.find(5)), (None, Some(c)));
        slots.remove(a);
        assert_eq!(slots.len(), 2, "a key that is gone removes nobody else");
    }
}
