//! What all kinds of objects have in common, written once: they are listed, read, made, changed, deleted and waited for.
//!
//! ```text
//!     cloud.all::<LoadBalancer>()  ┐                 ┌ pages, list, read, find           View      (pages.rs)
//!     cloud.within::<Member>(&pool)┴─► Collection ───┼ create: looks before it repeats   Creatable (lost.rs)
//!                                                    ├ change, change_if                 Changeable
//!     resource! { … } (table.rs) makes the types     └ delete, until_gone, until_ready             (wait.rs)
//! ```

mod edit;
mod fields;
mod id;
mod lost_reply;
mod pages;
mod query;
mod secret_text;
mod table;
mod wait;
mod words;

use std::marker::PhantomData;

use serde::Serialize;
use serde_json::{Value, json};

pub use edit::Edit::{self, Leave, To};
pub use fields::{FieldError, Fields, UnknownFields};
pub use id::{Id, InvalidId, Ref};
pub use pages::{Page, Pages, UnreadableObject};
pub use query::Query;
pub use secret_text::SecretText;
pub use wait::ResourceState;

pub(crate) use fields::or_default;
pub(crate) use id::encoded;
#[cfg(test)]
pub(crate) use pages::one_page;
pub(crate) use table::{field_name, resource, view, wire};
pub(crate) use words::words;

use crate::{Call, Class, Cloud, Error, Method, Reply, Service};

/// One kind of object of a service.
pub trait Resource: View<Resource = Self> {
    /// What it is found in: `()`, or the id of its parent.
    type Parent: ParentPath;
    const SERVICE: Service;
    /// Of the whole collection; `{}` is the parent's id.
    const PATH: &'static str;
    /// Where the list is, if that is elsewhere.
    const LIST: &'static str = Self::PATH;
    const NAMES: ResourceNames;
    const ID: &'static str = "id";

    /// Most kinds are ready as soon as they are there.
    fn standing(&self) -> ResourceState {
        ResourceState::Ready
    }
}

/// What is read of a resource: all of it, or the few fields that are needed of many.
pub trait View: Sized + Send + 'static {
    type Resource: Resource;
    /// Those asked for; none: all.
    const FIELDS: &'static [&'static str];

    fn id(&self) -> &Id<Self::Resource>;
    fn read(fields: Fields) -> Result<Self, FieldError>;
}

/// That it is there, and nothing more: for counting.
#[derive(Clone, Debug, PartialEq)]
pub struct IdOnly<R>(pub Id<R>);

impl<R: Resource> View for IdOnly<R> {
    type Resource = R;
    const FIELDS: &'static [&'static str] = &[R::ID];

    fn id(&self) -> &Id<R> {
        &self.0
    }

    fn read(mut fields: Fields) -> Result<IdOnly<R>, FieldError> {
        fields.id().map(IdOnly)
    }
}

/// What can be made.
pub trait Creatable: Resource {
    type New: Serialize + Sync;
    const KNOWN_BY: IdentifyingFields;
    /// Whether the reply is the new object. If not it has the id alone.
    const ECHOES: bool = true;

    /// How a service is asked for what has this in a field; none where it has no such filter.
    fn filter_value(_field: &str, text: &str) -> Option<String> {
        Some(text.to_owned())
    }
}

/// What can be changed.
pub trait Changeable: Resource {
    type Change: Serialize + Sync;
}

/// The fields of a new object that its like is looked for by, when nobody knows whether it was made.
#[derive(Clone, Copy, Debug)]
pub enum IdentifyingFields {
    /// They tell it from others only if it has a name, a description or tags.
    Marks(&'static [&'static str]),
    /// There can be no second one with these.
    Nature(&'static [&'static str]),
}

/// How a kind is called by people, in bodies, and in the labels of calls.
#[derive(Clone, Copy, Debug)]
pub struct ResourceNames {
    pub one: &'static str,
    /// The key of one in a body; none where the body is the object.
    pub key: Option<&'static str>,
    pub keys: &'static str,
    pub list: &'static str,
    pub read: &'static str,
    pub create: &'static str,
    pub change: &'static str,
    pub delete: &'static str,
}

macro_rules! noun {
    ($one:literal, $many:literal, $key:expr, $keys:literal) => {
        $crate::resource::ResourceNames {
            one: $one,
            key: $key,
            keys: $keys,
            list: concat!("list ", $many),
            read: concat!("read ", $one),
            create: concat!("create ", $one),
            change: concat!("change ", $one),
            delete: concat!("delete ", $one),
        }
    };
    ($one:literal, $many:literal as $key:literal, $keys:literal) => {
        $crate::resource::noun!($one, $many, Some($key), $keys)
    };
    ($one:literal, $many:literal) => {
        $crate::resource::noun!($one, $many, Some($one), $many)
    };
}

pub(crate) use noun;

