//! What an annotation says of single ports: `443:http,dns:tcp`, and of all others, `http`.

use seaway_model::fact::{ServicePort, TargetPort};

use crate::quantity::list;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerPort<T> {
    /// By number or name; the first that fits counts.
    said: Vec<(TargetPort, T)>,
    others: Option<T>,
}

impl<T> Default for PerPort<T> {
    fn default() -> PerPort<T> {
        PerPort { said: Vec::new(), others: None }
    }
}

impl<T: Clone> PerPort<T> {
    pub(crate) fn read(text: &str, one: impl Fn(&str) -> Result<T, String>) -> Result<PerPort<T>, String> {
        let (mut others, mut said) = (None, Vec::<(TargetPort, T)>::new());
        let parts = list(text, |it| Ok(it.to_owned()))?;
        if parts.is_empty() {
            return one(text).map(|it| PerPort { said: Vec::new(), others: Some(it) });
        }
        for part in parts {
            // An address is of all ports.
            let of_port = part.split_once(':').filter(|(_, rest)| !rest.starts_with("//"));
            let Some((port, value)) = of_port else {
                if others.replace(one(&part)?).is_some() {
                    return Err("the annotation has two values for all ports".to_owned());
                }
                continue;
            };
            let (port, value) = (port_named(port.trim()), one(value.trim())?);
            if said.iter().any(|(it, _)| *it == port) {
                return Err(format!("the annotation has two values for port {}", shown(&port)));
            }
            said.push((port, value));
        }
        Ok(PerPort { said, others })
    }

    /// Of this port by itself.
    pub(crate) fn of(&self, port: &ServicePort) -> Option<T> {
        self.said.iter().find(|(named, _)| is(named, port)).map(|(_, it)| it.clone())
    }

    /// Of this port, or of all that are not named.
    pub(crate) fn at(&self, port: &ServicePort) -> Option<T> {
        self.of(port).or_else(|| self.others())
    }

    pub(crate) fn others(&self) -> Option<T> {
        self.others.clone()
    }

    pub(crate) fn says_nothing(&self) -> bool {
        self.said.is_empty() && self.others.is_none()
    }

    /// Of single ports. What was said before counts more.
    pub(crate) fn extend(&mut self, more: PerPort<T>) {
        self.said.extend(more.said);
    }

    pub(crate) fn only(mut self, value: T) -> PerPort<T>
    where
        T: PartialEq,
    {
        self.said.retain(|(_, it)| *it == value);
        self
    }

    /// Those that are named and that a Service does not have.
    pub(crate) fn unknown<'p>(&self, ports: impl Iterator<Item = &'p ServicePort> + Clone) -> Vec<String> {
        let named = self.said.iter().map(|(named, _)| named);
        named.filter(|named| !ports.clone().any(|it| is(named, it))).map(shown).collect()
    }
}

fn port_named(text: &str) -> TargetPort {
    text.parse().map_or_else(|_| TargetPort::Name(text.into()), TargetPort::Number)
}

fn is(named: &TargetPort, port: &ServicePort) -> bool {
    match named {
        TargetPort::Number(number) => *number == port.port,
        TargetPort::Name(name) => *name == port.name,
    }
}

fn shown(port: &TargetPort) -> String {
    match port {
        TargetPort::Number(number) => number.to_string(),
        TargetPort::Name(name) => name.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use seaway_testkit::facts;

    use super::*;
    use crate::annotations::http::yes_or_no;

    #[test]
    fn single_ports_are_told_from_all_others() {
        let service = facts::service(
            "shop",
            &[("web", 80, TargetPort::Number(80)), ("tls", 443, TargetPort::Number(443))],
        );
        let [web, tls] = &service.ports[..] else { panic!("there are two") };
        for (text, others, of_web, of_tls) in [
            ("true", Some(true), None, None),
            ("443:true", None, None, Some(true)),
            ("tls:false, true", Some(true), None, Some(false)),
            ("80:true,tls:false", None, Some(true), Some(false)),
        ] {
            let read = PerPort::read(text, yes_or_no).expect(text);
            assert_eq!((read.others(), read.of(web), read.of(tls)), (others, of_web, of_tls), "{text}");
            assert_eq!(read.at(web), of_web.or(others), "{text}");
        }
        for text in ["", "80:perhaps", "true,false", "80:true,80:false", "80:"] {
            assert!(PerPort::read(text, yes_or_no).is_err(), "{text}");
        }
        let read = PerPort::read("https://a/1, tls:https://a/2", |it| Ok(it.to_owned())).expect("addresses");
        assert_eq!(
            (read.at(web).as_deref(), read.at(tls).as_deref()),
            (Some("https://a/1"), Some("https://a/2"))
        );
        let read = PerPort::read("80:true,8080:true,dns:false", yes_or_no).expect("it is one");
        assert_eq!(read.unknown(service.ports.iter()), ["8080", "dns"]);
    }
}
