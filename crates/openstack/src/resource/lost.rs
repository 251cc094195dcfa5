//! Making something, though the reply may be lost on its way.
//!
//! A POST whose outcome nobody knows is not repeated blindly. What it may have made is looked for by its exact
//! description: found once, it is taken for ours; not at all, the POST is repeated; several times, a human decides.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use serde_json::{Map, Value};

use super::{
    Collection, Creatable, Fields, Id, KnownBy, Query, Resource, View, Wrong, strange, understood, wrapped,
};
use crate::{Class, Error, Method, Reply};

const ATTEMPTS: usize = 3;

/// When to look: a service may still be at work on what we have stopped waiting for.
const LOOKS: [Duration; 3] = [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(4)];

impl<R: Creatable> Collection<R> {
    pub async fn create(&self, new: &R::New) -> Result<R, Error> {
        let body = wrapped::<R>(new);
        let sent = R::NOUN.key.map_or(&body, |key| &body[key]);
        let likeness = Likeness::of::<R>(sent);
        let mut lost: Option<Error> = None;
        for _ in 0..ATTEMPTS {
            let call = self.call(Method::POST, R::NOUN.create, None).body(body.clone());
            let error = match self.cloud.call(call).await {
                Ok(reply) => return self.made(reply).await,
                Err(error) => error,
            };
            let unknown = error.class() == &Class::Lost;
            // The first one may have been done after we looked: then it is what stands in the way now.
            let in_the_way = lost.is_some() && is_conflict(error.class());
            let Some(likeness) = likeness.as_ref().filter(|_| unknown || in_the_way) else {
                return Err(error);
            };
            match self.look_for(likeness).await {
                Ok(Some(made)) => return Ok(made),
                Ok(None) if unknown => lost = Some(error),
                Ok(None) => return Err(error),
                Err(several) if several.class() == &Class::Ambiguous => return Err(several),
                // Not knowing is what the caller has to hear of.
                Err(blind) => return Err(lost.filter(|_| !unknown).unwrap_or(error).with_source(blind)),
            }
        }
        Err(lost.expect("each attempt but the last returned or was lost"))
    }

    async fn made(&self, reply: Reply) -> Result<R, Error> {
        if R::ECHOES {
            return understood(reply);
        }
        let object = R::NOUN.key.map_or(&reply.body, |key| &reply.body[key]).clone();
        let id = Fields::of(object).and_then(|mut fields| fields.id::<R>());
        self.read(&id.map_err(|wrong| strange(R::SERVICE, R::NOUN.create, &wrong))?).await
    }

    async fn look_for(&self, likeness: &Likeness) -> Result<Option<R>, Error> {
        for pause in LOOKS {
            self.cloud.clock().sleep(pause).await;
            let mut found: Vec<Seen<R>> = self.list(likeness.query()).await?;
            found.retain(|it| likeness.fits(&it.fields) && !is_going(&it.fields));
            match found.len() {
                0 => continue,
                1 => return found.pop().map(Seen::understood).transpose(),
                number => {
                    let ids: Vec<&str> = found.iter().map(|it| it.id.as_str()).take(5).collect();
                    let message = format!(
                        "the reply was lost, and {number} are like the {} that was to be made: {}",
                        R::NOUN.one,
                        ids.join(", ")
                    );
                    return Err(Error::new(Class::Ambiguous, message)
                        .doing(R::NOUN.create)
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
struct Seen<R> {
    id: Id<R>,
    fields: Map<String, Value>,
}

impl<R: Resource> View for Seen<R> {
    type Of = R;
    const FIELDS: &'static [&'static str] = &[];

    fn id(&self) -> &Id<R> {
        &self.id
    }

    fn read(fields: Fields) -> Result<Seen<R>, Wrong> {
        let fields = fields.rest();
        let id = Fields::of(Value::Object(fields.clone()))?.id::<R>()?;
        Ok(Seen { id, fields })
    }
}

impl<R: Resource> Seen<R> {
    fn understood(self) -> Result<R, Error> {
        Fields::of(Value::Object(self.fields))
            .and_then(R::read)
            .map_err(|wrong| strange(R::SERVICE, R::NOUN.create, &wrong))
    }
}

/// What we would know a new object by.
#[derive(Debug)]
struct Likeness(Vec<(&'static str, Value)>);

impl Likeness {
    /// None if others may well be the same.
    fn of<R: Creatable>(sent: &Value) -> Option<Likeness> {
        Likeness::by(R::KNOWN_BY, sent)
    }

    fn by(known_by: KnownBy, sent: &Value) -> Option<Likeness> {
        let (fields, unique) = match known_by {
            KnownBy::Marks(fields) => (fields, false),
            KnownBy::Nature(fields) => (fields, true),
        };
        let said: Vec<(&'static str, Value)> = fields
            .iter()
            .filter_map(|field| Some((*field, sent.get(*field)?.clone())))
            .filter(|(_, value)| !text_of(value).is_empty())
            .collect();
        let marked = said.iter().any(|(field, _)| ["name", "description", "tags"].contains(field));
        ((unique && !said.is_empty()) || marked).then_some(Likeness(said))
    }

    fn query(&self) -> Query {
        self.0.iter().fold(Query::all(), |query, (field, value)| query.with(field, text_of(value)))
    }

    /// What an object does not tell (a listener its `loadbalancer_id`), the service has looked at.
    fn fits(&self, told: &Map<String, Value>) -> bool {
        self.0.iter().all(|(field, value)| told.get(*field).is_none_or(|told| same(value, told)))
    }
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

    const LOAD_BALANCER: KnownBy = KnownBy::Marks(&["name", "description", "tags", "vip_subnet_id"]);
    const MEMBER: KnownBy = KnownBy::Nature(&["address", "protocol_port", "name"]);

    #[test]
    fn what_has_no_mark_of_its_own_is_not_looked_for() {
        for (known_by, sent, looked_for) in [
            (LOAD_BALANCER, json!({"name": "a", "vip_subnet_id": "s"}), true),
            (LOAD_BALANCER, json!({"tags": ["ours"]}), true),
            (LOAD_BALANCER, json!({"name": "", "tags": [], "vip_subnet_id": "s"}), false),
            (LOAD_BALANCER, json!({"vip_subnet_id": "s"}), false),
            (MEMBER, json!({"address": "10.0.0.1", "protocol_port": 80}), true),
            (MEMBER, json!({}), false),
        ] {
            assert_eq!(Likeness::by(known_by, &sent).is_some(), looked_for, "{sent}");
        }
    }

    #[test]
    fn only_what_is_alike_in_every_mark_is_ours() {
        let sent =
            json!({"name": "a", "tags": ["x", "y"], "description": "", "address": "fd00:0::1", "port": 80});
        let fields = KnownBy::Nature(&["name", "tags", "description", "address", "port", "loadbalancer_id"]);
        let likeness = Likeness::by(fields, &sent).expect("it has a name");
        for (told, fits) in [
            (json!({"name": "a", "tags": ["y", "x"], "address": "fd00::1", "port": "80"}), true),
            (json!({"name": "a", "tags": ["y", "x"]}), true),
            (json!({"name": "a", "tags": ["y", "x", "z"]}), false),
            (json!({"name": "b", "tags": ["y", "x"]}), false),
            (json!({"name": "a", "tags": null}), false),
            (json!({"name": "a", "tags": ["x", "y"], "address": "fd00::2"}), false),
        ] {
            let Value::Object(told) = told else { unreachable!("written above") };
            assert_eq!(likeness.fits(&told), fits, "{told:?}");
        }
    }
}
