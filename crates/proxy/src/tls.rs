//! TLS with clients: certificates by name, swapped without a restart.
//!
//! ```text
//!   put_certificate ──► CertificateSlot (ArcSwap) ◄── Names (exact, wildcard, default) ◄── ListenerTls, one rustls config per listener
//!                                              ▲
//!                                        ClientHello: the name, and what signatures the client knows
//! ```
//!
//! A slot may be named before it is filled, and filled anew at any time: who shakes hands next gets what is there.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

mod hosts;
mod keys;
mod tickets;
mod upstream;
mod validation;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use arc_swap::ArcSwapOption;
use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use seaway_model::{
    Name, ObjectRef,
    load_balancer::{HostPattern, TlsByName},
    merge_join,
};

use hosts::TlsConfigsByHost;
pub(crate) use hosts::{RequestedClientAuth, ServerTlsConfig};
pub(crate) use keys::LoadedCertificate;
pub use keys::{KeyError, look_at, look_at_authorities};
pub(crate) use tickets::Tickets;
pub(crate) use upstream::UpstreamTls;
pub(crate) use validation::TlsAlpnChallenges;
pub use validation::shows_validation;

/// Where the certificate of one Secret is, or will be.
#[derive(Debug, Default)]
pub(crate) struct CertificateSlot(ArcSwapOption<LoadedCertificate>);

impl CertificateSlot {
    pub(crate) fn put(&self, keys: Option<Arc<LoadedCertificate>>) {
        self.0.store(keys);
    }

    pub(crate) fn keys(&self) -> Option<Arc<LoadedCertificate>> {
        self.0.load_full()
    }

    /// Whether clients are vouched for here by the same authorities.
    fn vouches_as(&self, keys: &Arc<LoadedCertificate>) -> bool {
        let now = self.0.load();
        let same = |it: &Arc<LoadedCertificate>| {
            Arc::ptr_eq(it, keys) || it.source.authorities == keys.source.authorities
        };
        now.as_ref().is_some_and(same)
    }
}

/// For one client at once.
const MOST_TICKETS: usize = 4;

/// The configuration of TLS of one listener.
pub(crate) struct ListenerTls {
    usual: Arc<ServerTlsConfig>,
    hosts: Option<TlsConfigsByHost>,
    /// The value of `Strict-Transport-Security`.
    pub(crate) hsts: Option<String>,
    names: Arc<CertificatesBySni>,
}

