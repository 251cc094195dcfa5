//! What the outcome of a call of gRPC says of the member, in terms of HTTP. Its status of HTTP is 200 nearly always.

// What is read here is somebody else's.
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

use seaway_wire::http::Response;

/// Where a call tells how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GrpcStatusSource {
    /// It is no call.
    None,
    ForwardedClient(u16),
    /// After the messages.
    ToCome,
}

impl GrpcStatusSource {
    pub(super) fn of(head: &[u8], response: &Response) -> GrpcStatusSource {
        let value = |name: &[u8]| {
            let found = response.fields.iter().find(|it| it.name.of(head).eq_ignore_ascii_case(name));
            found.map(|it| it.value.of(head))
        };
        if let Some(code) = value(b"grpc-status") {
            return GrpcStatusSource::ForwardedClient(status_of(code));
        }
        let is_call = value(b"content-type").is_some_and(|it| it.starts_with(b"application/grpc"));
        if is_call { GrpcStatusSource::ToCome } else { GrpcStatusSource::None }
    }

    /// `status`: that of HTTP; `trailers`: lines.
    pub(super) fn status(self, status: u16, trailers: &[u8]) -> u16 {
        match self {
            GrpcStatusSource::None => status,
            GrpcStatusSource::ForwardedClient(told) => told,
            GrpcStatusSource::ToCome => {
                let mut lines = trailers.split(|byte| *byte == b'\n');
                let told = lines.find_map(|line| {
                    let (name, value) = line.split_at(line.iter().position(|byte| *byte == b':')?);
                    let value = value.strip_prefix(b":")?;
                    name.eq_ignore_ascii_case(b"grpc-status").then(|| status_of(value.trim_ascii()))
                });
                told.unwrap_or(status)
            }
        }
    }
}

/// As Envoy maps them.
fn status_of(code: &[u8]) -> u16 {
    match code {
        b"0" => 200,
        // CANCELLED
        b"1" => 499,
        // INVALID_ARGUMENT, FAILED_PRECONDITION, OUT_OF_RANGE
        b"3" | b"9" | b"11" => 400,
        // DEADLINE_EXCEEDED
        b"4" => 504,
        // NOT_FOUND
        b"5" => 404,
        // ALREADY_EXISTS, ABORTED
        b"6" | b"10" => 409,
        // PERMISSION_DENIED
        b"7" => 403,
        // RESOURCE_EXHAUSTED
        b"8" => 429,
        // UNIMPLEMENTED
        b"12" => 501,
        // UNAVAILABLE
        b"14" => 503,
        // UNAUTHENTICATED
        b"16" => 401,
        // UNKNOWN, INTERNAL, DATA_LOSS, and what nobody knows
        _ => 500,
    }
}

#[cfg(test)]
mod tests {
    use seaway_wire::http::{Limits, Method, ReadProgress};

    use super::*;

    #[test]
    fn a_call_tells_at_its_beginning_or_at_its_end() {
        for (fields, trailers, expected) in [
            ("content-type: application/grpc\r\n", "grpc-status: 14\r\n", 503),
            ("content-type: application/grpc+proto\r\n", "a: b\r\nGrpc-Status:0\r\n", 200),
            ("content-type: application/grpc\r\n", "grpc-status: 99\r\n", 500),
            ("content-type: application/grpc\r\n", "", 200),
            ("content-type: application/grpc\r\ngrpc-status: 12\r\n", "", 501),
            ("grpc-status: 4\r\n", "", 504),
            ("content-type: text/plain\r\n", "grpc-status: 14\r\n", 200),
        ] {
            let head = format!("HTTP/1.1 200 \r\n{fields}\r\n");
            let mut response = Response::default();
            assert_eq!(response.read(head.as_bytes(), Method::Post, &Limits::default()), ReadProgress::Whole);
            let outcome = GrpcStatusSource::of(head.as_bytes(), &response);
            assert_eq!(outcome.status(200, trailers.as_bytes()), expected, "{fields}{trailers}");
        }
    }
}
