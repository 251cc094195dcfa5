//! Targets for fuzzing: plain functions over bytes that panic when an invariant does not hold.

use seaway_model::{Config, Kind, Name, name::ObjectRef};

use crate::{
    annotations::{Wishes, rows},
    quantity,
};

/// Whatever an annotation says is heeded, or refused with a Problem that names it and leaves every default.
pub fn wish(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let object = ObjectRef::new(Kind::Service, "default", "shop");
    let defaults = Wishes::of(&Config::default().defaults);
    for row in rows() {
        let name = row.names[0];
        let mut wishes = defaults.clone();
        let problems = wishes.read(&object, &[(Name::from(name), Name::from(text))].into_iter().collect());
        for problem in &problems {
            assert!(problem.field.contains(name), "{name} is blamed as {}", problem.field);
        }
        assert!(problems.is_empty() || wishes == defaults, "{name}: {text:?} was refused and heeded");
    }
    if let Ok(range) = quantity::range(text) {
        assert!(range.first() <= range.last());
    }
}
