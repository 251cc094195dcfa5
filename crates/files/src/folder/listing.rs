//! What lies in the folder: manifests in it and below it, never what editors and tools leave about.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use seaway_model::Name;

/// How deep subfolders are followed.
const DEPTH: usize = 16;

/// Whether a file is the one that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    modified: (i64, i64),
    changed: (i64, i64),
    pub(crate) size: u64,
    inode: (u64, u64),
}

impl FileStamp {
    fn new(it: &fs::Metadata) -> FileStamp {
        FileStamp {
            modified: (it.mtime(), it.mtime_nsec()),
            changed: (it.ctime(), it.ctime_nsec()),
            size: it.size(),
            inode: (it.dev(), it.ino()),
        }
    }

    /// Of a file, through symbolic links. `None` for one that is not there.
    pub(crate) fn of(path: &Path) -> io::Result<Option<FileStamp>> {
        match fs::metadata(path) {
            Ok(it) if it.is_file() => Ok(Some(FileStamp::new(&it))),
            Ok(_) => Ok(None),
            // A link that leads nowhere is there: a mistake, or a volume being swapped; not a removal.
            Err(error) if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(path).is_err() => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// By path below the folder. A file that cannot even be looked at has no stamp.
    pub(crate) files: BTreeMap<Name, Option<FileStamp>>,
    /// Files beside them whose names say that somebody may think they are read.
    pub(crate) unread: BTreeSet<Name>,
}

impl Listing {
    pub(crate) fn of_one(name: &Path, stamp: Option<FileStamp>) -> Listing {
        Listing { files: BTreeMap::from([(key(name), stamp)]), unread: BTreeSet::new() }
    }
}

/// Lists the manifests below `dir`. `enter` is called for each folder before it is read, for a watch to be set, and
/// for folders elsewhere that links lead to.
pub(crate) fn walk(dir: &Path, enter: &mut dyn FnMut(&Path)) -> io::Result<Listing> {
    let mut listing = Listing::default();
    // A link back to the top would show every manifest twice.
    let mut visited: HashSet<_> = fs::metadata(dir).iter().map(|it| (it.dev(), it.ino())).collect();
    let mut waiting: Vec<(PathBuf, usize)> = vec![(PathBuf::new(), 0)];
    while let Some((below, depth)) = waiting.pop() {
        let here = dir.join(&below);
        enter(&here);
        let entries = match fs::read_dir(&here) {
            Ok(entries) => entries,
            Err(error) if depth == 0 => return Err(error),
            // Removed meanwhile, or not for us to read: its files show which.
            Err(_) => continue,
        };
        for entry in entries.filter_map(Result::ok) {
            let (Ok(kind), file_name) = (entry.file_type(), entry.file_name()) else { continue };
            let Some(name) = file_name.to_str() else { continue };
            if is_hidden(name) {
                continue;
            }
            let path = below.join(name);
            let metadata = if kind.is_symlink() { fs::metadata(entry.path()) } else { entry.metadata() };
            match metadata {
                // Links may lead in circles.
                Ok(it) if it.is_dir() && depth < DEPTH && visited.insert((it.dev(), it.ino())) => {
                    waiting.push((path, depth.saturating_add(1)));
                }
                Ok(it) if it.is_file() && is_manifest(name) => {
                    listing.files.insert(key(&path), Some(FileStamp::new(&it)));
                    if kind.is_symlink() {
                        enter_target(dir, &entry.path(), enter);
                    }
                }
                Ok(it) if it.is_file() && looks_like_manifest(name) => {
                    listing.unread.insert(key(&path));
                }
                Err(_) if is_manifest(name) => {
                    listing.files.insert(key(&path), None);
                }
                _ => {}
            }
        }
    }
    Ok(listing)
}

/// A manifest that a link finds outside of the folder changes there.
fn enter_target(dir: &Path, link: &Path, enter: &mut dyn FnMut(&Path)) {
    let target = fs::canonicalize(link);
    if let (Ok(target), Ok(dir)) = (target, fs::canonicalize(dir))
        && !target.starts_with(&dir)
        && let Some(parent) = target.parent()
    {
        enter(parent);
    }
}

pub(crate) fn key(path: &Path) -> Name {
    path.to_string_lossy().into_owned().into()
}

/// `x.yaml`, and neither `.x.yaml.swp`, `.#x.yaml`, `#x.yaml#`, `x.yaml~`, `4913` nor `x.yaml.tmp`.
pub(crate) fn is_manifest(name: &str) -> bool {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    !is_hidden(name) && ["yaml", "yml", "json"].iter().any(|it| extension.eq_ignore_ascii_case(it))
}

/// `x.yaml.txt`, `x.ymal`: a name that went wrong. What people put aside (`x.yaml.bak`, `x.yaml.off`, `x.yaml~`) is not
/// among them, nor what is of other programs.
fn looks_like_manifest(name: &str) -> bool {
    const NEARLY: [&str; 6] = ["ymal", "yalm", "yam", "yaml1", "jsn", "jason"];
    let Some((stem, extension)) = name.rsplit_once('.') else { return false };
    let is = |ending: &&str| extension.eq_ignore_ascii_case(ending);
    NEARLY.iter().any(is) || extension.eq_ignore_ascii_case("txt") && is_manifest(stem)
}

pub(crate) fn is_hidden(name: &str) -> bool {
    name.starts_with(['.', '#'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_went_wrong_are_told_from_what_is_put_aside() {
        for name in ["x.yaml.txt", "x.yml.TXT", "x.ymal", "x.yalm"] {
            assert!(looks_like_manifest(name), "{name}");
        }
        for name in ["x.yaml", "x.yaml.bak", "x.yaml.off", "x.yaml~", "notes.txt", "README.md", "yaml", "txt"]
        {
            assert!(!looks_like_manifest(name), "{name}");
        }
    }

    #[test]
    fn what_editors_leave_about_is_no_manifest() {
        for name in ["x.yaml", "x.yml", "x.json", "X.YAML"] {
            assert!(is_manifest(name), "{name}");
        }
        for name in [
            ".x.yaml.swp",
            ".#x.yaml",
            "#x.yaml#",
            "x.yaml~",
            "4913",
            "x.yaml.tmp",
            ".x.yaml",
            "x.txt",
            "yaml",
            "x.yaml.bak",
        ] {
            assert!(!is_manifest(name), "{name}");
        }
    }
}
