//! Entries under small numbers that are used again, told apart by a generation. The crate `slab`, which health checks use, has no
//! generations, and an event of epoll may be for an entry that is gone.

use super::Token;

pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

struct Slot<T> {
    generation: u32,
    entry: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// The index and generation that the next insertion will have.
    pub(crate) fn next(&self) -> (u32, u32) {
        match self.free.last().and_then(|index| self.slots.get(*index as usize).map(|slot| (*index, slot))) {
            Some((index, slot)) => (index, slot.generation),
            None => (self.slots.len() as u32, 0),
        }
    }

    pub(crate) fn insert(&mut self, entry: T) -> u32 {
        let free = self.free.pop();
        match free.and_then(|index| self.slots.get_mut(index as usize).map(|slot| (index, slot))) {
            Some((index, slot)) => {
                slot.entry = Some(entry);
                index
            }
            None => {
                let index = self.slots.len() as u32;
                self.slots.push(Slot { generation: 0, entry: Some(entry) });
                index
            }
        }
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let slot = self.slots.get_mut(index as usize)?;
        let entry = slot.entry.take()?;
        slot.generation = slot.generation.wrapping_add(1) & Token::GENERATIONS;
        self.free.push(index);
        Some(entry)
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots.get_mut(index as usize)?.entry.as_mut()
    }

    /// The entry, if it is still the one of that generation.
    pub(crate) fn of_generation(&mut self, index: u32, generation: u32) -> Option<&mut T> {
        let slot = self.slots.get_mut(index as usize)?;
        if slot.generation == generation { slot.entry.as_mut() } else { None }
    }

    pub(crate) fn generation(&self, index: u32) -> u32 {
        self.slots.get(index as usize).map_or(0, |slot| slot.generation)
    }

    pub(crate) fn indexes(&self) -> Vec<u32> {
        (0_u32..).zip(&self.slots).filter(|(_, slot)| slot.entry.is_some()).map(|(index, _)| index).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_that_is_used_again_has_another_generation() {
        let mut slab = Slab::default();
        assert_eq!(slab.next(), (0, 0));
        let index = slab.insert("one");
        assert_eq!(slab.of_generation(index, 0), Some(&mut "one"));
        assert_eq!(slab.remove(index), Some("one"));
        assert_eq!(slab.remove(index), None);
        assert_eq!(slab.next(), (0, 1));
        assert_eq!(slab.insert("two"), index);
        assert_eq!(slab.of_generation(index, 0), None);
        assert_eq!(slab.of_generation(index, 1), Some(&mut "two"));
        assert_eq!(slab.indexes(), [index]);
    }
}
