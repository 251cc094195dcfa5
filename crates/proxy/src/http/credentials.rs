//! Basic authentication (RFC 7617): whether who asks knows a name and a password that its rule asks for.

// What is read here is somebody else's.
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

use std::{future::poll_fn, net::IpAddr, task::Poll};

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use seaway_model::load_balancer::{BasicAuth, Rule};
use seaway_wire::http::Request;
use secrecy::zeroize::Zeroize;

use super::{guard::header, serve::DownstreamClient};
use crate::passwords::{PasswordAttempt, Verdict, Waiter};

/// Why a request is not answered by its rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AuthenticationFailure {
    /// Nobody who may ask, in this realm.
    Unknown(String),
    /// Who may is not known.
    NoUsers,
    /// Too many are being verified.
    Busy,
    /// It did not wait for that.
    Gone,
}

/// How long a request waits to be verified, in milliseconds.
const PATIENCE: u64 = 10_000;

/// Longer ones nobody has; bcrypt looks at 72 bytes of a password.
const LONGEST_NAME: usize = 255;
const LONGEST_PASSWORD: usize = 256;
const LONGEST: usize = LONGEST_NAME + 1 + LONGEST_PASSWORD;

/// Some clients leave the padding out.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// All users that the rule asks for have to be there.
pub(super) async fn authenticate(
    client: &DownstreamClient,
    rule: &Rule,
    asks: IpAddr,
    head: &[u8],
    request: &Request,
) -> Result<(), AuthenticationFailure> {
    for auth in &rule.auth {
        if auth.users.is_none() {
            return Err(AuthenticationFailure::NoUsers);
        }
        let is_right = match verify(client, auth, asks, head, request) {
            Verdict::Right => true,
            Verdict::Wrong => false,
            Verdict::Busy => return Err(AuthenticationFailure::Busy),
            Verdict::Later(verification) => {
                client.allow(PATIENCE);
                let result = poll_fn(|_| match verification.result() {
                    Some(is_right) => Poll::Ready(Ok(is_right)),
                    None if client.is_gone() => Poll::Ready(Err(AuthenticationFailure::Gone)),
                    None if client.context.is_late() => Poll::Ready(Err(AuthenticationFailure::Busy)),
                    None => Poll::Pending,
                });
                result.await?
            }
        };
        if !is_right {
            return Err(AuthenticationFailure::Unknown(challenge(auth)));
        }
    }
    Ok(())
}

/// Members do not get the password, unless all that asked for it say so.
pub(super) fn are_removed(rule: &Rule) -> bool {
    rule.auth.iter().any(|it| !it.forwards)
}

pub(super) fn is_authorization(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"authorization")
}

fn challenge(auth: &BasicAuth) -> String {
    format!("WWW-Authenticate: Basic realm=\"{}\", charset=\"UTF-8\"\r\n", auth.realm)
}

fn verify(
    client: &DownstreamClient,
    auth: &BasicAuth,
    asks: IpAddr,
    head: &[u8],
    request: &Request,
) -> Verdict {
    let value = header(b"authorization", head, request).unwrap_or_default();
    let mut room = [0; LONGEST];
    let verdict = verify_value(client, auth, asks, value, &mut room);
    // What was decoded is shorter than its text.
    room.iter_mut().take(value.len()).for_each(Zeroize::zeroize);
    verdict
}

fn verify_value(
    client: &DownstreamClient,
    auth: &BasicAuth,
    asks: IpAddr,
    value: &[u8],
    room: &mut [u8; LONGEST],
) -> Verdict {
    let Some((name, password)) = credentials(value, room) else { return Verdict::Wrong };
    let attempt = PasswordAttempt { auth, name, password, client: asks.to_canonical() };
    let context = &client.context;
    let Some(mailbox) = context.mailbox() else { return Verdict::Busy };
    let waiter = || Waiter { mailbox, task: client.task_state.index() };
    context.shared.passwords.verify(&attempt, waiter)
}

/// The name and the password.
fn credentials<'r>(value: &[u8], room: &'r mut [u8; LONGEST]) -> Option<(&'r [u8], &'r [u8])> {
    let at = value.iter().position(|byte| *byte == b' ')?;
    let (scheme, text) = value.split_at_checked(at)?;
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return None;
    }
    let length = LENIENT.decode_slice(text.trim_ascii(), room).ok()?;
    let said = room.get(..length).filter(|it| !it.iter().any(u8::is_ascii_control))?;
    let colon = said.iter().position(|byte| *byte == b':')?;
    let (name, password) = said.split_at_checked(colon)?;
    let password = password.get(1..)?;
    (name.len() <= LONGEST_NAME && password.len() <= LONGEST_PASSWORD).then_some((name, password))
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

    use super::*;

    #[test]
    fn a_name_and_a_password_are_read_as_they_are_written() {
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        let much = "x".repeat(LONGEST_PASSWORD);
        for (value, expected) in [
            (basic("alice:secret"), Some(("alice", "secret"))),
            (basic("alice:a:b"), Some(("alice", "a:b"))),
            (basic("alice:"), Some(("alice", ""))),
            (basic(":secret"), Some(("", "secret"))),
            (basic("ä:ö"), Some(("ä", "ö"))),
            (basic(&format!("alice:{much}")), Some(("alice", &*much))),
            (basic(&format!("alice:{much}x")), None),
            (basic(&format!("{much}:x")), None),
            (format!("bASIC   {}", STANDARD.encode("a:b")), Some(("a", "b"))),
            (format!("Basic {}", STANDARD_NO_PAD.encode("a:b:")), Some(("a", "b:"))),
            (basic("alice"), None),
            (basic("alice:a\nb"), None),
            (basic("al\0ice:a"), None),
            (format!("Bearer {}", STANDARD.encode("a:b")), None),
            (format!("Basic{}", STANDARD.encode("a:b")), None),
            ("Basic".to_owned(), None),
            ("Basic ".to_owned(), None),
            ("Basic YTpi YTpi".to_owned(), None),
            ("Basic YTp!".to_owned(), None),
            ("Basic YTp".to_owned(), None),
            (format!("Basic {}", "YTpi".repeat(4_000)), None),
        ] {
            let mut room = [0; LONGEST];
            let said = credentials(value.as_bytes(), &mut room);
            let expected = expected.map(|(name, password)| (name.as_bytes(), password.as_bytes()));
            assert_eq!(said, expected, "{value:?}");
        }
    }
}
