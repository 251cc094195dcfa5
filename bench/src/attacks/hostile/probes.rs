//! A tenant who has members of its own checked as often as may be: what it floods with is said in a manifest.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::Attacker;
use crate::contender::seaway::attacked;

/// Its Services are there from the first turn until it goes.
pub(super) struct Probes {
    file: PathBuf,
    written: bool,
}

impl Probes {
    pub(super) fn of(folder: &Path) -> Self {
        Self { file: attacked::probed_file(folder), written: false }
    }
}

impl Attacker for Probes {
    fn turn(&mut self, _now: Instant) {
        if !self.written {
            // Whoever measures sees that nothing more was asked of the contender than before.
            self.written = fs::write(&self.file, attacked::probed()).is_ok();
        }
    }

    fn ended(&self) -> u64 {
        0
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        let _gone = fs::remove_file(&self.file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_services_are_there_while_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = attacked::probed_file(folder.path());
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let mut probes = Probes::of(folder.path());
        assert!(!file.exists());
        probes.turn(Instant::now());
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text.matches("kind: Service\n").count(), attacked::PROBED);
        assert_eq!(text.matches("- addresses: [").count(), attacked::PROBED * attacked::PROBED_MEMBERS);
        assert!(text.contains("seaway.dev/health-check-interval: 1ms"));
        drop(probes);
        assert!(!file.exists());
    }
}
