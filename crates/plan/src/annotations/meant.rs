//! Which of our annotations an unknown one was probably meant to be: by its prefix, by a slip of the pen, and by its words.
//!
//! What was meant to protect closes the object that it is written on. A suggestion is never the opposite of what is written: a name
//! with `allowed` in it does not lead to the clients that are denied.

use super::{
    AUTHORITIES, BASIC_AUTH, BURST, CLIENT_RATE, DENIED, EquivalentAnnotation, FORWARD_AUTH,
    FORWARD_AUTHORIZATION, INTERNAL, OURS, RATE_KEY, REALM, SOURCE_RANGES,
    http::BODY_SIZE,
    other_name,
    protecting::{OF_CLIENTS, protects},
    rows,
};
use crate::spelling::{distance, nearest};

/// So many wrong letters are a slip of the pen, whatever the words are.
const SLIP: usize = 2;
/// Longer ones are not the domain of ours with a letter wrong.
const LONGEST_DOMAIN: usize = 16;
const SEPARATORS: [char; 4] = ['.', '-', '_', ':'];

const ALLOW: [&str; 10] = [
    "allow",
    "allowed",
    "allowlist",
    "whitelist",
    "whitelisted",
    "permit",
    "permitted",
    "accept",
    "accepted",
    "trusted",
];
const DENY: [&str; 12] = [
    "deny",
    "denied",
    "denylist",
    "blacklist",
    "blacklisted",
    "block",
    "blocked",
    "blocklist",
    "reject",
    "rejected",
    "ban",
    "banned",
];
/// Beside these, `allow` and `deny` are about clients; `cors-allow-origin` is not.
const OF_ADDRESSES: [&str; 23] = [
    "azure",
    "balancer",
    "policy",
    "from",
    "ip",
    "ips",
    "address",
    "addresses",
    "cidr",
    "cidrs",
    "source",
    "sources",
    "range",
    "ranges",
    "client",
    "clients",
    "network",
    "networks",
    "subnet",
    "subnets",
    "list",
    "only",
    "load",
];
const NETWORKS: [&str; 4] = ["acl", "firewall", "cidr", "cidrs"];
const USERS: [&str; 9] = [
    "auth",
    "authentication",
    "basicauth",
    "password",
    "passwords",
    "htpasswd",
    "login",
    "credentials",
    "forwardauth",
];
const ASKS_ANOTHER: [&str; 5] = ["oauth", "oauth2", "oidc", "sso", "jwt"];
const BY_ANOTHER: [&str; 7] = ["url", "uri", "forward", "external", "signin", "request", "forwardauth"];
const BY_CERTIFICATE: [&str; 4] = ["tls", "mtls", "certificate", "cert"];
/// What people note, and no program reads.
const NOTES: [&str; 29] = [
    "owner",
    "owners",
    "description",
    "summary",
    "team",
    "contact",
    "maintainer",
    "note",
    "notes",
    "comment",
    "comments",
    "managed-by",
    "created-by",
    "part-of",
    "ticket",
    "purpose",
    "documentation",
    "environment",
    "component",
    "version",
    "runbook",
    "runbook-url",
    "dashboard",
    "docs",
    "docs-url",
    "wiki",
    "repository",
    "homepage",
    "slack",
];
/// What these say is for members.
const TO_MEMBERS: [&str; 4] = ["backend", "upstream", "member", "bgp"];

/// What an unknown name comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnnotationSuggestion {
    /// Our name for it.
    pub ours: Option<&'static str>,
    /// What to write, where the name alone does not say it.
    pub fix: &'static str,
}

impl AnnotationSuggestion {
    /// The option that was to protect: without it, the object is not to be served.
    pub fn protection(self) -> Option<&'static str> {
        let option = match self.ours? {
            // Who says how a password is asked for means to ask.
            REALM | FORWARD_AUTHORIZATION => BASIC_AUTH,
            BURST | RATE_KEY => CLIENT_RATE,
            option => option,
        };
        (protects(option) || [BODY_SIZE, INTERNAL].contains(&option)).then_some(option)
    }
}

/// Whether an annotation has our prefix, and neither is known nor comes near one that is.
pub fn is_unknown(key: &str) -> bool {
    let is_row = || rows().any(|row| row.names.contains(&key));
    let is_meant = |name: &str| NOTES.contains(&name) || meant(name) != AnnotationSuggestion::default();
    key.strip_prefix(OURS).is_some_and(|name| !is_row() && !is_meant(name))
}

/// Of a name without its prefix, or of a field: `sourceRanges` is `source-ranges`.
pub fn meant(name: &str) -> AnnotationSuggestion {
    let name = kebab(name);
    if let Some(EquivalentAnnotation { ours, fix }) = other_name(&name) {
        return AnnotationSuggestion { ours: (!ours.is_empty()).then_some(ours), fix };
    }
    let ours = slip(&name, SLIP).or_else(|| by_words(&name)).or_else(|| slip(&name, usize::MAX));
    // `external` is its opposite, and `interface` something else.
    let ours = ours.filter(|it| *it != INTERNAL || distance(&name, "internal") <= 1);
    AnnotationSuggestion { ours: ours.map(|it| not_the_opposite(it, &name)), fix: "" }
}

