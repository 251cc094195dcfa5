//! The rows about users and their passwords.

use super::{Row, http::yes_or_no, tls::name as secret_name};

/// The Secret with the users who may ask.
pub const BASIC_AUTH: &str = "seaway.dev/basic-auth";
/// What browsers show when they ask for the password.
pub const REALM: &str = "seaway.dev/basic-auth-realm";
/// Whether members get the password, too.
pub const FORWARD_AUTHORIZATION: &str = "seaway.dev/basic-auth-forward";

const LONGEST_REALM: usize = 128;

pub(super) const ROWS: &[Row] = &[
    Row {
        names: &[BASIC_AUTH],
        help: "a Secret of this namespace with users in its key auth, as htpasswd -B writes them: clients without a name and password of \
               it get 401",
        set: |wishes, text| {
            wishes.http.basic_auth = Some(secret_name(text)?);
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
                return Err(format!("it needs {BASIC_AUTH}, which names the users"));
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
                return Err(format!("it needs {BASIC_AUTH}, which names the users"));
            }
            wishes.http.forwards_authorization = forwards;
            Ok(())
        },
    },
];
