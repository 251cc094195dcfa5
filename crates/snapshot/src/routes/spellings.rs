//! Other spellings of a path. Rules match the bytes of a path as they were sent; many servers behind them decode escapes, merge
//! slashes and drop parameters first, and then serve a path that another rule protects.

use super::RequestParts;

/// The paths that servers may take this one for, where it is not plain already.
pub(super) fn spellings(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let is_plain =
        !path.windows(2).any(|two| two == b"//") && !path.iter().any(|byte| b"%;\\".contains(byte));
    let merged = (!is_plain).then(|| merged(&decoded(path)));
    let without_parameters =
        merged.as_deref().filter(|it| it.contains(&b';')).map(|it| self::merged(&without_parameters(it)));
    merged.into_iter().chain(without_parameters)
}

/// Escapes undone once. Some servers end a path at a zero.
fn decoded(path: &[u8]) -> Vec<u8> {
    let plain: Vec<u8> = percent_encoding::percent_decode(path).collect();
    let end = plain.iter().position(|byte| *byte == 0).unwrap_or(plain.len());
    plain
        .get(..end)
        .unwrap_or_default()
        .iter()
        .map(|byte| if *byte == b'\\' { b'/' } else { *byte })
        .collect()
}

fn merged(path: &[u8]) -> Vec<u8> {
    let mut merged = path.to_vec();
    merged.dedup_by(|next, before| *next == b'/' && *before == b'/');
    merged
}

/// `/admin;x/y` is `/admin/y` to those who know parameters of segments (RFC 3986, section 3.3).
fn without_parameters(path: &[u8]) -> Vec<u8> {
    let segments =
        path.split(|byte| *byte == b'/').map(|it| it.split(|byte| *byte == b';').next().unwrap_or_default());
    segments.collect::<Vec<_>>().join(&b'/')
}

/// A request by another path.
pub(super) struct Respelled<'a, R> {
    pub(super) request: &'a R,
    pub(super) path: &'a [u8],
}

impl<R: RequestParts> RequestParts for Respelled<'_, R> {
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
