//! The rows about TLS.

use seaway_model::{
    Kind, Name, ObjectRef,
    config::TlsSettings,
    fact::TargetPort,
    load_balancer::{ClientAuth, HostPattern, RuleTls, TlsByName, TlsProfile},
};

use super::{CLIENTS, Row, ServiceOptions, http::yes_or_no};
use crate::{
    http,
    quantity::{duration, list},
};

pub const TLS: &str = "seaway.dev/tls";
pub const REDIRECT: &str = "seaway.dev/https-redirect";
pub const PASSTHROUGH: &str = "seaway.dev/tls-passthrough";
pub const BACKEND_AUTHORITIES: &str = "seaway.dev/backend-tls-authorities";
pub const TLS_PROFILE: &str = "seaway.dev/tls-profile";
pub const TLS_PORTS: &str = "seaway.dev/tls-ports";
pub const HSTS: &str = "seaway.dev/hsts";
pub const AUTHORITIES: &str = "seaway.dev/client-authorities";

/// What is asked of TLS.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TlsOptions {
    /// Whose certificates are shown; the first by default.
    pub secrets: Vec<Name>,
    /// Where it ends at a LoadBalancer; empty: as usual.
    pub ports: Vec<TargetPort>,
    pub redirect: Option<bool>,
    /// What comes for its hosts by TLS is passed on untouched.
    pub through: bool,
    pub profile: Option<TlsProfile>,
    /// 0: nothing is said.
    pub hsts: Option<u32>,
    pub authorities: Option<Name>,
    pub clients_optional: bool,
    pub members: MemberTls,
}

/// What is asked of TLS with members.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemberTls {
    /// Whatever the ports say.
    pub spoken: Option<bool>,
    pub name: Option<Name>,
    pub authorities: Option<Name>,
    pub anybody: bool,
}

impl TlsOptions {
    pub(crate) fn objects(&self, namespace: &Name) -> Vec<ObjectRef> {
        self.secrets.iter().map(|name| secret(namespace, name)).collect()
    }

    fn clients(&self, namespace: &Name) -> Option<ClientAuth> {
        let authorities = secret(namespace, self.authorities.as_ref()?);
        Some(ClientAuth { authorities, required: !self.clients_optional })
    }

    /// What is asked for where listeners are shared; nothing, if that is as it is for all.
    pub(crate) fn of_rules(&self, namespace: &Name) -> Option<RuleTls> {
        let asked = RuleTls { clients: self.clients(namespace), profile: self.profile, hsts: self.hsts };
        (asked != RuleTls::default()).then_some(asked)
    }

    /// On top of what the certificates say, with what is usual where nothing is said.
    pub(crate) fn refine(&self, tls: TlsByName, namespace: &Name, usual: &TlsSettings) -> TlsByName {
        TlsByName {
            profile: self.profile.unwrap_or(usual.profile),
            hsts: self.hsts.or(usual.hsts).filter(|it| *it > 0),
            clients: self.clients(namespace),
            ..tls
        }
    }
}

fn secret(namespace: &Name, name: &Name) -> ObjectRef {
    ObjectRef::new(Kind::Secret, namespace.clone(), name.clone())
}

pub(super) const ROWS: &[Row] = &[
    Row {
        names: &[TLS],
        help: "names of Secrets: this LoadBalancer ends TLS with their certificates; at the front door they are shown, too",
        set: |wishes, text| {
            wishes.tls.secrets = list(text, name)?;
            if wishes.tls.secrets.is_empty() {
                return Err("no Secret is named".into());
            }
            Ok(())
        },
    },
    Row {
        names: &[TLS_PORTS],
        help: "ports of this LoadBalancer where TLS ends, by number or name: 443,https; by default all TCP ports, without 80 if the Service has others",
        set: |wishes, text| {
            wishes.tls.ports = list(text, |it| {
                Ok(it.parse().map_or_else(|_| TargetPort::Name(it.into()), TargetPort::Number))
            })?;
            Ok(())
        },
    },
    Row {
        names: &[REDIRECT, "serviceloadbalancer/lb.sslTerm"],
        help: "true: plaintext requests are redirected to https; or false",
        set: |wishes, text| {
            wishes.tls.redirect = Some(yes_or_no(text)?);
            Ok(())
        },
    },
    Row {
        names: &[PASSTHROUGH],
        help: "true: the front door passes TLS for the hosts in seaway.dev/host through to the members; or false",
        set: |wishes, text| {
            wishes.tls.through = yes_or_no(text)?;
            Ok(())
        },
    },
    Row {
        names: &[HSTS],
        help: "how long browsers must use https only (HSTS), such as 8760h; or off",
        set: |wishes, text| {
            wishes.tls.hsts = Some(hsts(text)?);
            Ok(())
        },
    },
    Row {
        names: &[TLS_PROFILE],
        help: "modern: TLS 1.3 only; intermediate: also 1.2; at the front door for its host names",
        set: |wishes, text| {
            wishes.tls.profile = Some(match text {
                "modern" => TlsProfile::Modern,
                "intermediate" => TlsProfile::Intermediate,
                _ => return Err(format!("{text:?} is neither modern nor intermediate")),
            });
            Ok(())
        },
    },
    Row {
        names: &[AUTHORITIES],
        help: "a Secret whose ca.crt has the CA certificates for client certificates, which are then required; at the front door for its host names",
        set: |wishes, text| {
            wishes.tls.authorities = Some(name(text)?);
            Ok(())
        },
    },
    Row {
        names: &[CLIENTS],
        help: "required, or optional: a client without a certificate is served, too",
        set: |wishes: &mut ServiceOptions, text| {
            wishes.tls.clients_optional = match text {
                "required" => false,
                "optional" => true,
                _ => return Err(format!("{text:?} is neither required nor optional")),
            };
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/backend-tls"],
        help: "true: Seaway connects to members by TLS, as it does where appProtocol is https, wss, grpcs or h2; or false",
        set: |wishes, text| {
            wishes.tls.members.spoken = Some(yes_or_no(text)?);
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/backend-tls-name"],
        help: "the host name that Seaway sends to members in TLS (SNI), and that their certificates must have; else NAME.NAMESPACE.svc",
        set: |wishes, text| match http::host(text)? {
            HostPattern::Exact(name) => {
                wishes.tls.members.name = Some(name);
                Ok(())
            }
            HostPattern::Under(_) => Err(format!("{text:?} is a pattern, and no name")),
        },
    },
    Row {
        names: &[BACKEND_AUTHORITIES],
        help: "a Secret whose ca.crt has the CA certificates for members; without it, those of this machine",
        set: |wishes, text| {
            wishes.tls.members.authorities = Some(name(text)?);
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/backend-tls-verify"],
        help: "off: certificates of members are not verified; or on",
        set: |wishes, text| {
            wishes.tls.members.anybody = !yes_or_no(text)?;
            Ok(())
        },
    },
];

/// In seconds.
pub fn hsts(text: &str) -> Result<u32, String> {
    match text {
        "off" | "false" | "none" => Ok(0),
        _ => u32::try_from(duration(text)?.as_secs()).map_err(|_| format!("{text:?} is too long")),
    }
}

/// Of a Secret.
pub(super) fn name(text: &str) -> Result<Name, String> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    if text.is_empty() || text.len() > 253 || !text.bytes().all(plain) {
        return Err(format!("{text:?} is not a valid name of a Secret in the same namespace"));
    }
    Ok(text.into())
}
