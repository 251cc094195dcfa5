//! Request targets (RFC 9112, section 3.2), and the hosts in them.

use super::{
    bytes,
    head::{ByteRange, HeadError},
    request::Method,
};

/// Where a request goes: places in the head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestTarget {
    /// Of a target in absolute or authority form.
    pub(super) authority: Option<ByteRange>,
    /// With its query; empty for an authority, and for an absolute target without one.
    pub(super) path: ByteRange,
    /// Where the path ends and `?` or nothing begins.
    pub(super) path_end: u32,
}

pub(super) fn target(head: &[u8], at: ByteRange, method: Method) -> Result<RequestTarget, HeadError> {
    let text = at.of(head);
    if !bytes::is_target(text) {
        return Err(HeadError::bad("a byte in the target that is not allowed there"));
    }
    let start = at.start as usize;
    let whole =
        |authority, path: ByteRange| RequestTarget { authority, path, path_end: end_of_path(head, path) };
    let found = match text {
        _ if method == Method::Connect => {
            if !is_authority(text, true) {
                return Err(HeadError::bad("CONNECT to a target that is not a host and a port"));
            }
            return Ok(whole(Some(at), ByteRange::new(start, start)));
        }
        [b'/', ..] => whole(None, at),
        b"*" if method == Method::Options => return Ok(whole(None, at)),
        _ => {
            let (scheme, rest) = split(text, b"://").ok_or(HeadError::bad("an invalid target"))?;
            if !scheme.eq_ignore_ascii_case(b"http") && !scheme.eq_ignore_ascii_case(b"https") {
                return Err(HeadError::bad("a target of another scheme"));
            }
            let length = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
            if !is_authority(rest.get(..length).unwrap_or_default(), false) {
                return Err(HeadError::bad("a target without a valid host"));
            }
            let from = start.saturating_add(scheme.len()).saturating_add(3);
            let end = from.saturating_add(length);
            whole(Some(ByteRange::new(from, end)), ByteRange::new(end, at.end as usize))
        }
    };
    if has_dot_segments(ByteRange { end: found.path_end, ..found.path }.of(head)) {
        return Err(HeadError::bad("dot segments in the path"));
    }
    Ok(found)
}

fn end_of_path(head: &[u8], path: ByteRange) -> u32 {
    let length = path.of(head).iter().position(|byte| *byte == b'?');
    length.map_or(path.end, |length| path.start.saturating_add(length as u32))
}

fn split<'b>(text: &'b [u8], by: &[u8]) -> Option<(&'b [u8], &'b [u8])> {
    let at = text.windows(by.len()).position(|window| window == by)?;
    let (before, rest) = text.split_at_checked(at)?;
    Some((before, rest.strip_prefix(by)?))
}

/// `.` and `..`, also as `%2e`: browsers resolve them before they send; who does not wants to be somewhere else than a
/// route says. An encoded slash or backslash ends a segment for some.
fn has_dot_segments(path: &[u8]) -> bool {
    if !path.contains(&b'.') && !path.contains(&b'%') {
        return false;
    }
    let (mut dots, mut others, mut rest) = (0_usize, false, path);
    let is_dots = |dots: usize, others: bool| !others && (dots == 1 || dots == 2);
    loop {
        let (byte, length) = match rest {
            [] => return is_dots(dots, others),
            [b'%', high, low, ..] => match (high, low.to_ascii_lowercase()) {
                (b'2', b'e') => (b'.', 3),
                (b'2', b'f') | (b'5', b'c') => (b'/', 3),
                _ => (b'%', 1),
            },
            [byte, ..] => (*byte, 1),
        };
        match byte {
            b'/' if is_dots(dots, others) => return true,
            b'/' => (dots, others) = (0, false),
            b'.' => dots = dots.saturating_add(1),
            // Parameters of a segment: `..;x` is `..` to some.
            b';' if is_dots(dots, others) => return true,
            _ => others = true,
        }
        rest = rest.get(length..).unwrap_or_default();
    }
}

/// `host`, `host:port`, `[v6]:port`. User names are not for targets (RFC 9110, section 4.2.4).
pub(super) fn is_authority(text: &[u8], with_port: bool) -> bool {
    let (host, port) = match text {
        [b'[', rest @ ..] => {
            let Some((inside, after)) = split(rest, b"]") else { return false };
            let proper = inside.contains(&b':')
                && inside.iter().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.'));
            match (proper, after) {
                (true, []) => (true, None),
                (true, [b':', port @ ..]) => (true, Some(port)),
                _ => return false,
            }
        }
        _ => match split(text, b":") {
            Some((host, port)) => (bytes::is_reg_name(host), Some(port)),
            None => (bytes::is_reg_name(text), None),
        },
    };
    let proper_port = match port {
        None => !with_port,
        Some(port) => port.len() <= 5 && bytes::number(port).is_some_and(|port| port <= 65_535),
    };
    host && proper_port
}
