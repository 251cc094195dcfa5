//! Targets for fuzzing: plain functions over bytes that panic when an invariant does not hold (`fuzz/README.md`).

use std::{path::Path, time::Duration};

pub use crate::import::fuzz as import;
use crate::settings::parse;

/// Any text is a configuration within its bounds, or is refused with the places of all that is wrong. A key that nobody knows is
/// never passed over.
pub fn settings(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let nowhere = Path::new("/nonexistent");
    let settings = match parse(text, nowhere) {
        Ok(settings) => settings,
        Err(faults) => {
            let lines = u32::try_from(text.split(['\n', '\r']).count()).unwrap_or(u32::MAX);
            assert!(!faults.is_empty(), "it is refused, and nobody is told why");
            for it in &faults {
                assert!(
                    (1..=lines + 1).contains(&it.at.line) && it.at.column >= 1,
                    "{} of {lines} lines",
                    it.at
                );
                assert!(!it.message.is_empty(), "{}", it.field);
            }
            return;
        }
    };
    assert!(settings.lease >= Duration::from_secs(1) && settings.audit >= Duration::from_secs(10));
    assert!(settings.workers.is_none_or(|it| (1..=1_024).contains(&it)));
    assert!(settings.config.exposed.iter().all(|it| it.listen != Some(0)), "port 0 is any");
    let again = parse(text, nowhere).expect("it is the same text");
    assert!(again == settings && again.needs_restart(&settings).is_empty(), "it says two things");
    let more = parse(&format!("{text}\nnobodyKnowsThis: 1\n"), nowhere);
    assert!(more.is_err(), "a key that nobody knows is passed over");
}
