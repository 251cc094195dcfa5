//! TLS with clients: a crt-list for each listener, and what it names.

use seaway_model::{
    ObjectRef, Reason,
    load_balancer::{ClientAuth, Protocol, TlsByName, TlsProfile},
};
use secrecy::ExposeSecret as _;

use super::{DocumentBuilder, frontends::FrontendContext, readable};
use crate::{
    document::{BindTls, CrtEntry, CrtList, Pem, TlsOptions},
    words::{Key, Label},
};

impl DocumentBuilder<'_> {
    /// `None`: nobody can shake hands here, or it cannot be checked who may.
    pub(super) fn tls(&mut self, here: &FrontendContext<'_>, tls: &TlsByName) -> Option<BindTls> {
        let owner = &here.listener.owner;
        if !tls.through.is_empty() {
            let what = "HAProxy cannot terminate TLS and pass it through at one port: host names with passthrough are not served";
            self.unsupported(owner, "tls-passthrough", what);
        }
        if !tls.validations.is_empty() {
            self.unsupported(
                owner,
                "",
                "HAProxy cannot answer TLS-ALPN-01 challenges: host names are validated by HTTP-01",
            );
        }
        let terms = self.terms(here, tls.clients.as_ref(), tls.profile)?;
        let mut entries = Vec::new();
        for object in &tls.default {
            let certificate = self.certificate(here, object);
            entries.extend(certificate.map(|certificate| CrtEntry {
                certificate,
                tls: terms.clone(),
                names: Vec::new(),
            }));
        }
        let strict = entries.is_empty();
        for (host, objects) in &tls.by_name {
            let Some(name) = Key::host(&host.to_string()) else { continue };
            // A host whose clients cannot be verified is not served: its handshakes would be those of the default.
            let terms = match tls.hosts.get(host) {
                Some(it) => match self.terms(here, it.clients.as_ref(), it.profile) {
                    Some(terms) => terms,
                    None => continue,
                },
                None => terms.clone(),
            };
            for object in objects.iter() {
                let certificate = self.certificate(here, object);
                entries.extend(certificate.map(|certificate| CrtEntry {
                    certificate,
                    tls: terms.clone(),
                    names: vec![name.clone()],
                }));
            }
        }
        if entries.is_empty() {
            let what = format!("port {} is closed: it has no usable certificate", here.listener.port);
            self.problem(owner, "tls", Reason::NoSuchSecret, what);
            return None;
        }
        let crt_list = here.name.and(".crt-list");
        self.document.crt_lists.insert(crt_list.clone(), CrtList { entries });
        let http2 = here.listener.protocol == Protocol::Http;
        Some(BindTls { crt_list, strict, terms, http2 })
    }

    fn terms(
        &mut self,
        here: &FrontendContext<'_>,
        clients: Option<&ClientAuth>,
        profile: TlsProfile,
    ) -> Option<TlsOptions> {
        let clients = match clients {
            None => None,
            Some(clients) => {
                let held = here.load_balancer.certificates.get(&clients.authorities);
                let usable = held.filter(|it| {
                    is_pem(&it.authorities, "CERTIFICATE")
                        && !self.wanted.unusable.authorities.contains(&it.authorities)
                });
                let Some(held) = usable else {
                    let what = format!(
                        "{} has no usable CA certificate: everything that requires a client certificate is closed",
                        clients.authorities
                    );
                    self.problem(&here.listener.owner, "client-authorities", Reason::NoSuchSecret, what);
                    return None;
                };
                let what = "HAProxy sends no Client-Cert header: members cannot tell who the client is";
                self.unsupported(&here.listener.owner, "client-authorities", what);
                let name = file(&clients.authorities);
                self.document.authorities.insert(name.clone(), held.authorities.clone());
                Some((name, clients.required))
            }
        };
        Some(TlsOptions { modern: profile == TlsProfile::Modern, clients })
    }

    fn certificate(&mut self, here: &FrontendContext<'_>, object: &ObjectRef) -> Option<Label> {
        let held = here.load_balancer.certificates.get(object)?;
        let key = held.key.expose_secret();
        if self.wanted.unusable.certificates.contains(object)
            || !is_pem(&held.chain, "CERTIFICATE")
            || !key.contains("KEY-----")
        {
            let what = format!("{object} cannot be used for TLS: this certificate is not served");
            self.problem(&here.listener.owner, "tls", Reason::BadCertificate, what);
            return None;
        }
        let name = file(object);
        self.document.certificates.insert(name.clone(), Pem::new(&held.chain, key));
        Some(name)
    }
}

/// It looks like one, at least: HAProxy ends on a file that is none.
pub(super) fn is_pem(text: &str, of: &str) -> bool {
    text.contains(&format!("-----BEGIN {of}-----")) && text.contains(&format!("-----END {of}-----"))
}

fn file(object: &ObjectRef) -> Label {
    let called = format!("{}/{}", object.namespace, object.name);
    match called.strip_prefix('/') {
        Some(name) => Label::of(&format!("{}/{name}", object.kind)),
        None => readable(&called),
    }
    .and(".pem")
}
