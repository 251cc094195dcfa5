//! Certificates that tests make, and those that somebody else keeps in Barbican.

use seaway_openstack::{Call, Service};
use serde_json::{Value, json};

use crate::stage::CloudSetup;

/// A certificate of its own, and its key.
pub(crate) fn certificate(name: &str) -> (String, String) {
    let made = rcgen::generate_simple_self_signed(vec![format!("{name}.example")]).expect("a certificate");
    (made.cert.pem(), made.signing_key.serialize_pem())
}

/// A container that somebody else put there.
pub(crate) fn kept_by_hand(land: &CloudSetup) -> String {
    let (certificate, key) = certificate("theirs");
    let made = |path: &str, body: Value, told: &str| {
        let call = Call::post(Service::KeyManager, "keep", path, body);
        let made =
            land.runtime.block_on(land.cloud.call(call)).unwrap_or_else(|error| panic!("{path}: {error}"));
        made.body[told].as_str().expect("a reference").to_owned()
    };
    let secret = |name: &str, payload: String| {
        let new = json!({"name": name, "payload": payload, "payload_content_type": "text/plain"});
        json!({"name": name, "secret_ref": made("/secrets", new, "secret_ref")})
    };
    let refs = [secret("certificate", certificate), secret("private_key", key)];
    let new = json!({"name": "by hand", "type": "certificate", "secret_refs": refs});
    made("/containers", new, "container_ref")
}
