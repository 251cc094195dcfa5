//! CORS: what pages of other origins may ask for.

use std::time::Duration;

use seaway_model::{
    Name,
    load_balancer::{Cors, HostPattern, Origin},
};

use super::{matches::METHODS, schema};
use crate::decode::Field;

const ORIGIN: &str =
    r"(^\*$)|(^(http(s)?):\/\/(((\*\.)?([a-zA-Z0-9\-]+\.)*[a-zA-Z0-9-]+|\*)(:([0-9]{1,5}))?)$)";

pub(super) fn read(field: &Field<'_>) -> Cors {
    let (origins, methods) = (field.child("allowOrigins"), field.child("allowMethods"));
    let (headers, expose) = (field.child("allowHeaders"), field.child("exposeHeaders"));
    let max_age = field.child("maxAge");
    let seconds = max_age.integer().unwrap_or(5);
    schema::at_least(&max_age, seconds, 1);
    let cors = Cors {
        origins: names(&origins, 64, well_formed).iter().filter_map(|it| origin(it)).collect(),
        credentials: field.child("allowCredentials").bool().unwrap_or(false),
        methods: names(&methods, 9, method),
        headers: names(&headers, 64, schema::token),
        expose: names(&expose, 64, schema::token),
        max_age: Duration::from_secs(seconds.max(0) as u64),
    };
    alone(&origins, "AllowOrigins cannot contain '*' alongside other origins");
    alone(&methods, "AllowMethods cannot contain '*' alongside other methods");
    alone(&headers, "AllowHeaders cannot contain '*' alongside other methods");
    cors
}

fn names(list: &Field<'_>, most: usize, judge: fn(&Field<'_>, &str)) -> Vec<Name> {
    schema::at_most_items(list, most);
    let mut names: Vec<Name> = Vec::new();
    for item in list.items() {
        let Some(text) = item.text() else { continue };
        judge(&item, text);
        if names.iter().any(|it| **it == *text) {
            item.duplicate(text);
        }
        names.push(text.into());
    }
    names
}

fn alone(list: &Field<'_>, message: &str) {
    let texts = list.texts();
    schema::require(list, !(texts.contains(&"*") && texts.len() > 1), message);
}

fn method(item: &Field<'_>, text: &str) {
    if text != "*" && !METHODS.contains(&text) {
        let all: Vec<&str> = METHODS.into_iter().chain(["*"]).collect();
        item.unsupported(text, &all);
    }
}

fn well_formed(item: &Field<'_>, text: &str) {
    schema::at_most_bytes(item, text, 253);
    if origin(text).is_none() {
        item.invalid(text, &format!("{} in body should match '{ORIGIN}'", item.path()));
    }
}

fn origin(text: &str) -> Option<Origin> {
    if text == "*" {
        return Some(Origin::Any);
    }
    let (scheme, rest) = text.split_once("://").filter(|(scheme, _)| matches!(*scheme, "http" | "https"))?;
    let (host, port) = match rest.split_once(':') {
        Some((host, port)) => {
            let digits = (1..=5).contains(&port.len()) && port.bytes().all(|b| b.is_ascii_digit());
            (host, Some(port.parse::<u16>().ok().filter(|_| digits)?))
        }
        None => (rest, None),
    };
    let lower = host.to_ascii_lowercase();
    let plain = |name: &str| {
        let label = |it: &str| !it.is_empty() && it.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        name.split('.').all(label)
    };
    let host = match lower.strip_prefix("*.") {
        _ if lower == "*" => None,
        Some(below) => Some(HostPattern::Under(below.into())).filter(|_| plain(below)),
        None => Some(HostPattern::Exact(lower.as_str().into())).filter(|_| plain(&lower)),
    };
    if host.is_none() && lower != "*" {
        return None;
    }
    Some(Origin::Like { scheme: scheme.into(), host, port })
}
