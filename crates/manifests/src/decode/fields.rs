//! What single fields can be read as.

use std::{net::IpAddr, time::Duration};

use ipnet::IpNet;
use seaway_plan::quantity::{duration, size};

use super::{DisplayValue, Field, FieldType};
use crate::tree::Value;

impl<'a> Field<'a> {
    pub fn text(&self) -> Option<&'a str> {
        self.note(FieldType::Text);
        self.any_text()
    }

    fn any_text(&self) -> Option<&'a str> {
        let node = self.present()?;
        match &node.value {
            Value::Text(text) => Some(text),
            _ => {
                self.wrong_type(node, "a string");
                None
            }
        }
    }

    /// Text, where an empty one is as good as none.
    pub fn name(&self) -> Option<&'a str> {
        self.text().filter(|text| !text.is_empty())
    }

    pub fn integer(&self) -> Option<i64> {
        self.note(FieldType::Integer(None));
        self.any_integer()
    }

    fn any_integer(&self) -> Option<i64> {
        let node = self.present()?;
        match &node.value {
            Value::Int(value) => Some(*value),
            // JSON knows one kind of number only.
            Value::Float(value) if value.fract() == 0.0 && value.abs() < 9e15 => Some(*value as i64),
            _ => {
                self.wrong_type(node, "an integer");
                None
            }
        }
    }

    pub fn bool(&self) -> Option<bool> {
        self.note(FieldType::Bool);
        let node = self.present()?;
        match &node.value {
            Value::Bool(value) => Some(*value),
            _ => {
                self.wrong_type(node, "a boolean");
                None
            }
        }
    }

    /// An integer of the type and range that the caller wants.
    pub fn integer_within<N: TryFrom<i64>>(&self, least: i64, most: i64) -> Option<N> {
        self.note(FieldType::Integer(Some((least, most))));
        let value = self.any_integer()?;
        let fitting = Some(value)
            .filter(|value| (least..=most).contains(value))
            .and_then(|value| value.try_into().ok());
        if fitting.is_none() {
            self.invalid(value, &format!("must be between {least} and {most}, inclusive"));
        }
        fitting
    }

    pub fn port(&self) -> Option<u16> {
        self.integer_within(1, 65535)
    }

    /// A number or text, as Kubernetes' IntOrString.
    pub fn int_or_string(&self) -> Option<IntOrString<'a>> {
        self.note(FieldType::Integer(None));
        self.note(FieldType::Text);
        let node = self.present()?;
        match &node.value {
            Value::Text(text) => Some(IntOrString::Text(text)),
            Value::Int(_) | Value::Float(_) => self.any_integer().map(IntOrString::Int),
            _ => {
                self.wrong_type(node, "an integer or a string");
                None
            }
        }
    }

    /// One of a few words, each with its meaning; they are told in the order given.
    pub fn one_of<T: Clone>(&self, meanings: &[(&str, T)]) -> Option<T> {
        self.note(FieldType::Words(meanings.iter().map(|(name, _)| (*name).to_owned()).collect()));
        let word = self.any_text().filter(|text| !text.is_empty())?;
        let found = meanings.iter().find(|(name, _)| *name == word).map(|(_, meaning)| meaning.clone());
        if found.is_none() {
            let names: Vec<&str> = meanings.iter().map(|(name, _)| *name).collect();
            self.unsupported(word, &names);
        }
        found
    }

    pub fn ip(&self) -> Option<IpAddr> {
        let text = self.text()?;
        let ip = lenient_ip(text);
        if ip.is_none() {
            self.invalid(text, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
        }
        ip
    }

    /// A network; blanks around it are forgiven, as the API server does for source ranges.
    pub fn network(&self) -> Option<IpNet> {
        let text = self.text()?;
        let net = lenient_network(text.trim());
        if net.is_none() {
            self.invalid(text, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)");
        }
        net
    }

    /// Bytes: a number, or text such as `10Mi`.
    pub fn size(&self) -> Option<u64> {
        self.note(FieldType::Size);
        let node = self.present()?;
        let size = match &node.value {
            Value::Int(bytes) => u64::try_from(*bytes).ok(),
            Value::Text(text) => size(text).ok(),
            _ => None,
        };
        if size.is_none() {
            self.invalid(node, "must be a size (e.g. 1048576, 512Ki, 10Mi or 1Gi)");
        }
        size
    }

    /// `500ms`, `5s`, `1m30s`, `1h`, as Go writes durations; as in annotations, a number is seconds.
    pub fn duration(&self) -> Option<Duration> {
        self.note(FieldType::Duration);
        let node = self.present()?;
        let duration = match &node.value {
            Value::Text(text) => duration(text).ok(),
            Value::Int(seconds) => duration(&seconds.to_string()).ok(),
            _ => None,
        };
        if duration.is_none() {
            self.invalid(node, "must be a duration (e.g. 500ms, 5s, 1m30s or 1h)");
        }
        duration
    }

    /// A list of texts; items that are none are reported and left out.
    pub fn texts(&'a self) -> Vec<&'a str> {
        self.items().filter_map(|item| item.text()).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntOrString<'a> {
    Int(i64),
    Text(&'a str),
}

impl DisplayValue for IntOrString<'_> {
    fn shown(&self) -> String {
        match self {
            IntOrString::Int(value) => value.shown(),
            IntOrString::Text(text) => text.shown(),
        }
    }
}

/// An address; leading zeros are decimal, as the API server goes on to accept them.
pub fn lenient_ip(text: &str) -> Option<IpAddr> {
    text.parse().ok().or_else(|| {
        let mut octets = [0_u8; 4];
        let mut parts = text.split('.');
        for octet in &mut octets {
            let part = parts.next()?;
            let digits = !part.is_empty() && part.len() < 8 && part.bytes().all(|b| b.is_ascii_digit());
            *octet = part.parse().ok().filter(|_| digits)?;
        }
        parts.next().is_none().then(|| IpAddr::from(octets))
    })
}

fn lenient_network(text: &str) -> Option<IpNet> {
    let (ip, length) = text.split_once('/')?;
    let digits = !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit());
    IpNet::new(lenient_ip(ip)?, length.parse().ok().filter(|_| digits)?).ok().map(|net| net.trunc())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::tests::faults_of;

    #[test]
    fn numbers_out_of_range_and_bad_addresses_are_refused_with_their_value() {
        let told =
            faults_of("port: 70000\nip: 1.2.3\nnet: 10.0.0.0/33\nwait: 5 parsecs\nkind: Foo\n", |root| {
                root.child("port").port();
                root.child("ip").ip();
                root.child("net").network();
                root.child("wait").duration();
                root.child("kind").one_of(&[("Bar", 1), ("Baz", 2)]);
            });
        assert_eq!(
            told,
            [
                "1:1: port: Invalid value: 70000: must be between 1 and 65535, inclusive",
                "2:1: ip: Invalid value: \"1.2.3\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                "3:1: net: Invalid value: \"10.0.0.0/33\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
                "4:1: wait: Invalid value: \"5 parsecs\": must be a duration (e.g. 500ms, 5s, 1m30s or 1h)",
                "5:1: kind: Unsupported value: \"Foo\": supported values: \"Bar\", \"Baz\"",
            ]
        );
    }

    #[test]
    fn leading_zeros_of_an_address_are_decimal() {
        assert_eq!(lenient_ip("010.000.0.08"), Some("10.0.0.8".parse().expect("an address")));
        assert_eq!(lenient_ip("1.2.3.4.5"), None);
        assert_eq!(lenient_ip("1.2.3.+4"), None);
        assert_eq!(lenient_network("10.1.2.3/8"), "10.0.0.0/8".parse().ok());
    }
}
