//! Other spellings of a path. Rules match the bytes of a path as they were sent; many servers behind them decode escapes, merge
//! slashes and drop parameters first, and then serve a path that another rule protects.

use super::RequestParts;

/// The paths that servers may take this one for, where it is not plain already. `literal`: so many bytes a rule has written so itself.
pub(super) fn spellings(path: &[u8], literal: usize) -> impl Iterator<Item = Vec<u8>> {
    let (kept, rest) = path.split_at_checked(literal).unwrap_or((path, &[]));
    let is_plain =
        !rest.windows(2).any(|two| two == b"//") && !rest.iter().any(|byte| b"%;\\".contains(byte));
    let has_parameters = rest.contains(&b';') || rest.contains(&b'%');
    let decoded = move || decoded(rest);
    let whole = move |rest: Vec<u8>| merged([kept, &rest].concat());
    // Servers drop parameters before they decode, or after it.
    let first = (!is_plain).then(|| whole(decoded()));
    let dropped = (!is_plain && has_parameters).then(|| whole(without_parameters(&decoded())));
    let before = (!is_plain && has_parameters).then(|| whole(self::decoded(&without_parameters(rest))));
    [first, dropped, before].into_iter().flatten()
}

/// Escapes undone once. Some servers end a path at a zero.
fn decoded(path: &[u8]) -> Vec<u8> {
    let plain: Vec<u8> = super::paths::unescaped(path, false).collect();
    let end = plain.iter().position(|byte| *byte == 0).unwrap_or(plain.len());
    plain
        .get(..end)
        .unwrap_or_default()
        .iter()
        .map(|byte| if *byte == b'\\' { b'/' } else { *byte })
        .collect()
}

fn merged(mut path: Vec<u8>) -> Vec<u8> {
    path.dedup_by(|next, before| *next == b'/' && *before == b'/');
    path
}

/// `/admin;x/y` is `/admin/y` to those who know parameters of segments (RFC 3986, section 3.3).
fn without_parameters(path: &[u8]) -> Vec<u8> {
    let segments = path.split(|byte| *byte == b'/');
    let names = segments.map(|it| it.split(|byte| *byte == b';').next().unwrap_or_default());
    names.collect::<Vec<_>>().join(&b'/')
}

/// A request by another path.
pub(super) struct RequestWithPath<'a, R> {
    pub(super) request: &'a R,
    pub(super) path: &'a [u8],
}

impl<R: RequestParts> RequestParts for RequestWithPath<'_, R> {
    fn host(&self) -> &[u8] {
        self.request.host()
    }

    fn path(&self) -> &[u8] {
        self.path
    }

    fn method(&self) -> &[u8] {
        self.request.method()
    }

    fn query(&self) -> &[u8] {
        self.request.query()
    }

    fn header(&self, name: &[u8]) -> Option<&[u8]> {
        self.request.header(name)
    }
}
