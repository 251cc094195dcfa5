//! The rows about HTTP.

use seaway_model::{Name, load_balancer::CookieMode};

use super::Row;
use crate::{http, quantity::list};

pub const FRONT_DOOR: &str = "seaway.dev/front-door";
pub const HOST: &str = "seaway.dev/host";
pub const PATH: &str = "seaway.dev/path";

/// What the old HAProxy bank called its cookie.
const USUAL_COOKIE: &str = "SERVERID";

pub(super) const ROWS: &[Row] = &[
    Row {
        names: &["seaway.dev/protocol"],
        help: "http: the listeners of this LoadBalancer speak HTTP; or tcp",
        set: |wishes, text| {
            wishes.http.spoken = match text {
                "http" => true,
                "tcp" => false,
                _ => return Err(format!("{text:?} is no protocol")),
            };
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
        help: "host names that lead to it at the front door: shop.example,*.shop.example",
        set: |wishes, text| {
            let hosts = list(text, http::host)?;
            if hosts.is_empty() {
                return Err("no host name is given".into());
            }
            wishes.http.hosts = hosts;
            Ok(())
        },
    },
    Row {
        names: &[PATH, "serviceloadbalancer/lb.aclMatch"],
        help: "paths that lead to it at the front door instead of its name, as they are: /shop,/cart",
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
        help: "whether the path that led to it is taken away: true, or false",
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
        help: "insert: the cookie is ours; rewrite: it is the member's own, with our mark in it",
        set: |wishes, text| {
            let wanted = match text {
                "insert" => CookieMode::Insert,
                "rewrite" => CookieMode::Rewrite,
                _ => return Err(format!("{text:?} is neither insert nor rewrite")),
            };
            match &mut wishes.http.cookie {
                Some((_, mode)) => *mode = wanted,
                None => return Err("it is said of no cookie; seaway.dev/sticky-cookie names it".into()),
            }
            Ok(())
        },
    },
];

fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "true" | "on" | "yes" => Ok(true),
        "false" | "off" | "no" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}
