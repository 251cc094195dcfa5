//! A folder of manifests in.

mod bell;
pub mod decode;
mod disk;
mod document;
mod folder;
mod last_good;
pub mod object;
pub mod tree;
mod watch;

pub use folder::{Folder, FolderError, read_folder};
pub use watch::{Places, Watch};
