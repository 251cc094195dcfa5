//! The forms that values may have, and the words in which Octavia's framework (WSME) refuses others.

use std::{net::IpAddr, str::FromStr};

use ipnet::IpNet;
use serde_json::Value;

use super::schema::{Kind, NESTED};
use crate::cloud::{
    exchange::Refusal,
    python::{python_str, quoted},
};

#[derive(Clone, Copy)]
pub(super) enum Form {
    Text(usize),
    Matching(fn(&str) -> bool, &'static str),
    Uuid,
    Bool,
    Int(i64, i64),
    Choice(&'static [&'static str]),
    Code(&'static [i64]),
    Version,
    Address,
    Cidrs,
    Texts,
    Uuids,
    Alpn,
    Words,
    Url,
    UrlPath,
    One(&'static Kind),
    Many(&'static Kind),
    /// Only in replies.
    Told,
}

impl Form {
    pub(super) fn read(self, name: &str, given: &Value) -> Result<Value, BodyError> {
        let bad = |message: String| BodyError::input(name, &python_str(given), &message);
        let text = || given.as_str().ok_or_else(|| bad("Value should be string".to_owned()));
        let texts = |least: fn(&str) -> Option<String>, message: &'static str| {
            let items = given
                .as_array()
                .ok_or_else(|| BodyError::Value(format!("Value not a valid list: {}", python_str(given))))?;
            let item = |it: &Value| {
                it.as_str().and_then(least).map(Value::from).ok_or_else(|| bad(message.to_owned()))
            };
            items.iter().map(item).collect::<Result<Value, _>>()
        };
        if given.is_null() {
            return Ok(Value::Null);
        }
        Ok(match self {
            Form::Told => Value::Null,
            Form::Text(most) if text()?.chars().count() > most => {
                return Err(bad(format!("Value should have a maximum character requirement of {most}")));
            }
            Form::Text(_) => given.clone(),
            Form::Matching(fits, pattern) if !fits(text()?) => {
                return Err(bad(format!("Value should match the pattern {pattern}")));
            }
            Form::Matching(..) => given.clone(),
            Form::Uuid => uuid(given.as_str().unwrap_or_default())
                .ok_or_else(|| bad("Value should be UUID format".to_owned()))?
                .into(),
            Form::Bool => flag(given)?.into(),
            Form::Int(least, most) => match whole(given)? {
                number if number < least => {
                    return Err(bad(format!("Value should be greater or equal to {least}")));
                }
                number if number > most => {
                    return Err(bad(format!("Value should be lower or equal to {most}")));
                }
                number => number.into(),
            },
            Form::Choice(choices) if choices.contains(&given.as_str().unwrap_or_default()) => given.clone(),
            Form::Choice(choices) => {
                return Err(bad(format!("Value should be one of: {}", choices.join(", "))));
            }
            Form::Code(codes) if given.as_i64().is_some_and(|code| codes.contains(&code)) => given.clone(),
            Form::Code(codes) => {
                let codes: Vec<String> = codes.iter().map(i64::to_string).collect();
                return Err(bad(format!("Value should be one of: {}", codes.join(", "))));
            }
            Form::Version => match given.as_f64() {
                Some(version) if version == 1.0 || version == 1.1 => version.into(),
                _ => return Err(bad("Value should be one of: 1.0, 1.1".to_owned())),
            },
            Form::Address if IpAddr::from_str(given.as_str().unwrap_or_default()).is_err() => {
                return Err(bad("Value should be IPv4 or IPv6 format".to_owned()));
            }
            Form::Address => given.clone(),
            Form::Cidrs => texts(cidr, "Value should be IPv4 or IPv6 CIDR format")?,
            Form::Texts => texts(|it| Some(it.to_owned()), "Value should be string")?,
            Form::Uuids => texts(uuid, "Value should be UUID format")?,
            Form::Alpn => texts(
                |it| ["h2", "http/1.1", "http/1.0"].contains(&it).then(|| it.to_owned()),
                "Value should be a valid ALPN protocol ID",
            )?,
            Form::Words => given.clone(),
            Form::Url if !is_url(text()?) => return Err(bad("Value must be a valid URL string".to_owned())),
            Form::Url => given.clone(),
            Form::UrlPath if !text()?.starts_with('/') || text()?.contains(char::is_whitespace) => {
                return Err(bad("Value must be a valid URL Path string".to_owned()));
            }
            Form::UrlPath => given.clone(),
            Form::One(kind) => {
                let given = given.as_object().ok_or_else(not_a_dict)?;
                kind.read(given, NESTED).map_err(|fault| fault.below(name))?.into()
            }
            Form::Many(kind) => {
                let items = given.as_array().ok_or_else(not_a_dict)?;
                let read = |item: &Value| kind.read(item.as_object().ok_or_else(not_a_dict)?, NESTED);
                let read = items.iter().map(|item| read(item).map(Value::from));
                read.collect::<Result<Value, _>>().map_err(|fault| fault.below(name))?
            }
        })
    }
}

/// Why a body is refused, before it is known whose body it is.
pub(super) enum BodyError {
    Unknown { path: Vec<String>, names: Vec<String> },
    Input(String),
    Value(String),
}

impl BodyError {
    pub(super) fn unknown(names: Vec<String>) -> BodyError {
        BodyError::Unknown { path: Vec::new(), names }
    }

    pub(super) fn input(name: &str, value: &str, message: &str) -> BodyError {
        BodyError::Input(format!("Invalid input for field/attribute {name}. Value: '{value}'. {message}"))
    }

    pub(super) fn below(mut self, name: &str) -> BodyError {
        if let BodyError::Unknown { path, .. } = &mut self {
            path.insert(0, name.to_owned());
        }
        self
    }

    pub(super) fn at_top(self, kind: &Kind, body: &Value) -> Refusal {
        let message = match self {
            BodyError::Unknown { mut path, names } => {
                path.insert(0, kind.argument.to_owned());
                let s = if names.len() > 1 { "s" } else { "" };
                format!("Unknown attribute{s} for argument {}: {}", path.join("."), names.join(", "))
            }
            BodyError::Input(message) => message,
            BodyError::Value(message) => {
                format!(
                    "Invalid input for field/attribute {}. Value: '{}'. {message}",
                    kind.argument,
                    python_str(body)
                )
            }
        };
        Refusal::new(400, message)
    }
}

pub(super) fn not_a_dict() -> BodyError {
    BodyError::Value("Value not a valid dict".to_owned())
}

fn flag(given: &Value) -> Result<bool, BodyError> {
    match given {
        Value::Bool(flag) => Ok(*flag),
        Value::Number(number) => Ok(number.as_f64() != Some(0.0)),
        Value::String(text) if ["true", "t", "yes", "y", "on", "1"].contains(&&**text) => Ok(true),
        Value::String(text) if ["false", "f", "no", "n", "off", "0"].contains(&&**text) => Ok(false),
        other => Err(BodyError::Value(format!("Value not an unambiguous boolean: {}", python_str(other)))),
    }
}

fn whole(given: &Value) -> Result<i64, BodyError> {
    let found = match given {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    found
        .ok_or_else(|| BodyError::Value(format!("invalid literal for int() with base 10: {}", quoted(given))))
}

/// With dashes, whether it came with them or not.
fn uuid(text: &str) -> Option<String> {
    let hex: String = text.chars().filter(|c| *c != '-').collect::<String>().to_ascii_lowercase();
    let valid = hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    valid.then(|| format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
}

fn cidr(text: &str) -> Option<String> {
    let net = IpNet::from_str(text).ok().or_else(|| IpAddr::from_str(text).ok().map(IpNet::from))?;
    Some(net.trunc().to_string())
}

fn is_url(text: &str) -> bool {
    let host = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    host.is_some_and(|host| !host.is_empty() && !host.contains(char::is_whitespace))
}
