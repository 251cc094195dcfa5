//! Maps whose keys are addresses in the memory of this process, as of what an `Arc` holds. No client chooses them: a hash that can be
//! computed in a few instructions does, where the standard library's is made for keys of strangers.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use seaway_snapshot::mix;

pub(crate) type ByAddress<V> = HashMap<usize, V, BuildHasherDefault<AddressHasher>>;

#[derive(Default)]
pub(crate) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_usize(usize::from(*byte)));
    }

    fn write_usize(&mut self, number: usize) {
        self.0 = mix(self.0 ^ number as u64);
    }
}
