//! Networks whose word is believed: proxies that say which address a client has. None is wider than the address that is written in it.

use seaway_manifests::decode::Field;
use seaway_plan::quantity::{network, trusted_network};

/// An item of a list of them, if it is one.
pub(super) fn written<'f>(item: &Field<'f>) -> Option<&'f str> {
    let text = item.text()?;
    if trusted_network(text).is_ok() {
        return Some(text);
    }
    match network(text) {
        Ok(whole) => {
            let one = text.split('/').next().unwrap_or(text).trim();
            let why = format!(
                "has host bits set, so it stands for all of {whole}: write {whole} for the whole network, or {one} for the one address"
            );
            item.invalid(text, &why);
        }
        Err(_) => item.invalid(text, "must be a network or an address, such as 10.0.0.0/8 or 2001:db8::1"),
    }
    None
}
