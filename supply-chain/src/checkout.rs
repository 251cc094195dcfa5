//! Where the files are that this looks at.

use std::{
    env, io,
    path::{Path, PathBuf},
};

/// Of whom there is a lock file.
pub const LOCK_FILES: [&str; 2] = ["Cargo.lock", "fuzz/Cargo.lock"];

/// Our own list of advisories.
pub const ADVISORIES: &str = "supply-chain/advisories.toml";

/// The checkout that the current directory is in.
pub fn find() -> io::Result<PathBuf> {
    let here = env::current_dir()?;
    let found = here.ancestors().find(|it| it.join(ADVISORIES).is_file()).map(Path::to_owned);
    found.ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, format!("{} is in no checkout of Seaway", here.display()))
    })
}
