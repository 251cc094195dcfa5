//! Creation of a resource, also where the reply to the POST is lost.
//!
//! A POST whose outcome nobody knows is not repeated blindly. What it may have made is looked for by its exact
//! description: found once, it is taken for ours; not at all, the POST is repeated; several times, a human decides.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use serde_json::{Map, Value, json};

use super::{
    Collection, Creatable, FieldError, Fields, Id, IdentifyingFields, Query, Resource, View, decode_object,
    unexpected_reply, wrap_body,
};
use crate::{Class, Error, Method, Reply};

const ATTEMPTS: usize = 3;
static NOTHING: Value = Value::Null;

/// When to look: a service may still be at work on what we have stopped waiting for.
const LOOKS: [Duration; 3] = [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(4)];

impl<R: Creatable> Collection<R> {
    pub async fn create(&self, new: &R::New) -> Result<R, Error> {
        let body = wrap_body::<R>(new);
        let sent = R::NAMES.key.map_or(&body, |key| body.get(key).unwrap_or(&NOTHING));
        let sent_fields = SentFields::of::<R>(sent);
        let mut lost: Option<Error> = None;
        for _ in 0..ATTEMPTS {
            let call = self.call(Method::POST, R::NAMES.create, None).body(body.clone());
            let error = match self.cloud.call(call).await {
                Ok(reply) => return self.made(reply).await,
                Err(error) => error,
            };
            let unknown = error.class() == &Class::Lost;
            // The first one may have been done after we looked: then it is what stands in the way now.
            let in_the_way = lost.is_some() && is_conflict(error.class());
            let Some(sent_fields) = sent_fields.as_ref().filter(|_| unknown || in_the_way) else {
                return Err(error);
            };
            match self.look_for(sent_fields).await {
                Ok(Some(made)) => return Ok(made),
                Ok(None) if unknown => lost = Some(error),
                Ok(None) => return Err(error),
                Err(several) if several.class() == &Class::Ambiguous => return Err(several),
                // Not knowing is what the caller has to hear of.
                Err(blind) => return Err(lost.filter(|_| !unknown).unwrap_or(error).with_source(blind)),
            }
        }
        #[allow(clippy::expect_used, reason = "each attempt returned, or was lost")]
        Err(lost.expect("each attempt but the last returned or was lost"))
    }

    /// It is there from here on, whatever comes now: no error may say that it can be made again.
    async fn made(&self, reply: Reply) -> Result<R, Error> {
        let object = R::NAMES.key.map_or(&reply.body, |key| reply.body.get(key).unwrap_or(&NOTHING));
        let id = Fields::of(json!({ R::ID: object.get(R::ID) })).and_then(|mut fields| fields.id::<R>());
        let request = reply.request_id.clone();
        let known = match &id {
            _ if R::ECHOES => decode_object(reply),
            Ok(id) => self.read(id).await,
            Err(wrong) => Err(unexpected_reply(R::SERVICE, R::NAMES.create, wrong)),
        };
        known.map_err(|error| {
            let which = id.map_or_else(|_| "with an unknown id".to_owned(), |id| id.to_string());
            Error::new(
                Class::Lost,
                format!(
                    "the {} {which} was created, but Seaway cannot read the response to its creation; Seaway looks for it \
                     before it creates another one",
                    R::NAMES.one
                ),
            )
            .during(&self.call(Method::POST, R::NAMES.create, None))
            .with_request_id(request)
            .with_source(error)
        })
    }

    async fn look_for(&self, sent_fields: &SentFields) -> Result<Option<R>, Error> {
        for pause in LOOKS {
            self.cloud.clock().sleep(pause).await;
            let mut found: Vec<ListedObject<R>> = self.list(sent_fields.query()).await?;
            found.retain(|it| sent_fields.fits(&it.fields) && !is_going(&it.fields));
            match found.len() {
                0 => continue,
                1 => return found.pop().map(ListedObject::understood).transpose(),
                number => {
                    let ids: Vec<&str> = found.iter().map(|it| it.id.as_str()).take(5).collect();
                    let message = format!(
                        "the reply was lost, and {number} objects match the {} that was to be created: {}",
                        R::NAMES.one,
                        ids.join(", ")
                    );
                    return Err(Error::new(Class::Ambiguous, message)
                        .with_operation(R::NAMES.create)
                        .with_fix("delete those that are not needed"));
                }
            }
        }
        Ok(None)
    }
}

