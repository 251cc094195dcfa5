//! Lists, a page at a time.

use std::{collections::HashSet, marker::PhantomData, sync::Arc};

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::{FieldError, Fields, Id, Query, Resource, View, unexpected_reply};
use crate::{Call, Class, Cloud, Error, Method};

/// A list under way.
pub struct Pages<V: View> {
    cloud: Cloud,
    path: String,
    query: Query,
    /// Where the next page begins; none at the first.
    cursor: Option<Cursor>,
    /// The ids of the last page in their order: each may serve as the marker, should those after it be deleted. Further
    /// and further back, so that few calls find one that is left.
    last: Vec<Id<V::Resource>>,
    /// All that were told: Neutron begins anew, and says nothing, when the object is gone after which a page begins.
    seen: HashSet<Arc<str>>,
    fresh: usize,
    /// Pages in a row with nothing new on them.
    stale: usize,
    ended: bool,
    of: PhantomData<fn() -> V>,
}

/// Objects of one page.
#[derive(Debug)]
pub struct Page<V> {
    pub items: Vec<V>,
    /// Those that could not be understood; they spoil nothing but themselves.
    pub broken: Vec<UnreadableObject>,
}

#[derive(Debug)]
pub struct UnreadableObject {
    pub id: Option<Arc<str>>,
    pub wrong: FieldError,
}

/// As the link to the next page has it.
#[derive(Clone, Debug, PartialEq)]
enum Cursor {
    Marker(String),
    /// Barbican counts.
    Offset(String),
}

impl<V: View> Pages<V> {
    pub(super) fn new(cloud: Cloud, path: String, query: Query) -> Pages<V> {
        Pages {
            cloud,
            path,
            query,
            cursor: None,
            last: Vec::new(),
            seen: HashSet::new(),
            fresh: 0,
            stale: 0,
            ended: false,
            of: PhantomData,
        }
    }

    /// The next page; none after the last one.
    pub async fn next(&mut self) -> Result<Option<Page<V>>, Error> {
        if self.ended {
            return Ok(None);
        }
        let mut back = 1;
        let body = loop {
            match self.cloud.call(self.call()).await {
                Ok(reply) => break reply.body,
                Err(error) if self.marker_may_be_gone(&error) => {
                    self.last.truncate(self.last.len().saturating_sub(back));
                    back = usize::saturating_mul(back, 2);
                    match self.last.last() {
                        Some(id) => self.cursor = Some(Cursor::Marker(id.to_string())),
                        None => return Err(error),
                    }
                }
                Err(error) => return Err(error),
            }
        };
        let next = next_link(&body).and_then(cursor_of);
        let mut page = one_page::<V>(body)?;
        self.last = page.items.iter().map(|it| it.id().clone()).collect();
        let seen = &mut self.seen;
        page.items.retain(|it| seen.insert(it.id().to_string().into()));
        page.broken.retain(|it| it.id.as_ref().is_none_or(|id| seen.insert(id.clone())));
        let is_new = !page.items.is_empty() || page.broken.iter().any(|it| it.id.is_some());
        match is_new {
            true => (self.fresh, self.stale) = (self.fresh.saturating_add(1), 0),
            false => self.stale = self.stale.saturating_add(1),
        }
        // Whoever begins anew comes to something new after as many pages as there were, if there is anything.
        if next.is_some() && self.stale > self.fresh.max(1) {
            let why = "the pages of the list form a loop: the last page links to an earlier one".to_owned();
            return Err(unexpected_reply(
                V::Resource::SERVICE,
                V::Resource::NAMES.list,
                &FieldError { field: String::new(), why },
            ));
        }
        self.ended = next.is_none();
        self.cursor = next.or(self.cursor.take());
        Ok(Some(page))
    }

    pub async fn all(mut self) -> Result<Vec<V>, Error> {
        let mut all = Vec::new();
        while let Some(page) = self.next().await? {
            if let Some(broken) = page.broken.into_iter().next() {
                return Err(broken.as_error::<V::Resource>());
            }
            all.extend(page.items);
        }
        Ok(all)
    }

