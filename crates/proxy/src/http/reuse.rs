//! Which client may send the next request by a connection to a member (docs/http.md).
//!
//! A member that does not read a body takes it for the next request (CL.0, TE.0), and the client whose request follows on
//! that connection gets the answer to it. A proxy sees that the member's kernel has the body, not that the member read it.

use seaway_model::load_balancer::ConnectionReuse;
use seaway_wire::http::{BodyFraming, KnownHeader, Method, Request, Response};

use super::{body_relay::BodyRelay, transport::HttpTransport};
use crate::sys;

/// Ordered: an exchange only ever lowers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NextUse {
    Closed,
    /// What this client left on the connection can harm this client only.
    SameClient,
    AnyClient,
}

impl NextUse {
    /// What the request allows. `is_shared`: the client's own connection carries the requests of several.
    pub(super) fn after_request(request: &Request, reuse: ConnectionReuse, is_shared: bool) -> NextUse {
        let private = if is_shared { NextUse::Closed } else { NextUse::SameClient };
        match (reuse, request.method, request.body) {
            (ConnectionReuse::Never, ..) => NextUse::Closed,
            // The member may speak the other protocol although it did not agree to it.
            _ if request.upgrade || request.method == Method::Connect => NextUse::Closed,
            (ConnectionReuse::Always, ..) => NextUse::AnyClient,
            // A body that the member sends by mistake may stay in its kernel until the next request (Nagle's algorithm).
            (_, Method::Head, BodyFraming::None) => private,
            (_, _, BodyFraming::None) => NextUse::AnyClient,
            (ConnectionReuse::Strict, ..) => NextUse::Closed,
            // A server of these methods reads their content. That of other methods has no meaning (RFC 9110, section
            // 9.3), and many servers do not read it.
            (_, Method::Post | Method::Put | Method::Patch, _) => private,
            _ => NextUse::Closed,
        }
    }

    /// What the answer leaves of it. `head`: its bytes.
    #[must_use]
    pub(super) fn after_answer(self, reuse: ConnectionReuse, head: &[u8], response: &Response) -> NextUse {
        if !response.persists {
            return NextUse::Closed;
        }
        match response.status {
            // It must not announce a body (RFC 9110, section 8.6; RFC 9112, section 6.1).
            204 if announces_body(head, response) => NextUse::Closed,
            // It may announce one, and a member that sends it by mistake may be as late as with HEAD.
            304 if reuse != ConnectionReuse::Always && announces_body(head, response) => {
                self.min(NextUse::SameClient)
            }
            _ => self,
        }
    }
}

fn announces_body(head: &[u8], response: &Response) -> bool {
    response.fields.iter().any(|field| match field.known {
        KnownHeader::TransferEncoding => true,
        KnownHeader::ContentLength => field.value.of(head).iter().any(|byte| *byte != b'0'),
        _ => false,
    })
}

/// The request asks the member for `100 Continue`: without it, the member may expect no body.
pub(super) fn expects(request: &Request) -> bool {
    request.body != BodyFraming::None && request.field(KnownHeader::Expect).is_some()
}

/// Whether the answer has begun before the member's kernel has taken all of the request.
pub(super) fn is_early(upward: &BodyRelay, to: &HttpTransport) -> bool {
    !upward.is_through() || matches!(to, HttpTransport::Wire(stream) if sys::has_unacknowledged(stream.fd()))
}

#[cfg(test)]
mod tests {
    use seaway_wire::http::{Limits, ReadProgress};

    use super::{NextUse::*, *};

    fn request(text: &str) -> Request {
        let mut request = Request::default();
        request.begin();
        let read = request.read(format!("{text}\r\n\r\n").as_bytes(), &Limits::default());
        assert_eq!(read, ReadProgress::Whole, "{text}");
        request
    }

