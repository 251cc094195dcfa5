//! Users and hashes of their passwords, as htpasswd writes them: `NAME:HASH`, a line each.
//!
//! A line that cannot be read locks out its user, and no other.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use seaway_model::load_balancer::{PasswordHash, Users};

/// Costlier hashes would let whoever tries passwords keep all others waiting: at this cost bcrypt takes about 0.2 seconds.
const MOST_COST: u8 = 12;
/// The same of sha-crypt, of which 5,000 rounds are usual.
const MOST_ROUNDS: u32 = 100_000;
const USUAL_ROUNDS: u32 = 5_000;
/// What crypt(3) makes of fewer.
const LEAST_ROUNDS: u32 = 1_000;
const MOST_USERS: usize = 1_000;
/// Of crypt(3).
const LONGEST_SALT: usize = 16;

/// Why a line is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum InvalidPasswordLine {
    /// It is not `NAME:HASH`.
    Form,
    /// A line before it has the same name.
    Twice,
    /// A hash of a kind that is guessed too fast, or no hash at all.
    Weak,
    /// bcrypt or sha-crypt, and not as they are written.
    Broken,
    /// It takes too long to verify.
    Costly,
    /// It is one of too many: all of them are held for as long as the Secret is named.
    Beyond,
}

/// What a Secret says of users, read once: many Services may name it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadUsers {
    pub(crate) users: Arc<Users>,
    /// Numbers of lines that are of no use.
    pub(crate) unusable: BTreeMap<InvalidPasswordLine, Vec<usize>>,
}

/// The users, and the numbers of lines that are of no use.
pub(crate) fn read(text: &str) -> ReadUsers {
    let (mut users, mut unusable) = (BTreeMap::new(), BTreeMap::<InvalidPasswordLine, Vec<usize>>::new());
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if users.len() >= MOST_USERS {
            unusable.entry(InvalidPasswordLine::Beyond).or_default().push(number);
            break;
        }
        if let Err(why) = user(line, &mut users) {
            unusable.entry(why).or_default().push(number);
        }
    }
    ReadUsers { users: Arc::new(Users(users)), unusable }
}

fn user(line: &str, users: &mut BTreeMap<Box<[u8]>, PasswordHash>) -> Result<(), InvalidPasswordLine> {
    let (name, hash) = line.split_once(':').ok_or(InvalidPasswordLine::Form)?;
    // No client can send another (RFC 7617, section 2).
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err(InvalidPasswordLine::Form);
    }
    // What follows another colon is a comment, as to nginx.
    let hash = password_hash(hash.split(':').next().unwrap_or_default().trim())?;
    match users.entry(name.as_bytes().into()) {
        Entry::Vacant(place) => drop(place.insert(hash)),
        Entry::Occupied(_) => return Err(InvalidPasswordLine::Twice),
    }
    Ok(())
}

fn password_hash(text: &str) -> Result<PasswordHash, InvalidPasswordLine> {
    let Some((kind, rest)) = text.strip_prefix('$').and_then(|it| it.split_once('$')) else {
        return Err(InvalidPasswordLine::Weak);
    };
    match kind {
        "2a" | "2b" | "2y" => bcrypt(rest),
        "5" => {
            let (rounds, salt, hash) = sha_crypt(rest)?;
            let hash = spread(hash, [20, 10, 0]).ok_or(InvalidPasswordLine::Broken)?;
            Ok(PasswordHash::Sha256Crypt { rounds, salt, hash })
        }
        "6" => {
            let (rounds, salt, hash) = sha_crypt(rest)?;
            let hash = spread(hash, [42, 21, 0]).ok_or(InvalidPasswordLine::Broken)?;
            Ok(PasswordHash::Sha512Crypt { rounds, salt, hash })
        }
        _ => Err(InvalidPasswordLine::Weak),
    }
}