/// The name in a key whose prefix is ours, or nearly: `Seaway.dev/host`, `seawy.dev/host`, `seaway/host`, `seaway.dev.host`.
pub fn name_of(key: &str) -> Option<String> {
    let lower = key.to_ascii_lowercase();
    let name = match lower.split_once('/') {
        Some((domain, name)) => is_nearly_ours(domain).then_some(name),
        None => {
            let mut ends = lower.rmatch_indices(SEPARATORS).map(|(at, _)| lower.split_at(at));
            let is_ours = |it: &(&str, &str)| it.0 == "seaway" || is_a_letter_off(&dotted(it.0));
            ends.find(is_ours).map(|(_, name)| name)
        }
    };
    name.map(|it| it.trim_matches(|it: char| !it.is_ascii_alphanumeric()).to_owned())
        .filter(|it| !it.is_empty())
}

fn is_nearly_ours(domain: &str) -> bool {
    let domain = dotted(domain);
    let is_another = domain.starts_with("seaway.") && domain.len() <= LONGEST_DOMAIN;
    domain == "seaway" || is_another || is_a_letter_off(&domain)
}

fn is_a_letter_off(domain: &str) -> bool {
    domain.len() <= LONGEST_DOMAIN && distance(domain, OURS.trim_end_matches('/')) <= 1
}

fn dotted(domain: &str) -> String {
    domain.trim().replace(['-', '_'], ".")
}

/// `loadBalancerSourceRanges`, `Load_Balancer.Source-Ranges`: in small letters, with hyphens.
pub(super) fn kebab(name: &str) -> String {
    let (mut kebab, mut was_small) = (String::with_capacity(name.len()), false);
    for it in name.chars() {
        if it.is_ascii_uppercase() && was_small {
            kebab.push('-');
        }
        was_small = it.is_ascii_lowercase() || it.is_ascii_digit();
        kebab.push(if it.is_ascii_alphanumeric() { it.to_ascii_lowercase() } else { '-' });
    }
    kebab
}

/// Ours with at most so many letters wrong, and a third of them.
fn slip(name: &str, most: usize) -> Option<&'static str> {
    let here = |name: &'static str| name.strip_prefix(OURS);
    let names: Vec<&str> = rows().flat_map(|row| row.names).copied().filter_map(here).collect();
    let near = nearest(name, &names).filter(|it| distance(name, it) <= most)?;
    rows().flat_map(|row| row.names).copied().find(|it| here(it) == Some(near))
}

/// One that says who is let in and whose words are all there, or that words of other programs stand for.
pub(super) fn by_words(name: &str) -> Option<&'static str> {
    let words: Vec<&str> = name.split('-').filter(|it| !it.is_empty()).collect();
    let singular = |it: &str| it.strip_suffix('s').unwrap_or(it).to_owned();
    let is_within = |option: &&&'static str| {
        let its: Vec<&str> = option.trim_start_matches(OURS).split('-').collect();
        let is_it = |part: &[&str]| part.iter().zip(&its).all(|(a, b)| singular(a) == singular(b));
        words.windows(its.len()).any(is_it)
    };
    if let Some(option) = OF_CLIENTS.iter().filter(is_within).max_by_key(|it| it.len()) {
        return Some(option);
    }
    let has = |all: &[&str]| words.iter().any(|it| all.contains(it));
    let are_addresses = |said: &[&str]| words.iter().all(|it| said.contains(it) || OF_ADDRESSES.contains(it));
    match () {
        () if has(&DENY) && are_addresses(&DENY) => Some(DENIED),
        () if has(&ALLOW) && are_addresses(&ALLOW) || has(&NETWORKS) => Some(SOURCE_RANGES),
        () if has(&TO_MEMBERS) => None,
        () if has(&ASKS_ANOTHER) || has(&USERS) && has(&BY_ANOTHER) => Some(FORWARD_AUTH),
        () if words.contains(&"mtls") || has(&USERS) && has(&BY_CERTIFICATE) => Some(AUTHORITIES),
        () if has(&USERS) => Some(BASIC_AUTH),
        () => None,
    }
}