/// Where a collection is.
pub trait ParentPath {
    fn within(&self, path: &'static str) -> String;
}

impl ParentPath for () {
    fn within(&self, path: &'static str) -> String {
        path.to_owned()
    }
}

impl<T> ParentPath for Id<T> {
    fn within(&self, path: &'static str) -> String {
        path.replacen("{}", &self.encoded(), 1)
    }
}

/// All objects of one kind, or those of one parent.
pub struct Collection<R> {
    pub(crate) cloud: Cloud,
    pub(crate) path: String,
    list: String,
    of: PhantomData<fn() -> R>,
}

impl Cloud {
    /// All objects of a kind, to be asked for; no request is made yet.
    pub fn all<R: Resource<Parent = ()>>(&self) -> Collection<R> {
        self.within(&())
    }

    /// Those in another object, such as the members of a pool; no request is made yet.
    pub fn within<R: Resource>(&self, home: &R::Parent) -> Collection<R> {
        Collection {
            cloud: self.clone(),
            path: home.within(R::PATH),
            list: home.within(R::LIST),
            of: PhantomData,
        }
    }
}

impl<R: Resource> Collection<R> {
    /// The list, a page at a time: it needs no more memory than the page that is looked at.
    pub fn pages<V: View<Resource = R>>(&self, query: Query) -> Pages<V> {
        Pages::new(self.cloud.clone(), self.list.clone(), query)
    }

    /// The whole list. An object that cannot be understood is an error; who can go on without it looks at `pages`.
    pub async fn list<V: View<Resource = R>>(&self, query: Query) -> Result<Vec<V>, Error> {
        self.pages(query).all().await
    }

    pub async fn read<V: View<Resource = R>>(&self, id: &Id<R>) -> Result<V, Error> {
        let mut call = self.call(Method::GET, R::NAMES.read, Some(id));
        for field in V::FIELDS {
            call = call.query("fields", *field);
        }
        decode_object(self.cloud.call(call).await?)
    }

    /// As `read`, with `None` for what is not there.
    pub async fn find<V: View<Resource = R>>(&self, id: &Id<R>) -> Result<Option<V>, Error> {
        match self.read(id).await {
            Ok(it) => Ok(Some(it)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What is gone already is deleted.
    pub async fn delete(&self, id: &Id<R>) -> Result<(), Error> {
        self.delete_by(self.call(Method::DELETE, R::NAMES.delete, Some(id))).await
    }

    /// The same, refused (`Class::Stale`) if the object has moved on from this revision. Neutron alone has those.
    pub async fn delete_if(&self, revision: u64, id: &Id<R>) -> Result<(), Error> {
        self.delete_by(self.call(Method::DELETE, R::NAMES.delete, Some(id)).if_revision(revision)).await
    }

    pub(crate) async fn delete_by(&self, call: Call) -> Result<(), Error> {
        match self.cloud.call(call).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn call(&self, method: Method, operation: &'static str, id: Option<&Id<R>>) -> Call {
        let path = match id {
            Some(id) => format!("{}/{}", self.path, id.encoded()),
            None => self.path.clone(),
        };
        Call::new(R::SERVICE, method, operation, path)
    }

    /// A call of what the object can do beside being read and written: `…/{id}/failover`.
    pub(crate) fn action(&self, method: Method, operation: &'static str, id: &Id<R>, action: &str) -> Call {
        Call::new(R::SERVICE, method, operation, format!("{}/{}/{action}", self.path, id.encoded()))
    }
}

impl<R: Changeable> Collection<R> {
    /// Sends what changes and nothing else.
    pub async fn change(&self, id: &Id<R>, change: &R::Change) -> Result<R, Error> {
        self.changed(self.call(Method::PUT, R::NAMES.change, Some(id)), change).await
    }

    /// The same, refused (`Class::Stale`) if the object has moved on from this revision. Neutron alone has those.
    pub async fn change_if(&self, revision: u64, id: &Id<R>, change: &R::Change) -> Result<R, Error> {
        self.changed(self.call(Method::PUT, R::NAMES.change, Some(id)).if_revision(revision), change).await
    }

    async fn changed(&self, call: Call, change: &R::Change) -> Result<R, Error> {
        decode_object(self.cloud.call(call.body(wrap_body::<R>(change))).await?)
    }
}

/// The body that a resource is sent in.
pub(crate) fn wrap_body<R: Resource>(content: &impl Serialize) -> Value {
    #[allow(clippy::expect_used, reason = "they are tables of ours, with text for keys")]
    let content = serde_json::to_value(content).expect("tables of fields have text for keys");
    match R::NAMES.key {
        Some(key) => json!({ key: content }),
        None => content,
    }
}

/// The one object of a reply.
pub(crate) fn decode_object<V: View>(reply: Reply) -> Result<V, Error> {
    let Reply { mut body, request_id, .. } = reply;
    let object = match V::Resource::NAMES.key {
        Some(key) => body.get_mut(key).map(Value::take).unwrap_or_default(),
        None => body,
    };
    Fields::of(object).and_then(V::read).map_err(|wrong| {
        unexpected_reply(V::Resource::SERVICE, V::Resource::NAMES.read, &wrong).with_request_id(request_id)
    })
}

/// A reply that is JSON, but not what the API promises.
pub(crate) fn unexpected_reply(service: Service, doing: &'static str, wrong: &FieldError) -> Error {
    Error::new(
        Class::Strange,
        format!("{} sent a response that Seaway cannot read: {wrong}", service.project()),
    )
    .with_operation(doing)
}