fn is_conflict(class: &Class) -> bool {
    matches!(
        class,
        Class::Duplicate | Class::Conflict | Class::Immutable | Class::InUse | Class::AddressTaken
    )
}

/// An object of a list as it was told, of which we do not know yet whether it is the one.
struct ListedObject<R> {
    id: Id<R>,
    fields: Map<String, Value>,
}

impl<R: Resource> View for ListedObject<R> {
    type Resource = R;
    const FIELDS: &'static [&'static str] = &[];

    fn id(&self) -> &Id<R> {
        &self.id
    }

    fn read(fields: Fields) -> Result<ListedObject<R>, FieldError> {
        let fields = fields.rest();
        let id = Fields::of(Value::Object(fields.clone()))?.id::<R>()?;
        Ok(ListedObject { id, fields })
    }
}

impl<R: Resource> ListedObject<R> {
    fn understood(self) -> Result<R, Error> {
        Fields::of(Value::Object(self.fields))
            .and_then(R::read)
            .map_err(|wrong| unexpected_reply(R::SERVICE, R::NAMES.create, &wrong))
    }
}

/// What we would know a new object by: each field as it was sent, and those as empty that were left.
#[derive(Debug)]
struct SentFields {
    fields: Vec<(&'static str, Value)>,
    sought: fn(&str, &str) -> Option<String>,
}

/// What a human would tell objects apart by.
const MARKS: [&str; 3] = ["name", "description", "tags"];

impl SentFields {
    /// None if others may well be the same.
    fn of<R: Creatable>(sent: &Value) -> Option<SentFields> {
        SentFields::by(R::KNOWN_BY, R::filter_value, sent)
    }

    fn by(
        known_by: IdentifyingFields,
        sought: fn(&str, &str) -> Option<String>,
        sent: &Value,
    ) -> Option<SentFields> {
        let (fields, unique) = match known_by {
            IdentifyingFields::Marks(fields) => (fields, false),
            IdentifyingFields::Nature(fields) => (fields, true),
        };
        let said = |field: &str| sent.get(field).filter(|it| !is_empty(it));
        let marked = fields.iter().any(|it| said(it).is_some() && (unique || MARKS.contains(it)));
        let fields = fields.iter().filter_map(|field| match said(field) {
            Some(value) => Some((*field, value.clone())),
            // Of what else was left, the cloud has chosen something.
            None => (unique || MARKS.contains(field)).then_some((*field, Value::Null)),
        });
        marked.then(|| SentFields { fields: fields.collect(), sought })
    }

    fn query(&self) -> Query {
        let said = self.fields.iter().filter(|(_, value)| !value.is_null());
        let sought = said.filter_map(|(field, value)| Some((field, (self.sought)(field, &text_of(value))?)));
        sought.fold(Query::all(), |query, (field, text)| query.with(field, text))
    }

    /// What an object does not tell at all, the service has looked at.
    fn fits(&self, told: &Map<String, Value>) -> bool {
        self.fields.iter().all(|(field, value)| match (told.get(*field), parents(told, field)) {
            (Some(told), _) => same(value, told),
            (None, Some(mut parents)) => parents.any(|it| it == value),
            (None, None) => true,
        })
    }
}

/// A listener that was made with a `loadbalancer_id` tells `loadbalancers: [{id}]`.
fn parents<'a>(told: &'a Map<String, Value>, field: &str) -> Option<impl Iterator<Item = &'a Value>> {
    let parents = told.get(&format!("{}s", field.strip_suffix("_id")?))?.as_array()?;
    Some(parents.iter().filter_map(|it| it.get("id")))
}

fn is_empty(value: &Value) -> bool {
    matches!(value, Value::Bool(false)) || text_of(value).is_empty()
}

/// As a filter has it; nothing for what is null or empty.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Bool(bit) => bit.to_string(),
        Value::Array(items) => items.iter().map(text_of).collect::<Vec<_>>().join(","),
        Value::Null | Value::Object(_) => String::new(),
    }
}

fn same(sent: &Value, told: &Value) -> bool {
    if sent.is_null() {
        return is_empty(told);
    }
    let set =
        |value: &Value| -> Option<BTreeSet<String>> { Some(value.as_array()?.iter().map(text_of).collect()) };
    let ip = |value: &Value| value.as_str()?.parse::<IpAddr>().ok();
    match (set(sent), set(told), ip(sent), ip(told)) {
        (Some(sent), Some(told), ..) => sent == told,
        (_, _, Some(sent), Some(told)) => sent == told,
        _ => text_of(sent) == text_of(told),
    }
}