/// Why a listener cannot speak TLS: no client would get through.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenerTlsError {
    #[error("there are no CA certificates for client certificates yet")]
    NoAuthorities,
    #[error("the CA certificates for client certificates cannot be used")]
    Authorities(#[source] rustls::server::VerifierBuilderError),
    #[error("TLS cannot be set up")]
    Setup(#[source] rustls::Error),
}

impl ListenerTls {
    /// `before`: what it takes the place of. Names that are in both are not looked up again.
    pub(crate) fn new(
        tls: &TlsByName,
        protocols: &[&[u8]],
        tickets: Option<&Arc<Tickets>>,
        before: Option<(&TlsByName, &ListenerTls)>,
        mut slot: impl FnMut(&ObjectRef) -> Arc<CertificateSlot>,
    ) -> Result<ListenerTls, ListenerTlsError> {
        let before_tls = before.map(|(_, listener_tls)| listener_tls);
        let before = before.map(|(tls, listener_tls)| (tls, &*listener_tls.names));
        let names = Arc::new(CertificatesBySni::new(tls, before, &mut slot));
        let usual = ServerTlsConfig::new(
            (tls.clients.as_ref(), tls.profile),
            &names,
            protocols,
            tickets,
            before_tls.map(|it| &*it.usual),
            &mut slot,
        )?;
        let hosts =
            TlsConfigsByHost::new(tls, before_tls.and_then(|it| it.hosts.as_ref()), |asked, before| {
                let asked = (asked.clients.as_ref(), asked.profile);
                ServerTlsConfig::new(asked, &names, protocols, tickets, before, &mut slot)
            });
        let hsts = tls.hsts.map(|seconds| format!("max-age={seconds}"));
        Ok(ListenerTls { usual: Arc::new(usual), hosts, hsts, names })
    }

    /// The name that a client asks for decides how it is spoken with.
    pub(crate) fn has_hosts(&self) -> bool {
        self.hosts.is_some()
    }

    /// How hands are shaken with a client that asks for that name. `None`: not at all.
    pub(crate) fn handshake(&self, name: Option<&str>) -> Option<Arc<ServerTlsConfig>> {
        let of_host = self.hosts.as_ref().and_then(|hosts| hosts.of(name?));
        of_host.cloned().unwrap_or_else(|| Some(self.usual.clone()))
    }
}

/// Slots by what clients ask for.
#[derive(Debug)]
struct CertificatesBySni {
    exact: HashMap<Name, Arc<[Arc<CertificateSlot>]>>,
    /// By what follows `*.`.
    under: HashMap<Name, Arc<[Arc<CertificateSlot>]>>,
    default: Arc<[Arc<CertificateSlot>]>,
}

impl CertificatesBySni {
    fn new(
        tls: &TlsByName,
        before: Option<(&TlsByName, &CertificatesBySni)>,
        slot: &mut impl FnMut(&ObjectRef) -> Arc<CertificateSlot>,
    ) -> CertificatesBySni {
        let nothing = BTreeMap::new();
        let (known, exact, under) = match before {
            Some((tls, names)) => (&tls.by_name, names.exact.clone(), names.under.clone()),
            None => (&nothing, HashMap::new(), HashMap::new()),
        };
        let mut all = |objects: &[ObjectRef]| objects.iter().map(&mut *slot).collect();
        let mut names = CertificatesBySni { exact, under, default: all(&tls.default) };
        for (pattern, now, _) in merge_join(&tls.by_name, known).filter(|(_, now, before)| now != before) {
            let (map, name) = match pattern {
                HostPattern::Exact(name) => (&mut names.exact, name),
                HostPattern::Under(name) => (&mut names.under, name),
            };
            match now {
                Some(objects) => map.insert(name.clone(), all(objects)),
                None => map.remove(name),
            };
        }
        names
    }

    /// Exact, then by the nearest wildcard of one label (RFC 6125), then the default.
    fn slots(&self, name: Option<&str>) -> &[Arc<CertificateSlot>] {
        let Some(name) = name else { return &self.default };
        // rustls gives names in lower case.
        let wildcard = || name.split_once('.').and_then(|(_, rest)| self.under.get(rest));
        self.exact.get(name).or_else(wildcard).unwrap_or(&self.default)
    }
}

impl ResolvesServerCert for CertificatesBySni {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let fitting = |slots: &[Arc<CertificateSlot>]| {
            let mut keys = slots.iter().filter_map(|slot| slot.keys());
            keys.find_map(|keys| keys.fitting(hello.signature_schemes()))
        };
        let slots = self.slots(hello.server_name());
        // A name whose certificate is not there (yet) is answered as one that nobody has.
        fitting(slots).or_else(|| fitting(&self.default))
    }
}

#[cfg(test)]
mod tests {
    use seaway_model::Kind;

    use super::*;

    #[test]
    fn names_are_exact_then_under_one_label_then_default() {
        let object = |name: &str| ObjectRef::new(Kind::Secret, "default", name);
        let tls = TlsByName {
            default: vec![object("d")],
            by_name: [
                (HostPattern::Exact("a.example".into()), [object("a")].into()),
                (HostPattern::Under("example".into()), [object("w")].into()),
            ]
            .into(),
            ..TlsByName::default()
        };
        let mut slots: HashMap<ObjectRef, Arc<CertificateSlot>> = HashMap::new();
        let names = CertificatesBySni::new(&tls, None, &mut |object: &ObjectRef| {
            slots.entry(object.clone()).or_default().clone()
        });
        for (asked, expected) in [
            (Some("a.example"), "a"),
            (Some("b.example"), "w"),
            (Some("c.b.example"), "d"),
            (Some("example"), "d"),
            (None, "d"),
        ] {
            assert!(Arc::ptr_eq(&names.slots(asked)[0], &slots[&object(expected)]), "{asked:?}");
        }
    }

    #[test]
    fn names_that_stay_are_not_looked_up_again() {
        let of = |all: &[usize]| -> TlsByName {
            let object = |it: &usize| ObjectRef::new(Kind::Secret, "default", it.to_string());
            let named = |it: &usize| {
                let name = format!("{it}.example").as_str().into();
                let name =
                    if it.is_multiple_of(2) { HostPattern::Exact(name) } else { HostPattern::Under(name) };
                (name, [object(it)].into())
            };
            TlsByName { by_name: all.iter().map(named).collect(), ..TlsByName::default() }
        };
        let mut asked = Vec::new();
        let (mut all, mut before): (Vec<usize>, _) = ((0..100).collect(), None);
        for (gone, come) in [(7, 200), (20, 301), (200, 7)] {
            let tls = of(&all);
            let names = CertificatesBySni::new(
                &tls,
                before.as_ref().map(|(tls, names)| (tls, names)),
                &mut |object| {
                    asked.push(object.name.to_string());
                    Arc::default()
                },
            );
            assert_eq!(names.exact.len() + names.under.len(), 100);
            before = Some((tls, names));
            all.retain(|it| *it != gone);
            all.push(come);
        }
        assert_eq!(asked[100..], ["200", "301"]);
    }
}
