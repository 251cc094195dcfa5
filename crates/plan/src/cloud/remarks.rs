//! What a Service asks of a cloud that is not done there, or not as it says. None of it is passed over in silence.

use seaway_model::{
    L4, Problem, Reason,
    config::CloudDefaults,
    fact::FamilyPolicy,
    load_balancer::{CookieMode, Family, Protocol},
};

use crate::{
    annotations::{
        BALANCE, BURST, CLIENT_RATE, COMPRESS, COMPRESS_PRIVATE, COMPRESS_TYPES, DENIED,
        FORWARD_AUTHORIZATION, FORWARD_HEADERS, PROXY, RATE_KEY, REALM, TLS_OTHERS,
    },
    demand::Demand,
};

/// Done by our own data plane alone.
const NATIVE: [&str; 18] = [
    DENIED,
    "seaway.dev/address-pool",
    "seaway.dev/share",
    "seaway.dev/share-across-namespaces",
    "seaway.dev/passive-ejection",
    "seaway.dev/passive-ejection-share",
    "seaway.dev/slow-start",
    "seaway.dev/panic-threshold",
    "seaway.dev/transparent",
    "seaway.dev/proxy-protocol-from",
    "seaway.dev/max-new-connections-per-second",
    "seaway.dev/max-connections-per-member",
    "seaway.dev/queue-timeout",
    "seaway.dev/timeout-connect",
    "seaway.dev/timeout-idle",
    "seaway.dev/timeout-half-closed",
    "seaway.dev/timeout-udp",
    "seaway.dev/drain",
];
/// The same, where HTTP is spoken; elsewhere they are told as what is about HTTP.
const NATIVE_OF_HTTP: [&str; 14] = [
    REALM,
    FORWARD_AUTHORIZATION,
    FORWARD_HEADERS,
    CLIENT_RATE,
    BURST,
    RATE_KEY,
    COMPRESS,
    COMPRESS_TYPES,
    COMPRESS_PRIVATE,
    "seaway.dev/passive-ejection-errors",
    "seaway.dev/timeout-answer",
    "seaway.dev/timeout-keep-alive",
    "seaway.dev/max-body-size",
    "seaway.dev/reuse-connections",
];
/// About TLS to members, which is spoken where HTTP is understood or TLS ends.
const TO_MEMBERS: [&str; 7] = [
    "seaway.dev/backend-tls-ca-container",
    "seaway.dev/backend-tls-crl-container",
    "seaway.dev/backend-tls-container",
    "seaway.dev/backend-tls",
    "seaway.dev/backend-tls-name",
    "seaway.dev/backend-tls-authorities",
    "seaway.dev/backend-tls-verify",
];
const STICKY: &str = "seaway.dev/sticky-cookie";
const STICKY_MODE: &str = "seaway.dev/sticky-cookie-mode";
const SENT: &str = "seaway.dev/health-check-send";
/// The name of a cookie where none is said.
const USUAL_COOKIE: &str = "SERVERID";
/// Providers that do nothing but `SOURCE_IP_PORT`.
const BY_SOURCE_PORT: &str = "ovn";

/// Whether what is written of it is looked at here, or by the driver.
pub(crate) fn is_told(option: &str) -> bool {
    NATIVE.iter().chain(&NATIVE_OF_HTTP).chain(&TO_MEMBERS).any(|it| *it == option)
}

