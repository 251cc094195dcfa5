//! What a run showed, for `results/peers.md`: `./test peers` names the file.

use std::{env, fs::OpenOptions, io::Write};

/// Shows a part of it, under that heading.
pub(crate) fn report(heading: &str, text: &str) {
    let part = format!("{heading}\n\n{}\n\n", text.trim_end());
    eprint!("{part}");
    let Some(file) = env::var_os("SEAWAY_RESULTS") else { return };
    let file = OpenOptions::new().create(true).append(true).open(file);
    file.and_then(|mut it| it.write_all(part.as_bytes()))
        .expect("SEAWAY_RESULTS names a file that can be written");
}
