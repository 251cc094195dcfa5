//! bcrypt (Provos and Mazières, 1999): Blowfish, whose keys are made again and again.

use super::pi;

/// So much of a password counts.
const LONGEST: usize = 72;

struct Blowfish {
    keys: [u32; 18],
    boxes: [[u32; 256]; 4],
}

pub(super) fn hash(cost: u8, salt: &[u8; 16], password: &[u8]) -> [u8; 23] {
    let mut key = password.to_vec();
    key.push(0);
    key.truncate(LONGEST);
    let mut blowfish = Blowfish { keys: pi::KEYS, boxes: pi::BOXES };
    blowfish.expand(&key, salt);
    for _ in 0..1_u64.checked_shl(cost.into()).unwrap_or_default() {
        blowfish.expand(&key, &[0]);
        blowfish.expand(salt, &[0]);
    }
    let mut hash = [0; 24];
    for (text, out) in b"OrpheanBeholderScryDoubt".chunks_exact(8).zip(hash.chunks_exact_mut(8)) {
        let (mut left, mut right) = halves(text);
        for _ in 0..64 {
            (left, right) = blowfish.encrypt(left, right);
        }
        out.copy_from_slice(&(u64::from(left) << 32 | u64::from(right)).to_be_bytes());
    }
    let [rest @ .., _] = hash;
    rest
}

impl Blowfish {
    /// Mixes in the key, and replaces all by what is encrypted with it, the salt beginning again at its end.
    fn expand(&mut self, key: &[u8], salt: &[u8]) {
        let mut words = words(key);
        for own in &mut self.keys {
            *own ^= words.next().unwrap_or_default();
        }
        let mut salt = self::words(salt);
        let (mut left, mut right) = (0, 0);
        let mut next = |it: &Blowfish| {
            (left, right) =
                it.encrypt(left ^ salt.next().unwrap_or_default(), right ^ salt.next().unwrap_or_default());
            [left, right]
        };
        for at in (0..self.keys.len()).step_by(2) {
            let made = next(self);
            self.keys.iter_mut().skip(at).zip(made).for_each(|(own, made)| *own = made);
        }
        for number in 0..self.boxes.len() {
            for at in (0..256).step_by(2) {
                let made = next(self);
                let own = self.boxes.get_mut(number).and_then(|it| it.get_mut(at..));
                own.into_iter().flatten().zip(made).for_each(|(own, made)| *own = made);
            }
        }
    }

    fn encrypt(&self, mut left: u32, mut right: u32) -> (u32, u32) {
        let [rounds @ .., before_last, last] = &self.keys;
        for key in rounds {
            left ^= key;
            right ^= self.mixed(left);
            (left, right) = (right, left);
        }
        (right ^ last, left ^ before_last)
    }

    fn mixed(&self, word: u32) -> u32 {
        let [a, b, c, d] = word.to_be_bytes();
        let [first, second, third, fourth] = &self.boxes;
        // A byte is always within 256 of them.
        let at = |of: &[u32; 256], byte: u8| of.get(usize::from(byte)).copied().unwrap_or_default();
        (at(first, a).wrapping_add(at(second, b)) ^ at(third, c)).wrapping_add(at(fourth, d))
    }
}

/// Its words, beginning again at its end.
fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let mut bytes = bytes.iter().copied().cycle();
    std::iter::from_fn(move || {
        let mut word = 0;
        for _ in 0..4 {
            word = word << 8 | u32::from(bytes.next()?);
        }
        Some(word)
    })
}

fn halves(text: &[u8]) -> (u32, u32) {
    let whole = text.iter().fold(0_u64, |whole, byte| whole << 8 | u64::from(*byte));
    ((whole >> 32) as u32, whole as u32)
}
