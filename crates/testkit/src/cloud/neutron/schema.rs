//! What a body may hold: the attributes of each kind, and who may give them.

use serde_json::{Value, json};

use super::forms::{Form, bad};
use crate::cloud::{
    exchange::{Refusal, Request},
    store::Fields,
};

pub(in crate::cloud) struct Kind {
    pub(super) one: &'static str,
    pub(super) many: &'static str,
    /// Type and words of the error that says so; `{}` is the id.
    pub(super) missing: (&'static str, &'static str),
    pub(super) fields: &'static [Field],
}

pub(super) struct Field {
    pub(super) name: &'static str,
    form: Form,
    on_create: bool,
    on_change: bool,
    required: bool,
    /// Only an administrator may give it.
    guarded: bool,
    pub(super) shown: bool,
    preset: FieldDefault,
}

#[derive(Clone, Copy)]
enum FieldDefault {
    Null,
    Word(&'static str),
    Flag(bool),
    Int(i64),
    Empty,
}

pub(super) const fn changed(name: &'static str, form: Form) -> Field {
    Field { on_change: true, ..created(name, form) }
}

pub(super) const fn created(name: &'static str, form: Form) -> Field {
    Field {
        name,
        form,
        on_create: true,
        on_change: false,
        required: false,
        guarded: false,
        shown: true,
        preset: FieldDefault::Null,
    }
}

pub(super) const fn told(name: &'static str) -> Field {
    Field { on_create: false, ..created(name, Form::Any) }
}

impl Field {
    pub(super) const fn required(mut self) -> Field {
        self.required = true;
        self
    }

    pub(super) const fn guarded(mut self) -> Field {
        self.guarded = true;
        self
    }

    pub(super) const fn silent(mut self) -> Field {
        self.shown = false;
        self
    }

    pub(super) const fn word(mut self, word: &'static str) -> Field {
        self.preset = FieldDefault::Word(word);
        self
    }

    pub(super) const fn flag(mut self, flag: bool) -> Field {
        self.preset = FieldDefault::Flag(flag);
        self
    }

    pub(super) const fn int(mut self, number: i64) -> Field {
        self.preset = FieldDefault::Int(number);
        self
    }

    pub(super) const fn empty(mut self) -> Field {
        self.preset = FieldDefault::Empty;
        self
    }

    fn preset(&self) -> Value {
        match self.preset {
            FieldDefault::Null => Value::Null,
            FieldDefault::Word(word) => word.into(),
            FieldDefault::Flag(flag) => flag.into(),
            FieldDefault::Int(number) => number.into(),
            FieldDefault::Empty => json!([]),
        }
    }
}

/// What an administrator's requests may have beside.
const EVERYWHERE: [&str; 2] = ["project_id", "tenant_id"];

impl Kind {
    /// All attributes of a new object, with presets for those that were not given.
    pub(super) fn created(&self, request: &Request) -> Result<Fields, Refusal> {
        let given = self.inside(request)?;
        for field in self.fields.iter().filter(|it| it.required) {
            if !given.contains_key(field.name) {
                let message =
                    format!("Failed to parse request. Required attribute '{}' not specified", field.name);
                return Err(bad(message));
            }
        }
        let mut fields = self.read(
            &given,
            |field| field.on_create,
            |name| format!("Attribute '{name}' not allowed in POST"),
        )?;
        self.guard(request, &given, "create")?;
        for field in self.fields {
            fields.entry(field.name).or_insert_with(|| field.preset());
        }
        Ok(fields)
    }

    /// What is to change.
    pub(super) fn changed(&self, request: &Request) -> Result<Fields, Refusal> {
        let given = self.inside(request)?;
        let fields = self.read(
            &given,
            |field| field.on_change,
            |name| format!("Cannot update read-only attribute {name}"),
        )?;
        self.guard(request, &given, "update")?;
        Ok(fields)
    }

    pub(super) fn is_known(&self, name: &str) -> bool {
        const ALWAYS: [&str; 8] = [
            "id",
            "project_id",
            "tenant_id",
            "created_at",
            "updated_at",
            "revision_number",
            "tags",
            "subnets",
        ];
        ALWAYS.contains(&name) || self.fields.iter().any(|it| it.name == name)
    }

    fn inside(&self, request: &Request) -> Result<Fields, Refusal> {
        let body = request.json().ok_or_else(|| bad("Body contains invalid data"))?;
        let inner = body.get(self.one).and_then(Value::as_object).cloned();
        inner.ok_or_else(|| bad(format!("Unable to find '{}' in request body", self.one)))
    }

    fn read(
        &self,
        given: &Fields,
        may: impl Fn(&Field) -> bool,
        refuse: impl Fn(&str) -> String,
    ) -> Result<Fields, Refusal> {
        let unknown: Vec<String> =
            given.keys().filter(|name| !self.is_known(name)).map(|name| format!("'{name}'")).collect();
        if !unknown.is_empty() {
            return Err(bad(format!("Unrecognized attribute(s) {}", unknown.join(", "))));
        }
        let mut fields = Fields::new();
        for (name, value) in given.iter().filter(|(name, _)| !EVERYWHERE.contains(&name.as_str())) {
            let field = self.fields.iter().find(|it| it.name == *name && may(it));
            let field = field.ok_or_else(|| bad(refuse(name)))?;
            fields.insert(name.clone(), field.form.read(name, value)?);
        }
        Ok(fields)
    }

    fn guard(&self, request: &Request, given: &Fields, verb: &str) -> Result<(), Refusal> {
        let guarded = self.fields.iter().find(|it| it.guarded && given.contains_key(it.name));
        match guarded {
            Some(field) if !request.caller.is_admin() => {
                let one = self.one;
                let rule = format!(
                    "(rule:{verb}_{one} and rule:{verb}_{one}:{}) is disallowed by policy",
                    field.name
                );
                Err(Refusal::of(403, "PolicyNotAuthorized", rule))
            }
            _ => Ok(()),
        }
    }
}
