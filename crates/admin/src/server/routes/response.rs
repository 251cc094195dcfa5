//! Answers and the headers that all of them carry.

use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    body::Bytes,
    header::{self, HeaderName, HeaderValue},
};
use serde::Serialize;

pub(in crate::server) type Body = Full<Bytes>;
pub(in crate::server) type PageResponse = Response<Body>;

/// What a text may do in a browser: nothing.
const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'";

pub(in crate::server) fn text(status: StatusCode, body: impl Into<Bytes>) -> PageResponse {
    answer(status, "text/plain; charset=utf-8", body)
}

pub(super) fn json(value: &impl Serialize) -> PageResponse {
    match serde_json::to_vec(value) {
        Ok(body) => answer(StatusCode::OK, "application/json", body),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

pub(super) fn html(body: String, policy: &HeaderValue) -> PageResponse {
    let mut answer = answer(StatusCode::OK, "text/html; charset=utf-8", body);
    answer.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy.clone());
    answer
}

pub(super) fn open_metrics(body: String) -> PageResponse {
    answer(StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", body)
}

pub(super) fn secure(answer: &mut PageResponse) {
    let headers = answer.headers_mut();
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(NOTHING));
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

fn answer(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> PageResponse {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}