/// `12$` and 22 characters of salt, then 31 of hash.
fn bcrypt(rest: &str) -> Result<PasswordHash, InvalidPasswordLine> {
    const ALPHABET: &[u8] = b"./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let (cost, rest) = rest.split_once('$').ok_or(InvalidPasswordLine::Broken)?;
    let is_cost = cost.len() == 2 && cost.bytes().all(|it| it.is_ascii_digit());
    let cost: u8 =
        cost.parse().ok().filter(|it| is_cost && (4..=31).contains(it)).ok_or(InvalidPasswordLine::Broken)?;
    if cost > MOST_COST {
        return Err(InvalidPasswordLine::Costly);
    }
    let (salt, hash) = rest.split_at_checked(22).ok_or(InvalidPasswordLine::Broken)?;
    let bytes = |text: &str| -> Option<Vec<u8>> {
        let (mut out, mut held, mut bits) = (Vec::new(), 0_u32, 0_u32);
        for byte in text.bytes() {
            let digit = ALPHABET.iter().position(|it| *it == byte)?;
            held = held << 6 | digit as u32;
            bits = bits.saturating_add(6);
            if bits >= 8 {
                bits = bits.saturating_sub(8);
                out.push((held >> bits & 0xff) as u8);
            }
        }
        Some(out)
    };
    let salt = bytes(salt).and_then(|it| it.try_into().ok()).ok_or(InvalidPasswordLine::Broken)?;
    let hash = bytes(hash).filter(|_| hash.len() == 31).and_then(|it| it.try_into().ok());
    Ok(PasswordHash::Bcrypt { cost, salt, hash: hash.ok_or(InvalidPasswordLine::Broken)? })
}

/// `rounds=N$SALT$HASH`, or without rounds.
fn sha_crypt(rest: &str) -> Result<(u32, Box<[u8]>, &str), InvalidPasswordLine> {
    let (rounds, rest) = match rest.strip_prefix("rounds=") {
        Some(rest) => {
            let (rounds, rest) = rest.split_once('$').ok_or(InvalidPasswordLine::Broken)?;
            let rounds: u32 = rounds.parse().map_err(|_| InvalidPasswordLine::Broken)?;
            (rounds.max(LEAST_ROUNDS), rest)
        }
        None => (USUAL_ROUNDS, rest),
    };
    if rounds > MOST_ROUNDS {
        return Err(InvalidPasswordLine::Costly);
    }
    let (salt, hash) = rest.split_once('$').ok_or(InvalidPasswordLine::Broken)?;
    if salt.is_empty() || salt.len() > LONGEST_SALT {
        return Err(InvalidPasswordLine::Broken);
    }
    Ok((rounds, salt.as_bytes().into(), hash))
}