fn is_going(told: &Map<String, Value>) -> bool {
    ["provisioning_status", "status"]
        .iter()
        .filter_map(|field| told.get(*field)?.as_str())
        .any(|status| ["PENDING_DELETE", "DELETED", "SOFT_DELETED"].contains(&status))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LOAD_BALANCER: IdentifyingFields =
        IdentifyingFields::Marks(&["name", "description", "tags", "vip_subnet_id"]);
    const RULE: IdentifyingFields = IdentifyingFields::Nature(&["group", "protocol", "port"]);

    fn sent_fields(known_by: IdentifyingFields, sent: &Value) -> Option<SentFields> {
        SentFields::by(known_by, |field, text| (field != "port").then(|| text.to_owned()), sent)
    }

    #[test]
    fn what_has_no_mark_of_its_own_is_not_looked_for() {
        for (known_by, sent, looked_for) in [
            (LOAD_BALANCER, json!({"name": "a", "vip_subnet_id": "s"}), true),
            (LOAD_BALANCER, json!({"tags": ["ours"]}), true),
            (LOAD_BALANCER, json!({"name": "", "tags": [], "vip_subnet_id": "s"}), false),
            (LOAD_BALANCER, json!({"vip_subnet_id": "s"}), false),
            (RULE, json!({"group": "g"}), true),
            (RULE, json!({}), false),
        ] {
            assert_eq!(sent_fields(known_by, &sent).is_some(), looked_for, "{sent}");
        }
    }

    #[test]
    fn only_what_can_be_sought_is_a_filter() {
        let sent = json!({"group": "g", "protocol": null, "port": 80});
        let query = sent_fields(RULE, &sent).expect("it has a group").query();
        assert_eq!(query, Query::all().with("group", "g"));
    }

    #[test]
    fn only_what_is_alike_in_every_mark_is_ours() {
        let balancer = json!({"name": "a", "tags": ["x", "y"], "vip_subnet_id": "s"});
        let rule = json!({"group": "g", "port": 80});
        for (known_by, sent, told, fits) in [
            (LOAD_BALANCER, &balancer, json!({"name": "a", "tags": ["y", "x"], "vip_subnet_id": "s"}), true),
            (LOAD_BALANCER, &balancer, json!({"name": "a", "tags": ["y", "x"]}), true),
            (LOAD_BALANCER, &balancer, json!({"name": "a", "tags": ["y", "x", "z"]}), false),
            (LOAD_BALANCER, &balancer, json!({"name": "b", "tags": ["y", "x"]}), false),
            (LOAD_BALANCER, &balancer, json!({"name": "a", "tags": null}), false),
            (
                LOAD_BALANCER,
                &balancer,
                json!({"name": "a", "tags": ["x", "y"], "description": "other"}),
                false,
            ),
            (RULE, &rule, json!({"group": "g", "port": "80"}), true),
            (RULE, &rule, json!({"group": "g", "port": 80, "protocol": null}), true),
            (RULE, &rule, json!({"group": "g", "port": 80, "protocol": "tcp"}), false),
            (RULE, &json!({"group": "g"}), json!({"group": "g", "port": 80}), false),
        ] {
            let Value::Object(told) = told else { unreachable!("written above") };
            assert_eq!(sent_fields(known_by, sent).expect("marks").fits(&told), fits, "{sent} {told:?}");
        }
    }

    #[test]
    fn an_address_is_the_same_however_it_is_written_and_a_parent_however_it_is_told() {
        const CHILD: IdentifyingFields = IdentifyingFields::Nature(&["address", "listener_id"]);
        let sent = json!({"address": "fd00:0::1", "listener_id": "l"});
        for (told, fits) in [
            (json!({"address": "fd00::1", "listeners": [{"id": "k"}, {"id": "l"}]}), true),
            (json!({"address": "fd00::1"}), true),
            (json!({"address": "fd00::1", "listeners": [{"id": "k"}]}), false),
            (json!({"address": "fd00::2", "listeners": [{"id": "l"}]}), false),
        ] {
            let Value::Object(told) = told else { unreachable!("written above") };
            assert_eq!(sent_fields(CHILD, &sent).expect("it is unique").fits(&told), fits, "{told:?}");
        }
    }
}
