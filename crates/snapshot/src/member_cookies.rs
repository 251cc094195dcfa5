//! What a cookie says of the member that a client keeps: the same on every host and after every restart, and nothing
//! to anybody who does not know the pool.

use std::net::{IpAddr, SocketAddr};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use seaway_model::{Owner, Pool, load_balancer::Affinity};
use sha2::{Digest, Sha256};

/// The value of a sticky cookie, which names a member: 96 bits of a keyed hash of its address, in letters that may stand in a
/// cookie (RFC 4648, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberCookie([u8; MemberCookie::LENGTH]);

impl MemberCookie {
    pub const LENGTH: usize = 16;

    /// What has the form of one; whose it is, a pool knows.
    pub fn read(bytes: &[u8]) -> Option<MemberCookie> {
        let letters: [u8; MemberCookie::LENGTH] = bytes.try_into().ok()?;
        letters
            .iter()
            .all(|it| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_'))
            .then_some(MemberCookie(letters))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The cookie values of one pool's members, in their order.
#[derive(Debug, Default)]
pub(crate) struct MemberCookies {
    marks: Box<[MemberCookie]>,
    /// Indexes in the order of the marks.
    sorted: Box<[u32]>,
}

impl MemberCookies {
    /// Keyed by who asked for the pool, which in a cluster no client knows, and by a secret where there is one.
    pub(crate) fn of(pool: &Pool) -> MemberCookies {
        let mut keyed = Sha256::new_with_prefix(b"seaway mark\0");
        if let Some(Affinity::Cookie { key: Some(key), .. }) = &pool.affinity {
            keyed.update((key.as_bytes().len() as u64).to_be_bytes());
            keyed.update(key.as_bytes());
        }
        match &pool.owner {
            Owner::Object { uid, .. } => keyed.update(uid.as_bytes()),
            Owner::Config(name) => keyed.update(name.as_bytes()),
        }
        keyed.update([0]);
        keyed.update(pool.id.0.as_bytes());
        keyed.update([0]);
        let marks: Box<[MemberCookie]> =
            pool.members.iter().map(|member| mark(keyed.clone(), member.at)).collect();
        let mut sorted: Box<[u32]> = (0..marks.len() as u32).collect();
        sorted.sort_unstable_by_key(|index| marks.get(*index as usize));
        MemberCookies { marks, sorted }
    }

    pub(crate) fn at(&self, index: usize) -> Option<MemberCookie> {
        self.marks.get(index).copied()
    }

    pub(crate) fn position(&self, mark: MemberCookie) -> Option<usize> {
        let found =
            self.sorted.binary_search_by_key(&Some(&mark), |index| self.marks.get(*index as usize)).ok()?;
        self.sorted.get(found).map(|index| *index as usize)
    }
}

fn mark(mut keyed: Sha256, at: SocketAddr) -> MemberCookie {
    match at.ip().to_canonical() {
        IpAddr::V4(ip) => keyed.update(ip.octets()),
        IpAddr::V6(ip) => keyed.update(ip.octets()),
    }
    keyed.update(at.port().to_be_bytes());
    let digest = keyed.finalize();
    let mut letters = [0; MemberCookie::LENGTH];
    // Twelve bytes of a digest are sixteen letters.
    let _infallible = URL_SAFE_NO_PAD
        .encode_slice(digest.get(..MemberCookie::LENGTH / 4 * 3).unwrap_or_default(), &mut letters);
    MemberCookie(letters)
}

#[cfg(test)]
mod tests {
    use seaway_model::{
        PoolId,
        load_balancer::{CookieKey, CookieMode},
    };
    use seaway_testkit::balancing;

    use std::sync::Arc;

    use super::*;
    use crate::CompiledPool;

    fn pool(members: &[&str]) -> Pool {
        let members: Vec<SocketAddr> =
            members.iter().map(|at| at.parse().expect("an address and a port")).collect();
        let mode = CookieMode::Insert;
        let affinity = Some(Affinity::Cookie { name: "id".into(), mode, key: None });
        Pool { affinity, ..balancing::pool(&members) }
    }

    fn marks(pool: Pool) -> Vec<String> {
        let compiled = CompiledPool::compile(pool.into());
        let marks = compiled.members().iter().map(|member| compiled.mark_of(member.at).expect("one each"));
        marks.map(|mark| String::from_utf8_lossy(mark.as_bytes()).into_owned()).collect()
    }

    #[test]
    fn a_mark_is_the_same_everywhere_and_for_ever() {
        // Written down once: cookies outlive processes, and hosts run different versions for a while.
        assert_eq!(
            marks(pool(&["10.0.0.1:80", "[2001:db8::1]:80"])),
            ["4x9slQI7jgfiJIFL", "SJOB1zVhMEZRV4lO"]
        );
    }

    #[test]
    fn a_mark_depends_on_the_pool_and_on_the_whole_address() {
        let one = pool(&["10.0.0.1:80", "10.0.0.1:81", "10.0.0.2:80"]);
        let mut all = marks(one.clone());
        all.extend(marks(Pool { id: PoolId("other".into()), ..one.clone() }));
        all.extend(marks(Pool { owner: Owner::Config("else".into()), ..one.clone() }));
        for secret in ["one", "another"] {
            let key = Some(CookieKey(Arc::new(secret.to_owned().into())));
            let affinity = Some(Affinity::Cookie { name: "id".into(), mode: CookieMode::Insert, key });
            all.extend(marks(Pool { affinity, ..one.clone() }));
        }
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 15);
    }

    #[test]
    fn members_are_found_by_their_marks_alone() {
        let compiled = CompiledPool::compile(pool(&["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"]).into());
        for (index, member) in compiled.members().iter().enumerate() {
            let mark = compiled.mark_of(member.at).expect("every member has one");
            assert_eq!(MemberCookie::read(mark.as_bytes()), Some(mark));
            assert_eq!(compiled.marked(mark), Some(index));
        }
        for text in ["", "0", "aaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaa;"] {
            assert_eq!(
                MemberCookie::read(text.as_bytes()).and_then(|mark| compiled.marked(mark)),
                None,
                "{text}"
            );
        }
        let unasked = CompiledPool::compile(Pool { affinity: None, ..pool(&["10.0.0.1:80"]) }.into());
        assert_eq!(unasked.mark_of(unasked.members()[0].at), None, "nobody pays who does not ask");
    }
}
