//! The rows about users: their passwords, and another Service that knows them.

use seaway_model::Name;

use super::{HttpOptions, Row, http::yes_or_no, tls::name as secret_name};
use crate::{forward_auth::AuthService, http, quantity::list};

/// The Secret with the users who may ask.
pub const BASIC_AUTH: &str = "seaway.dev/basic-auth";
/// What browsers show when they ask for the password.
pub const REALM: &str = "seaway.dev/basic-auth-realm";
/// Whether members get the password, too.
pub const FORWARD_AUTHORIZATION: &str = "seaway.dev/basic-auth-forward";

const LONGEST_REALM: usize = 128;

/// Another Service that has to agree to each request.
pub const FORWARD_AUTH: &str = "seaway.dev/forward-auth";
/// What members are told of its answer.
pub const FORWARD_HEADERS: &str = "seaway.dev/forward-auth-headers";

/// What frames a message, is for one hop, or is told by ourselves: nobody else's to say.
const NOT_TOLD: [&str; 14] = [
    "host",
    "connection",
    "content-length",
    "content-encoding",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "keep-alive",
    "forwarded",
    "via",
    "cdn-loop",
    "client-cert",
];

pub(super) const ROWS: &[Row] = &[
    Row {
        names: &[BASIC_AUTH],
        help: "a Secret of this namespace with users in its key auth, as htpasswd -B writes them: clients without a name and password of \
               it get 401",
        set: |wishes, text| {
            // Some write users themselves here, as other programs have them: what is shown goes to logs.
            let name = secret_name(text).map_err(|_| {
                "this is not a valid name of a Secret in the same namespace (the value is not shown: it may hold passwords)"
                    .to_owned()
            });
            wishes.http.basic_auth = Some(name?);
            Ok(())
        },
    },
    Row {
        names: &[REALM],
        help: "what browsers show when they ask for the name and password; ASCII, without quotes",
        set: |wishes, text| {
            let is_shown = |it: u8| matches!(it, b' '..=b'~') && !matches!(it, b'"' | b'\\');
            if text.is_empty() || text.len() > LONGEST_REALM || !text.bytes().all(is_shown) {
                return Err(format!(
                    "{text:?} is not ASCII text of 1 to {LONGEST_REALM} characters without quotes"
                ));
            }
            if wishes.http.basic_auth.is_none() {
                return Err(format!("this annotation needs {BASIC_AUTH}, which names the users"));
            }
            wishes.http.realm = Some(text.into());
            Ok(())
        },
    },
    Row {
        names: &[FORWARD_AUTHORIZATION],
        help: "true: members get the client's Authorization header with its name and password; false (default): it is removed",
        set: |wishes, text| {
            let forwards = yes_or_no(text)?;
            if wishes.http.basic_auth.is_none() {
                return Err(format!("this annotation needs {BASIC_AUTH}, which names the users"));
            }
            wishes.http.forwards_authorization = forwards;
            Ok(())
        },
    },
    Row {
        names: &[FORWARD_AUTH],
        help: "a Service of this namespace that has to agree to each request, SERVICE:PORT/PATH: auth:4180/oauth2/auth. It gets the request \
               without its body; if it does not answer 2xx, the client gets its answer",
        set: |wishes, text| {
            wishes.http.forward_auth = Some(auth_service(text)?);
            Ok(())
        },
    },
    Row {
        names: &[FORWARD_HEADERS],
        help: "headers of the answer of seaway.dev/forward-auth that members get, and that no client can set: X-User,X-Groups",
        set: |wishes, text| {
            let headers = list(text, told_header)?;
            let needs =
                || format!("this annotation needs {FORWARD_AUTH}, which names the authentication Service");
            wishes.http.forward_auth.as_mut().ok_or_else(needs)?.headers = headers;
            Ok(())
        },
    },
];

fn auth_service(text: &str) -> Result<AuthService, String> {
    if let Some((scheme, rest)) = text.split_once("://") {
        return Err(format!("{text:?} is not SERVICE:PORT/PATH; write {rest:?}, without {scheme}://"));
    }
    let wrong =
        || format!("{text:?} is not SERVICE:PORT or SERVICE:PORT/PATH, such as auth:4180/oauth2/auth");
    let (at, path) = text.split_at(text.find('/').unwrap_or(text.len()));
    let (service, port) = at.split_once(':').ok_or_else(wrong)?;
    let is_label = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
    let is_name =
        (1..=63).contains(&service.len()) && service.bytes().all(is_label) && !service.starts_with('-');
    let port: u16 = port.parse().ok().filter(|it| *it > 0).ok_or_else(wrong)?;
    if !is_name || !path.bytes().all(|it| it.is_ascii_graphic() && it != b'#') {
        return Err(wrong());
    }
    let path = if path.is_empty() { "/" } else { path };
    Ok(AuthService { service: service.into(), port, path: path.into(), headers: Vec::new() })
}

fn told_header(text: &str) -> Result<Name, String> {
    let plain = text.to_ascii_lowercase().replace('_', "-");
    let is_ours = NOT_TOLD.contains(&&*plain)
        || ["x-forwarded-for", "x-forwarded-host", "x-forwarded-port", "x-forwarded-proto"]
            .contains(&&*plain);
    if !http::is_token(text) || is_ours || plain.starts_with("proxy-") {
        return Err(format!("{text:?} is not a header that can be passed to members"));
    }
    Ok(text.into())
}

impl HttpOptions {
    /// Whether clients have to show who they are, at each request.
    pub(crate) fn asks_who_it_is(&self) -> bool {
        self.basic_auth.is_some() || self.forward_auth.is_some()
    }
}
