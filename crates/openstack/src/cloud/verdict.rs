//! What an outcome means for the call: a reply, or an error of its class.

use serde_json::Value;

use crate::{
    call::{Accept, Call, Reply},
    error::{Class, Error, ErrorReply},
    http::{AttemptError, Body, HttpReply},
};

/// `id` is the request's own; a reply has one of the service, which its operators know better.
pub(super) fn read_outcome(
    call: &Call,
    outcome: Result<HttpReply, AttemptError>,
    id: &str,
) -> Result<Reply, Error> {
    let answer = match outcome {
        Ok(answer) => answer,
        Err(trouble) => return Err(lost_or(call, trouble, id)),
    };
    let status = answer.status;
    understood(call, answer, id).map_err(|error| match status {
        // It was done; what was made by it has to be found another way.
        200..=299 if !call.is_repeatable() => error.with_class(Class::Lost),
        _ => error,
    })
}

fn understood(call: &Call, answer: HttpReply, id: &str) -> Result<Reply, Error> {
    if let (Body::Page(title), 200..=499) = (&answer.body, answer.status) {
        return Err(no_openstack(call, &answer, &format!("a web page{}", named(title))));
    }
    match (answer.status, answer.body) {
        (200..=299, Body::Nothing) => Ok(reply(answer.status, Value::Null, answer.request_id)),
        (200..=299, Body::Json(value)) => Ok(reply(answer.status, value, answer.request_id)),
        (200..=299, Body::Text(text)) if call.accept == Accept::Text => {
            Ok(reply(answer.status, Value::String(text), answer.request_id))
        }
        (300..=399, body) => {
            let there = answer.location.clone().unwrap_or_else(|| "somewhere else".to_owned());
            let answer = HttpReply { body, ..answer };
            Err(no_openstack(call, &answer, &format!("a redirection to {there}")))
        }
        (status, body) if status >= 400 => Err(refused(call, &HttpReply { body, ..answer }, id)),
        (_, body) => Err(no_openstack(call, &HttpReply { body, ..answer }, "something that is not JSON")),
    }
}

fn reply(status: u16, body: Value, request_id: Option<String>) -> Reply {
    Reply { status, body, request_id }
}

/// Whether a request that may have been done, was: nobody knows, and doing it again might make a second one.
fn lost_or(call: &Call, trouble: AttemptError, id: &str) -> Error {
    let class = trouble.error.class();
    let unknown = !call.is_repeatable() && trouble.sent && !matches!(class, Class::Tls | Class::Credentials);
    let error = trouble.error.clone().during(call).with_request_id((!id.is_empty()).then_some(id));
    if unknown { error.with_class(Class::Lost) } else { error }
}

fn refused(call: &Call, answer: &HttpReply, id: &str) -> Error {
    let words = match &answer.body {
        Body::Text(text) => Value::from_iter([("message", text.as_str())]),
        body => body.json().clone(),
    };
    let error = Error::from_reply(
        call,
        &ErrorReply {
            status: answer.status,
            body: &words,
            request_id: answer.request_id.as_deref().or((!id.is_empty()).then_some(id)),
            retry_after: answer.retry_after,
            page: answer.body.page(),
        },
    );
    let unknown = !call.is_repeatable() && (*error.class() == Class::Broken || answer.is_from_gateway());
    if unknown { error.with_class(Class::Lost) } else { error }
}

fn no_openstack(call: &Call, answer: &HttpReply, what: &str) -> Error {
    let name = call.service.project();
    Error::new(Class::NotOpenStack, format!("instead of {name}, {what} answered ({})", answer.status))
        .with_fix(format!(
            "a proxy or another program answers at the address of {name} in the catalog: check \
             https_proxy and no_proxy, or set `{}_endpoint_override`",
            call.service.as_str().replace('-', "_"),
        ))
        .during(call)
        .with_status(answer.status)
        .with_request_id(answer.request_id.as_deref())
}

fn named(title: &str) -> String {
    if title.is_empty() { String::new() } else { format!(" ({title:?})") }
}
