//! What must hold for whatever a service says of its versions (`fuzz/README.md`).

use serde_json::{Value, json};

use super::versions::Versions;
use crate::call::Microversion;

/// Versions that are read are listed as such, none of them is deprecated, all are there, and they read back equal in each of the
/// three ways of listing them.
pub fn versions(bytes: &[u8]) {
    let Ok(body) = serde_json::from_slice::<Value>(bytes) else { return };
    let Some(read) = Versions::read(&body) else { return };
    assert!(!read.ids.is_empty());
    let text = body.to_string();
    for id in &read.ids {
        assert!(text.contains(&json!(id).to_string()), "{id:?} is not listed");
        let parsed = Microversion::parse(id);
        assert!(parsed.is_none_or(|it| read.supports(it.major, it.minor)), "{id:?} is listed and not there");
    }
    if let Some((least, most)) = read.micro.filter(|(least, most)| least <= most) {
        assert!(read.supports(least.major, least.minor) && read.supports(most.major, most.minor));
    }
    let (least, most) = read.micro.map(|(least, most)| (least.to_string(), most.to_string())).unzip();
    let old = json!({ "id": "v0", "status": "deprecated", "min_version": "0.1", "max_version": "99.9" });
    let current = |id: &String| json!({ "id": id, "min_version": least, "max_version": most });
    let listed: Vec<Value> = [old].into_iter().chain(read.ids.iter().map(current)).collect();
    assert_eq!(Versions::read(&json!({ "versions": listed })).as_ref(), Some(&read));
    assert_eq!(Versions::read(&json!({ "versions": { "values": listed } })).as_ref(), Some(&read));
    if let [id] = &*read.ids {
        assert_eq!(Versions::read(&json!({ "version": current(id) })).as_ref(), Some(&read));
    }
}
