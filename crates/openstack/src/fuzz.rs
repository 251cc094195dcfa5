//! Targets for fuzzing: plain functions over bytes that panic when an invariant does not hold.

#![allow(clippy::arithmetic_side_effects, clippy::expect_used, reason = "what is wrong ends the fuzz target")]

use std::path::Path;

use crate::credentials::{
    CloudConf,
    ini::{Entry, Ini, Section},
};

/// Any text is sections, or is refused with a line of its own; what was read, written down plainly, reads back equal.
pub fn ini(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let lines = text.split('\n').count();
    let ini = match Ini::parse(text) {
        Ok(ini) => ini,
        Err(broken) => return assert!((1..=lines).contains(&broken.line), "{broken} of {lines} lines"),
    };
    let mut plain = String::new();
    for section in &ini.sections {
        assert!((1..=lines).contains(&section.line), "a section is somewhere");
        let sub = section.sub.as_ref().map(|sub| format!(" {}", quoted(sub, false))).unwrap_or_default();
        plain.push_str(&format!("[{}{sub}]\n", section.name));
        for entry in &section.entries {
            assert!((1..=lines).contains(&entry.line), "a key is somewhere");
            plain.push_str(&format!("{} = {}\n", entry.key, quoted(entry.value(), true)));
        }
    }
    let again = Ini::parse(&plain).expect("what was written plainly can be read");
    let told = |ini: &Ini| -> Vec<String> {
        let entry = |it: &Entry| format!("{:?} {:?}", it.key, it.value());
        let all = |it: &Section| {
            format!("{:?} {:?} {:?}", it.name, it.sub, it.entries.iter().map(entry).collect::<Vec<_>>())
        };
        ini.sections.iter().map(all).collect()
    };
    assert_eq!(told(&again), told(&ini), "what was written plainly is the same");
    // Whatever it is, it does not stop the process.
    if let Ok(conf) = CloudConf::parse(Path::new("cloud.conf"), text) {
        _ = conf.unknown();
        _ = conf.resolve_for_fuzzing();
    }
}

fn quoted(text: &str, breaks: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    let text = if breaks { text.replace('\n', "\\n") } else { text };
    format!("\"{text}\"")
}
