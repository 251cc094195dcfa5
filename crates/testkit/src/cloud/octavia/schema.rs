//! What a body may hold: the attributes of each kind, and the words in which Octavia's framework (WSME) refuses others.

use std::{net::IpAddr, str::FromStr};

use ipnet::IpNet;
use serde_json::{Map, Value};

use crate::cloud::{exchange::Refusal, store::Fields};

pub(super) struct Kind {
    /// In bodies: `listener`, `listeners`.
    pub(super) one: &'static str,
    pub(super) many: &'static str,
    /// In messages: `Load Balancer`.
    pub(super) title: &'static str,
    /// What Octavia's code calls the body, which its messages tell.
    pub(super) argument: &'static str,
    /// What lives and dies with it.
    pub(super) below: &'static [&'static Kind],
    pub(super) attributes: &'static [Attribute],
}

pub(super) struct Attribute {
    pub(super) name: &'static str,
    form: Form,
    uses: u8,
    required: bool,
    preset: Preset,
}

/// Where an attribute may stand.
const CREATE: u8 = 1;
const CHANGE: u8 = 2;
/// In a load balancer that is created whole.
const NESTED: u8 = 4;
const SHOWN: u8 = 8;

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
    Texts(usize),
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

#[derive(Clone, Copy)]
enum Preset {
    Unset,
    Null,
    Flag(bool),
    Int(i64),
    Word(&'static str),
    Empty,
}

/// Given at creation, changed later, told always.
pub(super) const fn free(name: &'static str, form: Form) -> Attribute {
    Attribute { name, form, uses: CREATE | CHANGE | NESTED | SHOWN, required: false, preset: Preset::Unset }
}

/// Given at creation, never changed, told always.
pub(super) const fn fixed(name: &'static str, form: Form) -> Attribute {
    Attribute { name, form, uses: CREATE | NESTED | SHOWN, required: false, preset: Preset::Unset }
}

/// Given at creation, where it says whose child it is; told in another way.
pub(super) const fn link(name: &'static str, form: Form) -> Attribute {
    Attribute { name, form, uses: CREATE, required: false, preset: Preset::Unset }
}

/// Given when created whole; told in another way.
pub(super) const fn nested(name: &'static str, form: Form) -> Attribute {
    Attribute { name, form, uses: CREATE | NESTED, required: false, preset: Preset::Unset }
}

pub(super) const fn told(name: &'static str) -> Attribute {
    Attribute { name, form: Form::Told, uses: SHOWN, required: false, preset: Preset::Unset }
}

impl Attribute {
    pub(super) const fn required(mut self) -> Attribute {
        self.required = true;
        self
    }

    pub(super) const fn silent(mut self) -> Attribute {
        self.uses &= !SHOWN;
        self
    }

    pub(super) const fn never_nested(mut self) -> Attribute {
        self.uses &= !NESTED;
        self
    }

    pub(super) const fn only_nested(mut self) -> Attribute {
        self.uses = NESTED;
        self
    }

    pub(super) const fn null(self) -> Attribute {
        self.preset(Preset::Null)
    }

    pub(super) const fn flag(self, preset: bool) -> Attribute {
        self.preset(Preset::Flag(preset))
    }

    pub(super) const fn int(self, preset: i64) -> Attribute {
        self.preset(Preset::Int(preset))
    }

    pub(super) const fn word(self, preset: &'static str) -> Attribute {
        self.preset(Preset::Word(preset))
    }

    pub(super) const fn empty(self) -> Attribute {
        self.preset(Preset::Empty)
    }

    const fn preset(mut self, preset: Preset) -> Attribute {
        self.preset = preset;
        self
    }

    pub(super) fn is_told(&self) -> bool {
        self.uses & SHOWN != 0
    }

    /// Compared as a flag when a list is filtered by it.
    pub(super) fn is_flag(&self) -> bool {
        matches!(self.form, Form::Bool)
    }
}

impl Kind {
    /// The attributes of a new object; what was not given and has a preset, with it.
    pub(super) fn created(&'static self, body: &Value) -> Result<Fields, Refusal> {
        self.read(self.inside(body)?, CREATE).map_err(|fault| fault.at_top(self, body))
    }

    /// What is to change.
    pub(super) fn changed(&'static self, body: &Value) -> Result<Fields, Refusal> {
        self.read(self.inside(body)?, CHANGE).map_err(|fault| fault.at_top(self, body))
    }

    /// Many new objects in one body: `{"members": […]}`.
    pub(super) fn created_many(&'static self, body: &Value) -> Result<Vec<Fields>, Refusal> {
        let items = body.get(self.many).and_then(Value::as_array).ok_or_else(not_json)?;
        let read = |item: &Value| self.read(item.as_object().ok_or_else(not_a_dict)?, CREATE);
        items
            .iter()
            .map(read)
            .collect::<Result<_, _>>()
            .map_err(|fault| fault.below(self.many).at_top(self, body))
    }