    #[test]
    fn a_body_lowers_who_may_ask_next() {
        let sized = "HTTP/1.1\r\nHost: a\r\nContent-Length: 5";
        let chunked = "HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked";
        let none = "HTTP/1.1\r\nHost: a\r\nContent-Length: 0";
        for (method, rest, [safe, shared, strict, always]) in [
            ("GET /", none, [AnyClient, AnyClient, AnyClient, AnyClient]),
            ("POST /", none, [AnyClient, AnyClient, AnyClient, AnyClient]),
            ("FROB /", none, [AnyClient, AnyClient, AnyClient, AnyClient]),
            ("HEAD /", none, [SameClient, Closed, SameClient, AnyClient]),
            ("POST /", sized, [SameClient, Closed, Closed, AnyClient]),
            ("PUT /", chunked, [SameClient, Closed, Closed, AnyClient]),
            ("PATCH /", sized, [SameClient, Closed, Closed, AnyClient]),
            ("GET /", sized, [Closed, Closed, Closed, AnyClient]),
            ("GET /", chunked, [Closed, Closed, Closed, AnyClient]),
            ("HEAD /", sized, [Closed, Closed, Closed, AnyClient]),
            ("DELETE /", sized, [Closed, Closed, Closed, AnyClient]),
            ("OPTIONS /", sized, [Closed, Closed, Closed, AnyClient]),
            ("TRACE /", sized, [Closed, Closed, Closed, AnyClient]),
            ("PROPFIND /", sized, [Closed, Closed, Closed, AnyClient]),
            ("post /", sized, [Closed, Closed, Closed, AnyClient]),
            ("CONNECT a:1", "HTTP/1.1\r\nHost: a:1", [Closed; 4]),
            ("GET /", "HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x", [Closed; 4]),
        ] {
            let it = request(&format!("{method} {rest}"));
            let after = |reuse, is_shared| NextUse::after_request(&it, reuse, is_shared);
            assert_eq!(after(ConnectionReuse::Safe, false), safe, "{method} {rest}");
            assert_eq!(after(ConnectionReuse::Safe, true), shared, "{method} {rest}");
            assert_eq!(after(ConnectionReuse::Strict, false), strict, "{method} {rest}");
            assert_eq!(after(ConnectionReuse::Always, false), always, "{method} {rest}");
            assert_eq!(after(ConnectionReuse::Never, false), Closed, "{method} {rest}");
        }
    }

    #[test]
    fn a_body_that_an_answer_cannot_have_lowers_it_further() {
        for (answer, [safe, always]) in [
            ("200 OK\r\nContent-Length: 5", [AnyClient, AnyClient]),
            ("200 OK\r\nContent-Length: 5\r\nConnection: close", [Closed, Closed]),
            ("200 OK", [Closed, Closed]),
            ("204 No Content", [AnyClient, AnyClient]),
            ("204 No Content\r\nContent-Length: 0", [AnyClient, AnyClient]),
            ("204 No Content\r\nContent-Length: 5", [Closed, Closed]),
            ("204 No Content\r\nTransfer-Encoding: chunked", [Closed, Closed]),
            ("304 Not Modified", [AnyClient, AnyClient]),
            ("304 Not Modified\r\nContent-Length: 5", [SameClient, AnyClient]),
            ("304 Not Modified\r\nTransfer-Encoding: chunked", [SameClient, AnyClient]),
        ] {
            let (head, mut response) = (format!("HTTP/1.1 {answer}\r\n\r\n"), Response::default());
            response.begin();
            let read = response.read(head.as_bytes(), Method::Get, &Limits::default());
            assert_eq!(read, ReadProgress::Whole, "{answer}");
            let after = |reuse| AnyClient.after_answer(reuse, head.as_bytes(), &response);
            assert_eq!(
                [after(ConnectionReuse::Safe), after(ConnectionReuse::Always)],
                [safe, always],
                "{answer}"
            );
            assert_eq!(
                Closed.after_answer(ConnectionReuse::Always, head.as_bytes(), &response),
                Closed,
                "{answer}"
            );
        }
    }
}