/// Three bytes stand in four characters, the lowest bits first. `places` are those of the first three, the lowest first; from
/// then on each is one more than another was before.
fn spread<const N: usize>(text: &str, mut places: [usize; 3]) -> Option<[u8; N]> {
    const ALPHABET: &[u8] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let (mut hash, is_long) = ([0; N], N == 64);
    if text.len() != N.saturating_mul(4).div_ceil(3) {
        return None;
    }
    for characters in text.as_bytes().chunks(4) {
        let mut held = 0_u32;
        for character in characters.iter().rev() {
            let digit = ALPHABET.iter().position(|it| it == character)?;
            held = held << 6 | digit as u32;
        }
        let [low, middle, high] = places;
        let these: &[usize] = match (characters.len(), is_long) {
            (4, _) => &places,
            (_, true) => &[63],
            (_, false) => &[30, 31],
        };
        for place in these {
            *hash.get_mut(*place)? = held as u8;
            held >>= 8;
        }
        places =
            if is_long { [high, low, middle] } else { [middle, high, low] }.map(|it| it.saturating_add(1));
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(hash: &str) -> Result<PasswordHash, Vec<InvalidPasswordLine>> {
        let ReadUsers { users, unusable } = read(&format!("alice:{hash}\n"));
        let hash = users.0.get(b"alice".as_slice()).cloned();
        hash.ok_or_else(|| unusable.into_keys().collect())
    }

    const BCRYPT: &str = "$2y$05$abcdefghijklmnopqrstuuMFdJu9yVgmagVAIC24fOZkaFqd3s9JC";
    const SHA_512: &str = "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1";

    #[test]
    fn hashes_of_one_kind_are_read_whoever_writes_them() {
        for text in
            [BCRYPT, &BCRYPT.replace("2y", "2a"), &BCRYPT.replace("2y", "2b"), &format!("{BCRYPT}:a comment")]
        {
            let Ok(PasswordHash::Bcrypt { cost, salt, .. }) = one(text) else { panic!("{text}") };
            // abcd… in the alphabet of bcrypt.
            assert_eq!((cost, salt[0], salt[1]), (5, 28 << 2 | 29 >> 4, 29 << 4 | 30 >> 2));
        }
        let Ok(PasswordHash::Sha512Crypt { rounds, salt, hash }) = one(SHA_512) else {
            panic!("{:?}", one(SHA_512))
        };
        assert_eq!((rounds, &*salt), (5000, &b"saltstring"[..]));
        // `svn8`: s, v, n, 8 are 56, 59, 51, 10 with the lowest first.
        let first = 56 | 59 << 6 | 51 << 12 | 10 << 18;
        assert_eq!([hash[42], hash[21], hash[0]], [first as u8, (first >> 8) as u8, (first >> 16) as u8]);
        let many = SHA_512.replace("$6$", "$6$rounds=10000$");
        assert!(matches!(one(&many), Ok(PasswordHash::Sha512Crypt { rounds: 10_000, .. })));
        let few = SHA_512.replace("$6$", "$6$rounds=10$");
        assert!(matches!(one(&few), Ok(PasswordHash::Sha512Crypt { rounds: 1_000, .. })));
        let most = SHA_512.replace("$6$saltstring$", "$6$rounds=100000$sixteencharacter$");
        assert!(matches!(one(&most), Ok(PasswordHash::Sha512Crypt { rounds: 100_000, .. })));
        let short = "$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5";
        assert!(matches!(one(short), Ok(PasswordHash::Sha256Crypt { rounds: 5_000, .. })));
    }

    #[test]
    fn what_is_of_no_use_is_told_apart() {
        for (hash, why) in [
            ("", InvalidPasswordLine::Weak),
            ("secret", InvalidPasswordLine::Weak),
            ("{SHA}C+7Hteo/D9vJXQ3UfzxbwnXaijM=", InvalidPasswordLine::Weak),
            ("$apr1$salt$xxxxxxxxxxxxxxxxxxxxxx", InvalidPasswordLine::Weak),
            ("$1$salt$xxxxxxxxxxxxxxxxxxxxxx", InvalidPasswordLine::Weak),
            // Of a version of bcrypt that was wrong.
            ("$2x$05$abcdefghijklmnopqrstuuMFdJu9yVgmagVAIC24fOZkaFqd3s9JC", InvalidPasswordLine::Weak),
            ("$2y$13$abcdefghijklmnopqrstuuMFdJu9yVgmagVAIC24fOZkaFqd3s9JC", InvalidPasswordLine::Costly),
            ("$2y$31$abcdefghijklmnopqrstuuMFdJu9yVgmagVAIC24fOZkaFqd3s9JC", InvalidPasswordLine::Costly),
            ("$2y$03$abcdefghijklmnopqrstuuMFdJu9yVgmagVAIC24fOZkaFqd3s9JC", InvalidPasswordLine::Broken),
            ("$2y$5$abcdefghijklmnopqrstuuMFdJu9yVgmagVAIC24fOZkaFqd3s9JC", InvalidPasswordLine::Broken),
            ("$2y$05$abcdefghijklmnopqrstuuMFdJu9yVgmagVAIC24fOZkaFqd3s9J", InvalidPasswordLine::Broken),
            ("$2y$05$abcdefghijklmnopqrstuuMFdJu9yVgmagVAIC24fOZkaFqd3s9J!", InvalidPasswordLine::Broken),
            ("$2y$05$äbcdefghijklmnopqrst", InvalidPasswordLine::Broken),
            ("$6$rounds=100001$saltstring$x", InvalidPasswordLine::Costly),
            ("$6$rounds=x$saltstring$x", InvalidPasswordLine::Broken),
            ("$6$saltstring$x", InvalidPasswordLine::Broken),
            ("$6$$x", InvalidPasswordLine::Broken),
            ("$6$12345678901234567$x", InvalidPasswordLine::Broken),
        ] {
            assert_eq!(one(hash), Err(vec![why]), "{hash}");
        }
    }

    #[test]
    fn lines_of_no_use_are_numbered_and_lock_out_nobody_else() {
        let text = format!(
            "# users\n\nalice:{BCRYPT}\r\nbob:plain\n{BCRYPT}\nalice:{SHA_512}\n:{BCRYPT}\nno colon\ncarol:{SHA_512}"
        );
        let ReadUsers { users, unusable } = read(&text);
        assert_eq!(users.0.keys().map(|it| &**it).collect::<Vec<_>>(), [&b"alice"[..], b"carol"]);
        assert!(matches!(users.0[b"alice".as_slice()], PasswordHash::Bcrypt { .. }), "the first line counts");
        let expected = [
            (InvalidPasswordLine::Form, vec![5, 7, 8]),
            (InvalidPasswordLine::Twice, vec![6]),
            (InvalidPasswordLine::Weak, vec![4]),
        ];
        assert_eq!(unusable, expected.into());
        assert_eq!(*read("").users, Users::default());
    }
}