    fn inside<'b>(&self, body: &'b Value) -> Result<&'b Map<String, Value>, Refusal> {
        let whole = body.as_object().ok_or_else(not_json)?;
        if let Some(other) = whole.keys().find(|key| *key != self.one) {
            return Err(Fault::unknown(vec![other.clone()]).at_top(self, body));
        }
        whole.get(self.one).and_then(Value::as_object).ok_or_else(not_json)
    }

    fn read(&'static self, given: &Map<String, Value>, place: u8) -> Result<Fields, Fault> {
        let mine = || self.attributes.iter().filter(|it| it.uses & place != 0);
        let unknown: Vec<String> =
            given.keys().filter(|key| !mine().any(|it| it.name == **key)).cloned().collect();
        if !unknown.is_empty() {
            return Err(Fault::unknown(unknown));
        }
        let mut fields = Fields::new();
        for attribute in mine() {
            match given.get(attribute.name) {
                Some(value) => {
                    let value = attribute.form.read(attribute.name, value)?;
                    fields.insert(attribute.name.to_owned(), value);
                }
                // A nested pool that is only named refers to another one.
                None if attribute.required && !(place == NESTED && self.one == "pool") => {
                    return Err(Fault::input(attribute.name, "None", "Mandatory field missing."));
                }
                None if place == CHANGE => {}
                None => {
                    if let Some(value) = attribute.preset.value() {
                        fields.insert(attribute.name.to_owned(), value);
                    }
                }
            }
        }
        Ok(fields)
    }
}

impl Preset {
    fn value(self) -> Option<Value> {
        match self {
            Preset::Unset => None,
            Preset::Null => Some(Value::Null),
            Preset::Flag(flag) => Some(flag.into()),
            Preset::Int(number) => Some(number.into()),
            Preset::Word(word) => Some(word.into()),
            Preset::Empty => Some(Value::Array(Vec::new())),
        }
    }
}

impl Form {
    fn read(self, name: &str, given: &Value) -> Result<Value, Fault> {
        let bad = |message: String| Fault::input(name, &said(given), &message);
        let text = || given.as_str().ok_or_else(|| bad("Value should be string".to_owned()));
        let texts = |least: fn(&str) -> Option<String>, message: &'static str| {
            let items = given
                .as_array()
                .ok_or_else(|| Fault::Value(format!("Value not a valid list: {}", said(given))))?;
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
            Form::Texts(_) => texts(|it| Some(it.to_owned()), "Value should be string")?,
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
enum Fault {
    Unknown { path: Vec<String>, names: Vec<String> },
    Input(String),
    Value(String),
}

impl Fault {
    fn unknown(names: Vec<String>) -> Fault {
        Fault::Unknown { path: Vec::new(), names }
    }

    fn input(name: &str, value: &str, message: &str) -> Fault {
        Fault::Input(format!("Invalid input for field/attribute {name}. Value: '{value}'. {message}"))
    }

    fn below(mut self, name: &str) -> Fault {
        if let Fault::Unknown { path, .. } = &mut self {
            path.insert(0, name.to_owned());
        }
        self
    }

    fn at_top(self, kind: &Kind, body: &Value) -> Refusal {
        let message = match self {
            Fault::Unknown { mut path, names } => {
                if body.get(kind.one).is_some() {
                    path.insert(0, kind.one.to_owned());
                }
                path.insert(0, kind.argument.to_owned());
                let s = if names.len() > 1 { "s" } else { "" };
                format!("Unknown attribute{s} for argument {}: {}", path.join("."), names.join(", "))
            }
            Fault::Input(message) => message,
            Fault::Value(message) => {
                format!(
                    "Invalid input for field/attribute {}. Value: '{}'. {message}",
                    kind.argument,
                    said(body)
                )
            }
        };
        Refusal::new(400, message)
    }
}

fn not_json() -> Refusal {
    Refusal::new(400, "Request is not in valid JSON format")
}

fn not_a_dict() -> Fault {
    Fault::Value("Value not a valid dict".to_owned())
}

/// A value as Python prints it.
fn said(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(quoted).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("'{name}': {}", quoted(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
    }
}

fn quoted(value: &Value) -> String {
    match value {
        Value::String(text) => format!("'{text}'"),
        other => said(other),
    }
}

fn flag(given: &Value) -> Result<bool, Fault> {
    match given {
        Value::Bool(flag) => Ok(*flag),
        Value::Number(number) => Ok(number.as_f64() != Some(0.0)),
        Value::String(text) if ["true", "t", "yes", "y", "on", "1"].contains(&&**text) => Ok(true),
        Value::String(text) if ["false", "f", "no", "n", "off", "0"].contains(&&**text) => Ok(false),
        other => Err(Fault::Value(format!("Value not an unambiguous boolean: {}", said(other)))),
    }
}

fn whole(given: &Value) -> Result<i64, Fault> {
    let found = match given {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    found.ok_or_else(|| Fault::Value(format!("invalid literal for int() with base 10: {}", quoted(given))))
}

/// With dashes, whether it came with them or not.
pub(super) fn uuid(text: &str) -> Option<String> {
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