    fn call(&self) -> Call {
        let mut call =
            Call::new(V::Resource::SERVICE, Method::GET, V::Resource::NAMES.list, self.path.clone());
        call.query.clone_from(&self.query.pairs);
        for field in V::FIELDS {
            call = call.query("fields", *field);
        }
        call = call.query("limit", self.query.page.to_string());
        match &self.cursor {
            None => call,
            Some(Cursor::Marker(id)) => call.query("marker", id),
            Some(Cursor::Offset(number)) => call.query("offset", number),
        }
    }

    /// Services refuse a marker whose object was deleted since the last page.
    fn marker_may_be_gone(&self, error: &Error) -> bool {
        matches!(self.cursor, Some(Cursor::Marker(_)))
            && matches!(error.class(), Class::NotFound | Class::Invalid)
    }
}

impl UnreadableObject {
    pub fn as_error<R: Resource>(&self) -> Error {
        let id = self.id.as_deref().unwrap_or("without an id");
        let why = format!("{} {id}: {}", R::NAMES.one, self.wrong);
        unexpected_reply(R::SERVICE, R::NAMES.list, &FieldError { field: String::new(), why })
    }
}

pub(crate) fn one_page<V: View>(mut body: Value) -> Result<Page<V>, Error> {
    let keys = V::Resource::NAMES.keys;
    let Some(Value::Array(objects)) = body.get_mut(keys).map(Value::take) else {
        let why = "is not a list".to_owned();
        return Err(unexpected_reply(
            V::Resource::SERVICE,
            V::Resource::NAMES.list,
            &FieldError { field: keys.to_owned(), why },
        ));
    };
    let mut page = Page { items: Vec::with_capacity(objects.len()), broken: Vec::new() };
    for object in objects {
        let id = object.get(V::Resource::ID).and_then(Value::as_str).map(Arc::from);
        match Fields::of(object).and_then(V::read) {
            Ok(item) => page.items.push(item),
            Err(wrong) => page.broken.push(UnreadableObject { id, wrong }),
        }
    }
    Ok(page)
}

/// `loadbalancers_links: [{rel: next, href}]` (but `flavorprofile_links`), or `next` as Barbican has it.
fn next_link(body: &Value) -> Option<&str> {
    let links = body.as_object()?.iter().filter(|(key, _)| key.ends_with("_links"));
    let links = links.filter_map(|(_, links)| links.as_array()).flatten();
    let next = links.into_iter().find(|it| it.get("rel").is_some_and(|rel| rel == "next"));
    next.and_then(|it| it.get("href")).or_else(|| body.get("next"))?.as_str()
}

/// The host of a link may be one that only the cloud itself knows: what counts is where the page begins.
fn cursor_of(link: &str) -> Option<Cursor> {
    let (_, query) = link.split_once('?')?;
    query.split('&').filter_map(|pair| pair.split_once('=')).find_map(|(name, value)| match name {
        "marker" => Some(Cursor::Marker(decoded(value))),
        "offset" => Some(Cursor::Offset(decoded(value))),
        _ => None,
    })
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_next_page_is_where_the_link_says_whatever_host_it_names() {
        let octavia = json!({"pools": [], "pools_links": [
            {"rel": "previous", "href": "http://inside/v2/lbaas/pools?marker=a"},
            {"rel": "next", "href": "http://inside/v2/lbaas/pools?limit=2&marker=b%2Fc&name=x"},
        ]});
        let link = next_link(&octavia).expect("a next page");
        assert_eq!(cursor_of(link), Some(Cursor::Marker("b/c".to_owned())));
        let barbican =
            json!({"secrets": [], "total": 30, "next": "http://inside/v1/secrets?limit=10&offset=10"});
        assert_eq!(next_link(&barbican).and_then(cursor_of), Some(Cursor::Offset("10".to_owned())));
        for last in
            [json!({"pools": []}), json!({"pools": [], "pools_links": []}), json!({"pools_links": null})]
        {
            assert_eq!(next_link(&last), None);
        }
    }

    #[test]
    fn what_is_no_escape_stays() {
        for (text, meant) in
            [("a%20b", "a b"), ("100%", "100%"), ("%zz%4%+f", "%zz%4%+f"), ("%ff", "\u{fffd}")]
        {
            assert_eq!(decoded(text), meant);
        }
    }
}
