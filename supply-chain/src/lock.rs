//! A Cargo.lock: which version of what was resolved, where it comes from, and its hash.

use std::{fs, io, path::Path};

use cargo_metadata::semver::Version;

use crate::toml::{self, TomlError};

/// The only source that a package from outside may have.
pub const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

#[derive(Debug)]
pub struct Lock {
    /// In the file's order: by name, then by version.
    pub packages: Vec<Locked>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Locked {
    pub name: String,
    pub version: Version,
    /// `None` for a crate of this checkout.
    pub source: Option<String>,
    /// SHA-256 of the archive, in hexadecimal digits.
    pub checksum: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("cannot read the lock file")]
    Read(#[source] io::Error),
    #[error("the lock file is no TOML")]
    Toml(#[from] TomlError),
    #[error("line {0}: a package has no name, or no version that is one")]
    Package(usize),
    #[error("the lock file has no packages")]
    Empty,
}

impl Lock {
    pub fn read(file: &Path) -> Result<Lock, LockError> {
        Lock::parse(&fs::read_to_string(file).map_err(LockError::Read)?)
    }

    pub fn parse(text: &str) -> Result<Lock, LockError> {
        let mut packages = Vec::new();
        for table in toml::parse(text)?.iter().filter(|it| it.name == "package") {
            let name = table.text("name").ok_or(LockError::Package(table.line))?;
            let version = table.text("version").and_then(|it| Version::parse(it).ok());
            packages.push(Locked {
                name: name.to_owned(),
                version: version.ok_or(LockError::Package(table.line))?,
                source: table.text("source").map(str::to_owned),
                checksum: table.text("checksum").map(str::to_owned),
            });
        }
        if packages.is_empty() { Err(LockError::Empty) } else { Ok(Lock { packages }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_the_registry_have_a_hash_and_those_of_the_checkout_none() {
        let lock = Lock::parse(
            "version = 4\n\n[[package]]\nname = \"wasi\"\nversion = \"0.11.1+wasi-snapshot-preview1\"\nsource = \
             \"registry+https://github.com/rust-lang/crates.io-index\"\nchecksum = \"cc\"\n\n[[package]]\nname = \
             \"seaway-model\"\nversion = \"0.1.0\"\ndependencies = [\n \"serde\",\n]\n",
        )
        .expect("a lock file");
        let [wasi, model] = &lock.packages[..] else { panic!("{lock:?}") };
        assert_eq!((wasi.source.as_deref(), wasi.checksum.as_deref()), (Some(CRATES_IO), Some("cc")));
        assert_eq!(wasi.version.to_string(), "0.11.1+wasi-snapshot-preview1");
        assert_eq!((&*model.name, &model.source, &model.checksum), ("seaway-model", &None, &None));
    }

    #[test]
    fn a_lock_file_without_packages_is_refused() {
        assert!(matches!(Lock::parse("version = 4\n"), Err(LockError::Empty)));
        assert!(matches!(
            Lock::parse("[[package]]\nname = \"a\"\nversion = \"x\"\n"),
            Err(LockError::Package(1))
        ));
    }
}
