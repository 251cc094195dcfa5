//! The rows about HTTP.

use seaway_model::{
    Name,
    load_balancer::{ConnectionReuse, CookieMode},
};

use super::{PerPort, Row, table::positive};
use crate::{
    http,
    quantity::{list, size},
};

pub const FRONT_DOOR: &str = "seaway.dev/front-door";
pub const PROTOCOL: &str = "seaway.dev/protocol";
pub const HOST: &str = "seaway.dev/host";
/// At which entrances of the front door.
pub const ENTRANCE: &str = "seaway.dev/entrance";
/// The entrance that is there without a name.
pub const MAIN: &str = "main";
pub const PATH: &str = "seaway.dev/path";

/// How large a request may be.
pub const BODY_SIZE: &str = "seaway.dev/max-body-size";

/// What the old HAProxy bank called its cookie.
const USUAL_COOKIE: &str = "SERVERID";

pub(super) const ROWS: &[Row] = &[
    Row {
        names: &[PROTOCOL],
        help: "http: the listeners of this LoadBalancer speak HTTP, as they do where TLS ends; or tcp; of single ports, by number or name: 443:http,dns:tcp",
        set: |wishes, text| {
            let said = PerPort::read(text, |it| match it {
                "http" => Ok(true),
                "tcp" => Ok(false),
                _ => Err(format!("{it:?} is not a protocol")),
            })?;
            wishes.http.spoken = said.others().or(wishes.http.spoken);
            wishes.http.spoken_at = said;
            Ok(())
        },
    },
    Row {
        names: &[FRONT_DOOR],
        help: "true: this Service is at the front door, of whatever type it is; or false",
        set: |wishes, text| {
            wishes.http.front_door = Some(yes_or_no(text)?);
            Ok(())
        },
    },
    Row {
        names: &[HOST, "serviceloadbalancer/lb.host"],
        help: "host names of this Service at the front door: shop.example,*.shop.example; or only below a path of one: shop.example/api",
        set: |wishes, text| {
            let written = list(text, http::host_and_path)?;
            if written.is_empty() {
                return Err("no host name is given".into());
            }
            for (host, path) in written {
                match path {
                    Some(path) => wishes.http.placed.push((host, path)),
                    None => wishes.http.hosts.push(host),
                }
            }
            Ok(())
        },
    },
    Row {
        names: &[ENTRANCE],
        help: "entrances of the front door where this is served, and nowhere else: internal, or main,internal; by default main",
        set: |wishes, text| {
            let label = |it: &str| {
                let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
                let is_name = !it.is_empty() && it.len() <= 63 && it.bytes().all(plain);
                if is_name {
                    Ok(Name::from(it))
                } else {
                    Err(format!("{it:?} is not a valid name of an entrance"))
                }
            };
            let mut named = list(text, label)?;
            if named.is_empty() {
                return Err("no entrance is named".into());
            }
            named.sort();
            named.dedup();
            wishes.http.entrances = named;
            // A load balancer there would be another way to it.
            wishes.cloud.unclear = true;
            Ok(())
        },
    },
    Row {
        names: &[PATH, "serviceloadbalancer/lb.aclMatch"],
        help: "paths of this Service at the front door, instead of the path of its name: /shop,/cart",
        set: |wishes, text| {
            let paths = list(text, http::path)?;
            if paths.is_empty() {
                return Err("no path is given".into());
            }
            wishes.http.paths = paths;
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/strip-prefix"],
        help: "true: remove the matched path from the request; false: keep it",
        set: |wishes, text| {
            wishes.http.strip_prefix = Some(yes_or_no(text)?);
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/sticky-cookie", "serviceloadbalancer/lb.cookie-sticky-session"],
        help: "true, or the name of a cookie by which a client keeps its member; or false",
        set: |wishes, text| {
            let name: Name = match yes_or_no(text) {
                Ok(false) => {
                    wishes.http.cookie = None;
                    return Ok(());
                }
                Ok(true) => USUAL_COOKIE.into(),
                Err(_) if http::is_token(text) => text.into(),
                Err(_) => return Err(format!("{text:?} cannot be a cookie's name")),
            };
            wishes.http.cookie = Some((name, CookieMode::Insert));
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/sticky-cookie-mode"],
        help: "insert: Seaway sets the cookie; rewrite: the member sets it, and Seaway adds a mark to it",
        set: |wishes, text| {
            let wanted = match text {
                "insert" => CookieMode::Insert,
                "rewrite" => CookieMode::Rewrite,
                _ => return Err(format!("{text:?} is neither insert nor rewrite")),
            };
            match &mut wishes.http.cookie {
                Some((_, mode)) => *mode = wanted,
                None => {
                    return Err(
                        "this annotation needs seaway.dev/sticky-cookie, which names the cookie".into()
                    );
                }
            }
            Ok(())
        },
    },
    Row {
        names: &[BODY_SIZE],
        help: "the largest body of a request, such as 10Mi (Ki, Mi, Gi, k, M, G; with a B behind it, too: 10MB is 10M); 0 means no limit",
        set: |wishes, text| {
            wishes.http.terms.body = Some(limit(size(text)?));
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/timeout-answer"],
        help: "how long a request in progress may go without data in either direction, such as 50s",
        set: |wishes, text| {
            wishes.timeouts.answer = positive(text)?;
            wishes.http.terms.answer = Some(wishes.timeouts.answer);
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/reuse-connections"],
        help: "when an open connection to a member is reused for another request: safe, strict, always or never (docs/http.md)",
        set: |wishes, text| {
            wishes.http.terms.reuse = match text {
                "safe" => ConnectionReuse::Safe,
                "strict" => ConnectionReuse::Strict,
                "always" => ConnectionReuse::Always,
                "never" => ConnectionReuse::Never,
                _ => return Err(format!("{text:?} is not safe, strict, always or never")),
            };
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/timeout-keep-alive"],
        help: "how long a client connection of this LoadBalancer may be idle between two requests, such as 60s",
        set: |wishes, text| {
            wishes.timeouts.keep_alive = positive(text)?;
            Ok(())
        },
    },
];

/// As the data plane counts: nothing is no limit.
fn limit(bytes: u64) -> u64 {
    if bytes == 0 { u64::MAX } else { bytes }
}

pub(super) fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "true" | "on" | "yes" => Ok(true),
        "false" | "off" | "no" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use seaway_model::{
        Config, Kind, ObjectRef,
        load_balancer::{ConnectionReuse, PoolHttpOptions},
    };

    use crate::annotations::ServiceOptions;

    #[test]
    fn a_service_says_how_much_it_takes_and_how_long_it_may_think() {
        let mut wishes = ServiceOptions::of(&Config::default().defaults);
        let annotations = [
            ("seaway.dev/max-body-size", "10Mi"),
            ("seaway.dev/timeout-connect", "2s"),
            ("seaway.dev/timeout-answer", "3m"),
            ("seaway.dev/timeout-keep-alive", "5s"),
            ("seaway.dev/timeout-idle", "4m"),
            ("seaway.dev/timeout-half-closed", "6s"),
            ("seaway.dev/drain", "7s"),
        ];
        let annotations = annotations.map(|(name, value)| (name.into(), value.into())).into();
        assert_eq!(wishes.read(&ObjectRef::new(Kind::Service, "default", "shop"), &annotations), []);
        let terms = PoolHttpOptions {
            body: Some(10 << 20),
            connect: Some(Duration::from_secs(2)),
            answer: Some(Duration::from_secs(180)),
            idle: Some(Duration::from_secs(240)),
            half_closed: Some(Duration::from_secs(6)),
            drain: Some(Duration::from_secs(7)),
            reuse: ConnectionReuse::Safe,
            compression: None,
        };
        assert_eq!(wishes.http.terms, terms);
        assert_eq!(wishes.timeouts.keep_alive, Duration::from_secs(5));
        let unlimited = [("seaway.dev/max-body-size".into(), "0".into())].into();
        wishes.read(&ObjectRef::new(Kind::Service, "default", "shop"), &unlimited);
        assert_eq!(wishes.http.terms.body, Some(u64::MAX));
    }

    #[test]
    fn a_service_says_which_connections_are_used_again_and_a_typo_stays_safe() {
        let mut config = Config::default();
        let shop = ObjectRef::new(Kind::Service, "default", "shop");
        let reuse = |config: &Config, text: &str| {
            let mut wishes = ServiceOptions::of(&config.defaults);
            let problems = wishes.read(&shop, &[("seaway.dev/reuse-connections".into(), text.into())].into());
            (wishes.http.terms.reuse, problems.len())
        };
        for (text, expected) in [
            ("safe", ConnectionReuse::Safe),
            ("strict", ConnectionReuse::Strict),
            ("always", ConnectionReuse::Always),
            ("never", ConnectionReuse::Never),
        ] {
            assert_eq!(reuse(&config, text), (expected, 0));
        }
        assert_eq!(reuse(&config, "Always"), (ConnectionReuse::Safe, 1));
        config.defaults.reuse = ConnectionReuse::Strict;
        assert_eq!(reuse(&config, "aggressive"), (ConnectionReuse::Strict, 1));
        assert_eq!(ServiceOptions::of(&config.defaults).http.terms.reuse, ConnectionReuse::Strict);
    }
}
