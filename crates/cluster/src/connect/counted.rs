//! Counts each request to the API server, by what its answer begins with.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Method, Request, Response};
use tower::{Layer, Service};

use crate::counts::ApiServerMetrics;

/// Around the service that sends.
#[derive(Clone)]
pub(super) struct CountCalls<S> {
    inner: S,
    counts: Arc<ApiServerMetrics>,
}

#[derive(Clone)]
pub(super) struct CountCallsLayer(pub(super) Arc<ApiServerMetrics>);

impl<S> Layer<S> for CountCallsLayer {
    type Service = CountCalls<S>;

    fn layer(&self, inner: S) -> CountCalls<S> {
        CountCalls { inner, counts: self.0.clone() }
    }
}

impl<S, B, A> Service<Request<B>> for CountCalls<S>
where
    S: Service<Request<B>, Response = Response<A>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut call = self.counts.begin_call(verb(&request));
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            answer.iter().for_each(|it| call.record_response(it.status()));
            answer
        })
    }
}

/// As Kubernetes has them, but that a list is a get.
fn verb<B>(request: &Request<B>) -> &'static str {
    let query = request.uri().query().unwrap_or_default();
    match *request.method() {
        Method::GET if query.split('&').any(|it| it == "watch=true" || it == "watch=1") => "watch",
        Method::GET => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_is_told_from_a_list() {
        let verb = |uri: &str| super::verb(&Request::get(uri).body(()).expect("a request"));
        assert_eq!(verb("/api/v1/services?&watch=true&timeoutSeconds=290&resourceVersion=7"), "watch");
        assert_eq!(verb("/api/v1/services?limit=500"), "get");
        assert_eq!(verb("/api/v1/namespaces/watch"), "get");
    }
}
