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
    RootCertStore, ServerConfig, SupportedProtocolVersion,
    crypto::aws_lc_rs,
    server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier},
    sign::CertifiedKey,
    version::{TLS12, TLS13},
};
use seaway_model::{
    Name, ObjectRef, beside,
    load_balancer::{HostPattern, TlsByName, TlsProfile},
};

pub(crate) use keys::Keys;
pub use keys::{KeyError, look_at};
pub(crate) use tickets::Tickets;
pub(crate) use upstream::UpstreamTls;
pub(crate) use validation::Validations;
pub use validation::shows_validation;

/// Where the certificate of one Secret is, or will be.
#[derive(Debug, Default)]
pub(crate) struct CertificateSlot(ArcSwapOption<Keys>);

impl CertificateSlot {
    pub(crate) fn put(&self, keys: Option<Arc<Keys>>) {
        self.0.store(keys);
    }

    pub(crate) fn keys(&self) -> Option<Arc<Keys>> {
        self.0.load_full()
    }
}

/// For one client at once.
const MOST_TICKETS: usize = 4;

/// The configuration of TLS of one listener.
pub(crate) struct ListenerTls {
    pub(crate) config: Arc<ServerConfig>,
    /// The value of `Strict-Transport-Security`.
    pub(crate) hsts: Option<String>,
    names: Arc<Names>,
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
        let before = before.map(|(tls, listener_tls)| (tls, &*listener_tls.names));
        let names = Arc::new(Names::new(tls, before, &mut slot));
        let versions: &[&SupportedProtocolVersion] = match tls.profile {
            TlsProfile::Modern => &[&TLS13],
            TlsProfile::Intermediate => &[&TLS13, &TLS12],
        };
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone());
        let builder = builder.with_protocol_versions(versions).map_err(ListenerTlsError::Setup)?;
        let builder = match &tls.clients {
            None => builder.with_no_client_auth(),
            Some(clients) => {
                let authorities = slot(&clients.authorities).keys().ok_or(ListenerTlsError::NoAuthorities)?;
                let mut roots = RootCertStore::empty();
                roots.add_parsable_certificates(authorities.authorities());
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = if clients.required { verifier } else { verifier.allow_unauthenticated() };
                builder.with_client_cert_verifier(verifier.build().map_err(ListenerTlsError::Authorities)?)
            }
        };
        let mut config = builder.with_cert_resolver(names.clone());
        config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
        // Tickets are held by clients: nothing is stored here for those who do not come back.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        // Who has shown no certificate elsewhere, or one that nobody vouches for any more, does not come in by a ticket.
        let tickets = if tls.clients.is_some() { Tickets::new() } else { tickets.cloned() };
        if let Some(tickets) = tickets {
            config.ticketer = tickets;
            // Each costs a client that opens many connections as many messages; one is enough.
            config.send_tls13_tickets = 1;
            // Who asks for another number, or for none (RFC 9149), gets that.
            config.max_tls13_tickets = MOST_TICKETS;
        } else {
            config.send_tls13_tickets = 0;
        }
        let hsts = tls.hsts.map(|seconds| format!("max-age={seconds}"));
        Ok(ListenerTls { config: Arc::new(config), hsts, names })
    }
}

/// Slots by what clients ask for.
#[derive(Debug)]
struct Names {
    exact: HashMap<Name, Arc<[Arc<CertificateSlot>]>>,
    /// By what follows `*.`.
    under: HashMap<Name, Arc<[Arc<CertificateSlot>]>>,
    default: Arc<[Arc<CertificateSlot>]>,
}

impl Names {
    fn new(
        tls: &TlsByName,
        before: Option<(&TlsByName, &Names)>,
        slot: &mut impl FnMut(&ObjectRef) -> Arc<CertificateSlot>,
    ) -> Names {
        let nothing = BTreeMap::new();
        let (known, exact, under) = match before {
            Some((tls, names)) => (&tls.by_name, names.exact.clone(), names.under.clone()),
            None => (&nothing, HashMap::new(), HashMap::new()),
        };
        let mut all = |objects: &[ObjectRef]| objects.iter().map(&mut *slot).collect();
        let mut names = Names { exact, under, default: all(&tls.default) };
        for (pattern, now, _) in beside(&tls.by_name, known).filter(|(_, now, before)| now != before) {
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

impl ResolvesServerCert for Names {
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
        let names = Names::new(&tls, None, &mut |object: &ObjectRef| {
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
            let names = Names::new(&tls, before.as_ref().map(|(tls, names)| (tls, names)), &mut |object| {
                asked.push(object.name.to_string());
                Arc::default()
            });
            assert_eq!(names.exact.len() + names.under.len(), 100);
            before = Some((tls, names));
            all.retain(|it| *it != gone);
            all.push(come);
        }
        assert_eq!(asked[100..], ["200", "301"]);
    }
}
