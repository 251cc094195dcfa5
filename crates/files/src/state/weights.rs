//! `weights.json`: weights of members that an operator set, kept so that a restart does not bring a member back that is being
//! repaired.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use seaway_model::MemberWeights;

use super::StateDir;
use crate::disk::{self, Durability};

const FILE: &str = "weights.json";
/// More are not set by hand.
const LARGEST: u64 = 4 << 20;

#[derive(Clone, Debug)]
pub struct WeightsFile {
    path: PathBuf,
}

impl WeightsFile {
    pub fn new(state: &StateDir) -> WeightsFile {
        WeightsFile { path: state.path().join(FILE) }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn read(&self) -> io::Result<MemberWeights> {
        match fs::metadata(&self.path) {
            Ok(it) if it.len() > LARGEST => Err(io::ErrorKind::FileTooLarge.into()),
            Ok(_) => Ok(serde_json::from_slice(&fs::read(&self.path)?)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(MemberWeights::default()),
            Err(error) => Err(error),
        }
    }

    pub fn write(&self, weights: &MemberWeights) -> io::Result<()> {
        if weights.0.is_empty() {
            return match fs::remove_file(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        disk::replace(&self.path, Durability::Yes, |it| {
            serde_json::to_writer_pretty(it, weights).map_err(Into::into)
        })
    }
}

#[cfg(test)]
mod tests {
    use seaway_model::{Time, WeightOverride, WeightTarget};

    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let root = tempfile::tempdir().expect("a folder");
        let file = WeightsFile::new(&StateDir::open(root.path()).expect("is free"));
        assert_eq!(file.read().expect("is read"), MemberWeights::default());
        let set = |service: Option<&str>, member: Option<&str>| WeightOverride {
            of: WeightTarget {
                service: service.map(|it| ("default".into(), it.into())),
                member: member.map(|it| it.parse().expect("an address")),
            },
            weight: 0,
            since: Time(7),
        };
        let weights = MemberWeights(vec![set(Some("web"), None), set(None, Some("[::1]:80"))]);
        file.write(&weights).expect("is written");
        let text = fs::read_to_string(file.path()).expect("is there");
        let words: String = text.split_whitespace().collect();
        assert_eq!(
            words,
            r#"[{"service":["default","web"],"weight":0,"since":7},{"member":"[::1]:80","weight":0,"since":7}]"#
        );
        assert_eq!(file.read().expect("is read"), weights);
        for _ in 0..2 {
            file.write(&MemberWeights::default()).expect("is removed");
            assert!(!file.path().exists());
        }
        fs::write(file.path(), "[{").expect("is written");
        file.read().expect_err("it is broken");
    }
}
