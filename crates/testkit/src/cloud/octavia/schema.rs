//! What a body may hold: the attributes of each kind, and where they may stand.

use std::fmt;

use serde_json::{Map, Value};

use super::forms::{BodyError, Form, not_a_dict};
use crate::cloud::{
    exchange::{Refusal, Request},
    store::Fields,
};

pub(in crate::cloud) struct Kind {
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

/// A kind is known by its name; the rest of it is as long as Octavia's documentation.
impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.one)
    }
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
pub(super) const NESTED: u8 = 4;
const SHOWN: u8 = 8;

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
    pub(super) fn created(&'static self, request: &Request) -> Result<Fields, Refusal> {
        self.whole(request, CREATE)
    }

    /// What is to change.
    pub(super) fn changed(&'static self, request: &Request) -> Result<Fields, Refusal> {
        self.whole(request, CHANGE)
    }

    /// Many new objects in one body: `{"members": […]}`.
    pub(super) fn created_many(&'static self, request: &Request) -> Result<Vec<Fields>, Refusal> {
        let body = request.json().ok_or_else(not_json)?;
        let items = body.get(self.many).and_then(Value::as_array).ok_or_else(not_json)?;
        let read = |item: &Value| self.read(item.as_object().ok_or_else(not_a_dict)?, CREATE);
        items
            .iter()
            .map(read)
            .collect::<Result<_, _>>()
            .map_err(|fault| fault.below(self.many).at_top(self, &body))
    }

    fn whole(&'static self, request: &Request, place: u8) -> Result<Fields, Refusal> {
        let body = request.json().ok_or_else(not_json)?;
        let whole = body.as_object().ok_or_else(not_json)?;
        if let Some(other) = whole.keys().find(|key| *key != self.one) {
            return Err(BodyError::unknown(vec![other.clone()]).at_top(self, &body));
        }
        let inside = whole.get(self.one).and_then(Value::as_object).ok_or_else(not_json)?;
        self.read(inside, place).map_err(|fault| fault.below(self.one).at_top(self, &body))
    }

    pub(super) fn read(&'static self, given: &Map<String, Value>, place: u8) -> Result<Fields, BodyError> {
        let mine = || self.attributes.iter().filter(|it| it.uses & place != 0);
        let unknown: Vec<String> =
            given.keys().filter(|key| !mine().any(|it| it.name == **key)).cloned().collect();
        if !unknown.is_empty() {
            return Err(BodyError::unknown(unknown));
        }
        let mut fields = Fields::new();
        for attribute in mine() {
            match given.get(attribute.name) {
                Some(value) => {
                    let value = attribute.form.read(attribute.name, value)?;
                    fields.insert(attribute.name.to_owned(), value);
                }
                None if place == CHANGE => {}
                // A nested pool that is only named refers to another one.
                None if attribute.required && !(place == NESTED && self.one == "pool") => {
                    return Err(BodyError::input(attribute.name, "None", "Mandatory field missing."));
                }
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

fn not_json() -> Refusal {
    Refusal::new(400, "Request is not in valid JSON format")
}
