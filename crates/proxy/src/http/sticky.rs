//! A client keeps its member by a cookie: what it brings, what the member sees of it, and what the answer says.
//!
//! The cookie is ours (`Insert`: nobody behind us ever sees it), or the member's own with our mark before its value
//! (`Rewrite`: the member gets back what it said). Whose mark is not known, or who takes nobody, is as if it had none;
//! the answer of whoever serves instead renews it.

// What is read here is somebody else's.
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

use std::sync::Arc;

use seaway_model::{
    Name,
    load_balancer::{Affinity, CookieMode, PathMatch, Rule},
};
use seaway_snapshot::{MemberCookie, RouteMatch};
use seaway_wire::http::{Field, KnownHeader, Request, Response};

use crate::running::{RunningMember, RunningPool};

/// Between our mark and the member's own value.
const JOINT: u8 = b'~';

pub(super) struct StickySession {
    name: Name,
    mode: CookieMode,
    /// Whom the client had before; another may have to serve.
    pub(super) mark: Option<MemberCookie>,
    /// The cookies that members see, where those are not just what the client sent.
    cookies: Option<Vec<u8>>,
    path: String,
    secure: bool,
}

impl StickySession {
    /// `None`: nobody keeps anybody by a cookie there.
    pub(super) fn of(pool: &RunningPool, head: &[u8], request: &Request) -> Option<StickySession> {
        let live = pool.live();
        let Some(Affinity::Cookie { name, mode, .. }) = &live.compiled.pool().affinity else { return None };
        let (name, mode) = (name.clone(), *mode);
        let mut sticky =
            StickySession { name, mode, mark: None, cookies: None, path: String::new(), secure: false };
        let fields = request.fields.iter().filter(|field| field.known == KnownHeader::Cookie);
        let mut kept = Vec::new();
        let mut ours = false;
        for pair in fields.flat_map(|field| field.value.of(head).split(|byte| *byte == b';')) {
            let pair = pair.trim_ascii();
            let value = sticky.value_of(pair);
            let (mark, own) = match (mode, value) {
                (_, None) => (None, Some(&b""[..])),
                (CookieMode::Insert, Some(value)) => (MemberCookie::read(value), None),
                (CookieMode::Rewrite, Some(value)) => {
                    let (mark, own) = parted(value);
                    (mark, Some(own))
                }
            };
            // A client may have one for this path and one for a path above it.
            let known = mark.filter(|mark| live.compiled.marked(*mark).is_some());
            sticky.mark = sticky.mark.or(known);
            ours |= own.is_none() || mark.is_some();
            let Some(own) = own.filter(|_| !pair.is_empty()) else { continue };
            if !kept.is_empty() {
                kept.extend_from_slice(b"; ");
            }
            match value {
                None => kept.extend_from_slice(pair),
                Some(_) => {
                    [sticky.name.as_bytes(), b"=", own].iter().for_each(|it| kept.extend_from_slice(it))
                }
            }
        }
        sticky.cookies = ours.then_some(kept);
        Some(sticky)
    }

    /// Where the cookie holds: below the prefix that led here, so that Services side by side do not take each other's.
    pub(super) fn within(&mut self, rule: &Rule, found: RouteMatch, path: &[u8], secure: bool) {
        let prefix = path.get(..found.prefix).unwrap_or_default();
        let led = rule.matches.iter().any(|it| match &it.path {
            Some(PathMatch::Prefix(it)) => it.trim_end_matches('/').as_bytes() == prefix,
            _ => false,
        });
        let plain = led && !prefix.is_empty() && !prefix.contains(&b';');
        self.path = if plain { String::from_utf8_lossy(prefix).into_owned() } else { "/".to_owned() };
        self.secure = secure;
    }

    /// What the member sees instead of the client's cookies.
    pub(super) fn put_cookies(&self, out: &mut Vec<u8>) {
        if let Some(cookies) = self.cookies.as_ref().filter(|it| !it.is_empty()) {
            [b"Cookie: ", &cookies[..], b"\r\n"].iter().for_each(|it| out.extend_from_slice(it));
        }
    }

    pub(super) fn changes_cookies(&self) -> bool {
        self.cookies.is_some()
    }

    /// Whether a member's field is replaced by what [`StickySession::told`] says.
    pub(super) fn replaces(&self, head: &[u8], field: &Field) -> bool {
        field.known == KnownHeader::SetCookie && self.value_of(field.value.of(head)).is_some()
    }

    /// Lines for the answer of this member. One that leaves is not what a client is to keep.
    pub(super) fn response_lines(
        &self,
        pool: &RunningPool,
        member: &Arc<RunningMember>,
        head: &[u8],
        response: &Response,
    ) -> String {
        let live = pool.live();
        let mark = live.compiled.mark_of(member.at).filter(|_| member.draining_since().is_none());
        let mark = mark.map(|mark| String::from_utf8_lossy(mark.as_bytes()).into_owned());
        let name = &self.name;
        let mut lines = String::new();
        match self.mode {
            CookieMode::Insert => {
                let known =
                    self.mark.is_some_and(|it| mark.as_deref().map(str::as_bytes) == Some(it.as_bytes()));
                if let Some(mark) = mark.filter(|_| !known) {
                    let secure = if self.secure { "; Secure" } else { "" };
                    let path = &self.path;
                    // What says who the client is must not be kept for others.
                    lines = format!(
                        "Set-Cookie: {name}={mark}; Path={path}; HttpOnly; SameSite=Lax{secure}\r\nCache-Control: private\r\n"
                    );
                }
            }
            CookieMode::Rewrite => {
                let fields = response.fields.iter().filter(|field| field.known == KnownHeader::SetCookie);
                for own in fields.filter_map(|field| self.value_of(field.value.of(head))) {
                    let own = String::from_utf8_lossy(own);
                    // An empty one is how a member takes its cookie back.
                    let gone = own.is_empty() || own.starts_with(';');
                    match mark.as_ref().filter(|_| !gone) {
                        Some(mark) => {
                            let joint = char::from(JOINT);
                            lines += &format!("Set-Cookie: {name}={mark}{joint}{own}\r\n");
                        }
                        None => lines += &format!("Set-Cookie: {name}={own}\r\n"),
                    }
                }
            }
        }
        lines
    }

    /// Of `name=value`, with whatever stands behind it.
    fn value_of<'p>(&self, pair: &'p [u8]) -> Option<&'p [u8]> {
        let (name, value) = pair.split_at_checked(memchr::memchr(b'=', pair)?)?;
        let value = value.strip_prefix(b"=")?;
        (name.trim_ascii() == self.name.as_bytes()).then(|| value.trim_ascii_start())
    }
}

/// Our mark, and the member's own value.
fn parted(value: &[u8]) -> (Option<MemberCookie>, &[u8]) {
    let parted = value.split_at_checked(MemberCookie::LENGTH).and_then(|(mark, rest)| {
        let own = rest.strip_prefix(&[JOINT])?;
        Some((MemberCookie::read(mark)?, own))
    });
    match parted {
        Some((mark, own)) => (Some(mark), own),
        None => (None, value),
    }
}
