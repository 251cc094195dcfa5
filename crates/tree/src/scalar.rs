//! What a scalar stands for, as go-yaml v2 (which kubectl has below it) resolves it.

use std::borrow::Cow;

use super::Value;

/// `tag` is the last part of a core schema tag: `str` of `!!str`.
pub(super) fn resolve(text: Cow<'_, str>, plain: bool, tag: Option<&str>) -> Result<Value, String> {
    match tag {
        Some("str" | "binary" | "timestamp") => return Ok(Value::Text(text.into_owned())),
        None if !plain => return Ok(Value::Text(text.into_owned())),
        _ => {}
    }
    let value = meaning(&text);
    let fits = match tag {
        Some("int") => matches!(value, Some(Value::Int(_))),
        Some("float") => matches!(value, Some(Value::Int(_) | Value::Float(_))),
        Some("bool") => matches!(value, Some(Value::Bool(_))),
        Some("null") => matches!(value, Some(Value::Null)),
        _ => true,
    };
    if !fits {
        return Err(format!("cannot decode {text:?} as a !!{}", tag.unwrap_or_default()));
    }
    Ok(value.unwrap_or_else(|| Value::Text(text.into_owned())))
}

/// Null, or the text that is written.
pub(super) fn untyped(text: Cow<'_, str>, plain: bool) -> Value {
    if plain && is_null(&text) { Value::Null } else { Value::Text(text.into_owned()) }
}

fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

fn meaning(text: &str) -> Option<Value> {
    match text {
        text if is_null(text) => return Some(Value::Null),
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "y" | "Y" => {
            return Some(Value::Bool(true));
        }
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "n" | "N" => {
            return Some(Value::Bool(false));
        }
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Some(Value::Float(f64::INFINITY)),
        "-.inf" | "-.Inf" | "-.INF" => return Some(Value::Float(f64::NEG_INFINITY)),
        ".nan" | ".NaN" | ".NAN" => return Some(Value::Float(f64::NAN)),
        _ => {}
    }
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return None;
    }
    let text: Cow<'_, str> = if text.contains('_') { text.replace('_', "").into() } else { text.into() };
    integer(&text).map(Value::Int).or_else(|| float(&text).map(Value::Float))
}

/// Of any base: a leading 0 is octal, as in YAML 1.1.
fn integer(text: &str) -> Option<i64> {
    let (sign, digits) = match (text.strip_prefix('-'), text.strip_prefix('+')) {
        (Some(digits), _) => ("-", digits),
        (_, Some(digits)) => ("", digits),
        _ => ("", text),
    };
    let (radix, digits) = match (digits.as_bytes(), digits.get(2..)) {
        ([b'0', b'x' | b'X', ..], Some(digits)) => (16, digits),
        ([b'0', b'o' | b'O', ..], Some(digits)) => (8, digits),
        ([b'0', b'b' | b'B', ..], Some(digits)) => (2, digits),
        ([b'0', _, ..], _) => (8, digits.strip_prefix('0').unwrap_or_default()),
        _ => (10, digits),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return None;
    }
    i64::from_str_radix(&format!("{sign}{digits}"), radix).ok()
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`: also what looks octal and is not, as `09`.
fn float(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let well_formed = digits(whole)
        && digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|exponent| !exponent.is_empty() && digits(exponent));
    if well_formed { text.parse().ok() } else { None }
}
