//! How handshakes differ by host name: whose certificates clients are asked for, and by which versions.
//!
//! Host names that ask for the same share one configuration, so that there are as many as there are different wishes.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use rustls::{
    RootCertStore, ServerConfig, SupportedProtocolVersion,
    crypto::aws_lc_rs,
    server::{NoServerSessionStorage, WebPkiClientVerifier, danger::ClientCertVerifier},
    version::{TLS12, TLS13},
};
use seaway_model::{
    Name, ObjectRef,
    load_balancer::{ClientAuth, HostPattern, HostTls, TlsByName, TlsProfile},
};

use super::{CertificateSlot, CertificatesBySni, ListenerTlsError, LoadedCertificate, MOST_TICKETS, Tickets};

/// One way to shake hands.
pub(crate) struct ServerTlsConfig {
    pub(crate) config: Arc<ServerConfig>,
    /// Where a certificate is asked for.
    clients: Option<ClientAuthConfig>,
}

/// By which authorities a client was asked for a certificate, as they were then.
pub(crate) struct RequestedClientAuth {
    object: ObjectRef,
    slot: Arc<CertificateSlot>,
    authorities: Arc<LoadedCertificate>,
}

#[derive(Clone)]
struct ClientAuthConfig {
    auth: ClientAuth,
    slot: Arc<CertificateSlot>,
    authorities: Arc<LoadedCertificate>,
    verifier: Arc<dyn ClientCertVerifier>,
    /// Who has shown no certificate elsewhere, or one that nobody vouches for any more, does not come in by a ticket.
    tickets: Option<Arc<Tickets>>,
}

/// `None`: no handshake succeeds there.
type ByName = HashMap<Name, Option<Arc<ServerTlsConfig>>>;

/// By host name, where that is not as for all.
#[derive(Default)]
pub(super) struct TlsConfigsByHost {
    exact: ByName,
    /// By what follows `*.`.
    under: ByName,
    known: BTreeMap<HostTls, Option<Arc<ServerTlsConfig>>>,
}

impl RequestedClientAuth {
    /// Whether these are the authorities of that Secret, as they are now: a certificate of one that was removed from it is worth
    /// nothing any more, however long its connection lasts.
    pub(crate) fn is(&self, object: &ObjectRef) -> bool {
        self.object == *object && self.is_current()
    }

    /// Whether the Secret has the authorities that it had when the client was asked.
    pub(crate) fn is_current(&self) -> bool {
        self.slot.vouches_as(&self.authorities)
    }
}

impl ServerTlsConfig {
    /// `before`: one that asked for the same. Its sessions are resumed as long as the same authorities vouch for clients.
    pub(super) fn new(
        (clients, profile): (Option<&ClientAuth>, TlsProfile),
        names: &Arc<CertificatesBySni>,
        protocols: &[&[u8]],
        tickets: Option<&Arc<Tickets>>,
        before: Option<&ServerTlsConfig>,
        slot: &mut impl FnMut(&ObjectRef) -> Arc<CertificateSlot>,
    ) -> Result<ServerTlsConfig, ListenerTlsError> {
        let versions: &[&SupportedProtocolVersion] = match profile {
            TlsProfile::Modern => &[&TLS13],
            TlsProfile::Intermediate => &[&TLS13, &TLS12],
        };
        let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_protocol_versions(versions).map_err(ListenerTlsError::Setup)?;
        let before = before.and_then(|it| it.clients.as_ref());
        let clients = clients.map(|it| ClientAuthConfig::new(it, before, slot)).transpose()?;
        let builder = match &clients {
            None => builder.with_no_client_auth(),
            Some(clients) => builder.with_client_cert_verifier(clients.verifier.clone()),
        };
        let mut config = builder.with_cert_resolver(names.clone());
        config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
        // Tickets are held by clients: nothing is stored here for those who do not come back.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        let tickets = clients.as_ref().map_or_else(|| tickets.cloned(), |it| it.tickets.clone());
        if let Some(tickets) = tickets {
            config.ticketer = tickets;
            // Each costs a client that opens many connections as many messages; one is enough.
            config.send_tls13_tickets = 1;
            // Who asks for another number, or for none (RFC 9149), gets that.
            config.max_tls13_tickets = MOST_TICKETS;
        } else {
            config.send_tls13_tickets = 0;
        }
        Ok(ServerTlsConfig { config: Arc::new(config), clients })
    }

    /// Who verified the client's certificate, if it showed one.
    pub(crate) fn asks_by(&self) -> Option<RequestedClientAuth> {
        let ClientAuthConfig { auth, slot, authorities, .. } = self.clients.as_ref()?;
        let object = auth.authorities.clone();
        Some(RequestedClientAuth { object, slot: slot.clone(), authorities: authorities.clone() })
    }
}

impl ClientAuthConfig {
    fn new(
        auth: &ClientAuth,
        before: Option<&ClientAuthConfig>,
        slot: &mut impl FnMut(&ObjectRef) -> Arc<CertificateSlot>,
    ) -> Result<ClientAuthConfig, ListenerTlsError> {
        let slot = slot(&auth.authorities);
        let authorities = slot.keys().ok_or(ListenerTlsError::NoAuthorities)?;
        if let Some(before) = before
            && before.auth == *auth
            && Arc::ptr_eq(&before.authorities, &authorities)
        {
            return Ok(before.clone());
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(authorities.authorities());
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = if auth.required { verifier } else { verifier.allow_unauthenticated() };
        let verifier = verifier.build().map_err(ListenerTlsError::Authorities)?;
        Ok(ClientAuthConfig { auth: auth.clone(), slot, authorities, verifier, tickets: Tickets::new() })
    }
}

impl TlsConfigsByHost {
    pub(super) fn new(
        tls: &TlsByName,
        before: Option<&TlsConfigsByHost>,
        mut handshake: impl FnMut(&HostTls, Option<&ServerTlsConfig>) -> Result<ServerTlsConfig, ListenerTlsError>,
    ) -> Option<TlsConfigsByHost> {
        if tls.hosts.is_empty() {
            return None;
        }
        let mut hosts = TlsConfigsByHost::default();
        for (pattern, asked) in &tls.hosts {
            let known = before.and_then(|it| it.known.get(asked)?.as_deref());
            let its = hosts.known.entry(asked.clone()).or_insert_with(|| {
                let made = handshake(asked, known).inspect_err(|error| {
                    tracing::error!(host = %pattern, %error, "a host name cannot be served by TLS");
                });
                made.ok().map(Arc::new)
            });
            match pattern {
                HostPattern::Exact(name) => hosts.exact.insert(name.clone(), its.clone()),
                HostPattern::Under(name) => hosts.under.insert(name.clone(), its.clone()),
            };
        }
        Some(hosts)
    }

    /// For a name in lower case: exact, then by the longest end. `None`: it is as for all.
    pub(super) fn of(&self, name: &str) -> Option<&Option<Arc<ServerTlsConfig>>> {
        let ends = std::iter::successors(Some(name), |name| Some(name.split_once('.')?.1)).skip(1);
        self.exact.get(name).or_else(|| ends.into_iter().find_map(|end| self.under.get(end)))
    }
}
