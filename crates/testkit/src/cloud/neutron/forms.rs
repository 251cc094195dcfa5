//! The forms that values may have, and Neutron's words for others.

use std::{net::IpAddr, str::FromStr};

use ipnet::IpNet;
use serde_json::Value;

use crate::cloud::{exchange::Refusal, python::python_str};

#[derive(Clone, Copy)]
pub(super) enum Form {
    Any,
    Text,
    Bool,
    Int,
    Uuid,
    Ip,
    Mac,
    Cidr,
    List,
    Choice(&'static [&'static str]),
    FixedIps,
    Pairs,
    Routes,
}

impl Form {
    pub(super) fn read(self, name: &str, given: &Value) -> Result<Value, Refusal> {
        let fault = |reason: String| bad(format!("Invalid input for {name}. Reason: {reason}"));
        let text = given.as_str().unwrap_or_default();
        if given.is_null() && !matches!(self, Form::Text | Form::Bool) {
            return Ok(Value::Null);
        }
        let fits = match self {
            Form::Any => true,
            Form::Text if !given.is_string() => {
                return Err(fault(format!("'{}' is not a valid string.", python_str(given))));
            }
            Form::Bool if !given.is_boolean() => {
                return Err(fault(format!("'{}' cannot be converted to boolean.", python_str(given))));
            }
            Form::Int if given.as_i64().is_none() => match text.parse::<i64>() {
                Ok(number) => return Ok(number.into()),
                Err(_) => return Err(fault(format!("'{}' is not an integer.", python_str(given)))),
            },
            Form::Uuid if !is_uuid(text) => {
                return Err(fault(format!("'{}' is not a valid UUID.", python_str(given))));
            }
            Form::Ip => is_ip(text),
            Form::Mac if !is_mac(text) => {
                return Err(fault(format!("'{}' is not a valid MAC address.", python_str(given))));
            }
            Form::Cidr if network(text).is_none() => {
                return Err(Refusal::of(
                    400,
                    "InvalidCIDR",
                    format!("Invalid CIDR {text} given as IP prefix."),
                ));
            }
            Form::Choice(choices) if !choices.contains(&text) => {
                return Err(fault(format!("{} is not in valid_values.", python_str(given))));
            }
            Form::List if !given.is_array() => {
                return Err(fault(format!("'{}' is not a list.", python_str(given))));
            }
            Form::FixedIps => {
                if let Some(wrong) = texts(given, "ip_address").into_iter().find(|it| !is_ip(it)) {
                    return Err(fault(format!("'{wrong}' is not a valid IP address.")));
                }
                true
            }
            Form::Pairs => {
                if let Some(wrong) = texts(given, "ip_address").into_iter().find(|it| network(it).is_none()) {
                    return Err(bad(format!("'{wrong}' is not a valid IP address")));
                }
                true
            }
            Form::Routes => return routes(given).map_err(fault),
            _ => true,
        };
        if fits {
            Ok(given.clone())
        } else {
            Err(fault(format!("'{}' is not a valid IP address.", python_str(given))))
        }
    }
}

fn routes(given: &Value) -> Result<Value, String> {
    let mut seen: Vec<&Value> = Vec::new();
    for route in given.as_array().into_iter().flatten() {
        let keys: Vec<String> =
            route.as_object().into_iter().flatten().map(|(name, _)| format!("'{name}'")).collect();
        if keys != ["'destination'", "'nexthop'"] {
            return Err(format!(
                "Validation of dictionary's keys failed. Expected keys: {{'destination', 'nexthop'}} Provided keys: {{{}}}.",
                keys.join(", ")
            ));
        }
        let destination = route["destination"].as_str().unwrap_or_default();
        if !destination.contains('/') || network(destination).is_none() {
            return Err(format!("'{destination}' is not a valid CIDR."));
        }
        if seen.contains(&route) {
            return Err(format!("Duplicate hostroute '{}'.", python_str(route)));
        }
        seen.push(route);
    }
    Ok(given.clone())
}

/// The texts under this name in a list of objects.
pub(super) fn texts<'v>(list: &'v Value, name: &str) -> Vec<&'v str> {
    list.as_array().into_iter().flatten().filter_map(|it| it.get(name)?.as_str()).collect()
}

pub(super) fn network(text: &str) -> Option<IpNet> {
    IpNet::from_str(text).ok().or_else(|| IpAddr::from_str(text).ok().map(IpNet::from))
}

fn is_ip(text: &str) -> bool {
    IpAddr::from_str(text).is_ok()
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36 && text.split('-').map(str::len).eq([8, 4, 4, 4, 12])
}

fn is_mac(text: &str) -> bool {
    text.len() == 17 && text.split(':').all(|it| it.len() == 2 && u8::from_str_radix(it, 16).is_ok())
}

pub(super) fn bad(message: impl std::fmt::Display) -> Refusal {
    Refusal::of(400, "HTTPBadRequest", message)
}