/// Who is let in, and who is not, are not taken for each other.
pub(super) fn not_the_opposite(ours: &'static str, name: &str) -> &'static str {
    let has = |all: &[&str]| name.split('-').any(|it| all.contains(&it));
    match ours {
        DENIED if has(&ALLOW) => SOURCE_RANGES,
        SOURCE_RANGES if has(&DENY) => DENIED,
        _ => ours,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{CHECK_INTERVAL, ENTRANCE},
        *,
    };

    #[test]
    fn a_name_of_which_the_words_protect_is_understood_and_never_as_its_opposite() {
        for (name, ours) in [
            ("source-rangs", Some(SOURCE_RANGES)),
            ("allowed-source-ranges", Some(SOURCE_RANGES)),
            ("allow-source-range", Some(SOURCE_RANGES)),
            ("whitelist-ips", Some(SOURCE_RANGES)),
            ("ip-allow-list", Some(SOURCE_RANGES)),
            ("loadBalancerSourceRange", Some(SOURCE_RANGES)),
            ("LoadBalancerSourceRanges", Some(SOURCE_RANGES)),
            ("client.source_ranges", Some(SOURCE_RANGES)),
            ("firewall", Some(SOURCE_RANGES)),
            ("denid-source-ranges", Some(DENIED)),
            ("deny-source-ranges", Some(DENIED)),
            ("blocked-source-ranges", Some(DENIED)),
            ("blocked-ips", Some(DENIED)),
            ("basic-auth-secret", Some(BASIC_AUTH)),
            ("basicAuth", Some(BASIC_AUTH)),
            ("basic-auth-users", Some(BASIC_AUTH)),
            ("auth-type", Some(BASIC_AUTH)),
            ("auth-url", Some(FORWARD_AUTH)),
            ("oauth", Some(FORWARD_AUTH)),
            ("auth-tls-secret", Some(AUTHORITIES)),
            ("entrances", Some(ENTRANCE)),
            ("mtls", Some(AUTHORITIES)),
            ("mutual-tls", Some(AUTHORITIES)),
            ("client-ca", Some(AUTHORITIES)),
            ("ssl-client-ca", Some(AUTHORITIES)),
            ("verify-client", Some(AUTHORITIES)),
            ("only-from", Some(SOURCE_RANGES)),
            ("from", Some(SOURCE_RANGES)),
            ("networks", Some(SOURCE_RANGES)),
            ("throttle", Some(CLIENT_RATE)),
            ("limit", Some(CLIENT_RATE)),
            ("max-requests", Some(CLIENT_RATE)),
            ("max-body", Some(BODY_SIZE)),
            ("internal", Some(INTERNAL)),
            ("Internl", Some(INTERNAL)),
            ("internal-only", Some(ENTRANCE)),
            ("private", Some(ENTRANCE)),
            ("external", None),
            ("interface", None),
            ("cors-allow-origin", None),
            ("allowed-methods", None),
            ("block-size", None),
            ("team", None),
        ] {
            assert_eq!(meant(name).ours, ours, "{name}");
            assert_eq!(meant(name).protection(), ours, "{name}");
        }
        assert_eq!(meant("basic-auth-relm").ours, Some(REALM));
        assert_eq!(meant("basic-auth-relm").protection(), Some(BASIC_AUTH));
        assert_eq!(meant("balanse").protection(), None);
        assert_eq!(meant("interval").ours, Some(CHECK_INTERVAL));
        assert_eq!(meant("interval").protection(), None);
    }

    #[test]
    fn what_is_noted_for_people_closes_nothing_and_its_neighbours_do() {
        for name in NOTES {
            let key = format!("{OURS}{name}");
            assert!(!is_unknown(&key) && meant(name).protection().is_none(), "{name}: {:?}", meant(name));
        }
        for name in ["owner-auth", "team-source-ranges", "allowed-networks", "contact-acl", "password"] {
            assert!(meant(name).protection().is_some(), "{name}");
        }
        for name in ["waf", "security", "guard"] {
            assert!(is_unknown(&format!("{OURS}{name}")), "{name}");
        }
    }

    #[test]
    fn a_name_of_ours_that_comes_near_none_is_unknown() {
        for (key, expected) in [
            ("seaway.dev/waf", true),
            ("seaway.dev/team", false),
            ("seaway.dev/balanse", false),
            ("seaway.dev/balance", false),
            ("seaway.dev/only-from", false),
            ("example.com/waf", false),
        ] {
            assert_eq!(is_unknown(key), expected, "{key}");
        }
    }

    #[test]
    fn a_prefix_that_is_nearly_ours_is_ours() {
        for key in [
            "seaway.dev/source-ranges",
            "Seaway.dev/Source-Ranges",
            "seaway.dev.source-ranges",
            "seaway.dev-source-ranges",
            "seaway-dev/source-ranges",
            "seawy.dev/source-ranges",
            "seaway/source-ranges",
            "seaway.io/source-ranges",
            "seaway.dev//source-ranges",
            "seaway.source-ranges",
        ] {
            assert_eq!(name_of(key).as_deref(), Some("source-ranges"), "{key}");
        }
        for key in
            ["subway.dev/source-ranges", "source-ranges", "example.dev/host", "seaway.dev/", "seaways", ""]
        {
            assert_eq!(name_of(key), None, "{key}");
        }
    }
}