impl Demand {
    pub(super) fn remarks(&self, usual: &CloudDefaults) -> Vec<Problem> {
        let mut remarks = Vec::new();
        let mut remark = |field: &str, message: String, fix: &str| {
            let problem = Problem::new(self.owner.object(), Reason::Unsupported, message);
            remarks.push(problem.at(field).fix(fix));
        };
        let http = &self.wishes.http;
        let at_front_door = http.front_door == Some(true) || http.names_entrances();
        let to_members = TO_MEMBERS.iter().filter(|_| !self.ports.iter().any(|it| self.speaks_tls(it)));
        let speaks_http = self.ports.iter().any(|it| self.protocol(&it.port) == Protocol::Http);
        let of_http = NATIVE_OF_HTTP.iter().filter(|_| speaks_http);
        // What protects is told even where it works at the front door: the cloud lets through what is to be kept out.
        let protects = |option: &str| [DENIED, CLIENT_RATE].contains(&option);
        let native = NATIVE.iter().chain(of_http).chain(to_members);
        let native = native.filter(|option| !at_front_door || protects(option));
        for field in native.filter_map(|option| self.wishes.written.get(option)) {
            let message = "load balancers of a cloud cannot do this: the annotation has no effect".to_owned();
            remark(field, message, "Remove the setting, or serve the Service with the native driver.");
        }
        if let (Some((name, _)), false, Some(field)) =
            (&http.cookie, at_front_door, self.wishes.written.get(STICKY))
            && name.as_str() != USUAL_COOKIE
        {
            let message =
                format!("the load balancer chooses the name of its cookie: the cookie is not called {name}");
            remark(field, message, "Say \"true\".");
        }
        if let (Some((_, CookieMode::Rewrite)), false, Some(field)) =
            (&http.cookie, at_front_door, self.wishes.written.get(STICKY_MODE))
        {
            let message =
                "the load balancer inserts a cookie of its own: the members' cookie is not rewritten"
                    .to_owned();
            remark(field, message, "Say insert.");
        }
        if let Some(field) = self.wishes.written.get(SENT).filter(|_| !at_front_door) {
            let message =
                "load balancers of a cloud choose what their probes send: this annotation has no effect"
                    .to_owned();
            remark(field, message, "Remove the setting, or serve the Service with the native driver.");
        }
        if let [first, _, ..] = self.wishes.requested[..] {
            let message = format!("of several addresses only the first is requested, {first}");
            remark(&self.wishes.requested_field, message, "Ask for one address.");
        }
        let is_plain = |l4: L4| l4 != L4::Tcp;
        let plain: Vec<String> = (self.ports.iter())
            .filter(|it| self.proxy(&it.port).is_some() && is_plain(it.port.protocol))
            .map(|it| it.id().to_string())
            .collect();
        if !plain.is_empty() {
            let message =
                format!("PROXY protocol is for TCP: members of port {} do not get it", plain.join(", "));
            remark(&self.wishes.field_of(PROXY), message, "Give those ports a Service of their own.");
        }
        if let (Some(field), None) = (self.wishes.written.get(TLS_OTHERS), self.cloud_tls(usual)) {
            let message =
                "these certificates have no effect: seaway.dev/tls-container names no first certificate"
                    .to_owned();
            remark(field, message, "Name the first in seaway.dev/tls-container.");
        }
        if let Some((message, fix)) = self.method(usual) {
            remark(&self.wishes.field_of(BALANCE), message, fix);
        }
        let wanted = self.service.families;
        if usual.networking.no_ipv6
            && wanted.policy == FamilyPolicy::Require
            && wanted.second == Some(Family::V6)
        {
            let message =
                "ipv6-support-disabled of [Networking] leaves the Service one address, of IPv4".to_owned();
            remark("spec.ipFamilyPolicy", message, "Set SingleStack, or remove ipv6-support-disabled.");
        }
        remarks
    }

    /// A way to balance that the provider does not have, and what it does instead.
    fn method(&self, usual: &CloudDefaults) -> Option<(String, &'static str)> {
        let field = self.wishes.written.get(BALANCE)?;
        let annotations = &self.service.meta.annotations;
        let said = annotations.iter().find(|(key, _)| field.contains(&format!("[{key}]")))?.1;
        let provider = self.wishes.cloud.provider.as_ref().unwrap_or(&usual.provider);
        match (said.trim(), provider.as_str()) {
            ("SOURCE_IP_PORT", it) if it != BY_SOURCE_PORT => Some((
                format!("provider {it} does not know SOURCE_IP_PORT; ROUND_ROBIN is used instead"),
                "Set ROUND_ROBIN.",
            )),
            ("ROUND_ROBIN" | "round-robin", it) if it == BY_SOURCE_PORT => Some((
                format!("provider {it} does not know ROUND_ROBIN; SOURCE_IP_PORT is used instead"),
                "Set SOURCE_IP_PORT.",
            )),
            _ => None,
        }
    }
}
