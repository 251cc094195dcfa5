//! Who else can read, or write, a file of credentials.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Component, Path},
};

use nix::sys::statfs::{TMPFS_MAGIC, statfs};

use crate::error::{Class, Error};

/// A warning if others can read the secrets in it; an error if they can write it, for then they say where our password
/// is sent to.
pub(super) fn check_permissions(path: &Path, has_secret: bool) -> Result<Option<String>, Error> {
    let Ok(there) = fs::metadata(path) else { return Ok(None) };
    let mode = there.permissions().mode();
    let shown = path.display();
    if mode & 0o022 != 0 {
        return Err(Error::new(
            Class::Credentials,
            format!("others can write {shown} (mode {:o})", mode & 0o777),
        )
        .with_fix(format!("type: chmod go-w {shown}")));
    }
    let readable = mode & 0o044 != 0 && has_secret && !is_of_a_secret_volume(path);
    Ok(readable
        .then(|| format!("others can read {shown} (mode {:o}): type: chmod 600 {shown}", mode & 0o777)))
}

/// Files of a Kubernetes Secret are readable by design, within a pod. They are links into `..data`, which is swapped
/// when the Secret changes; or, mounted one by one (`subPath`), mounts of a tmpfs by themselves.
fn is_of_a_secret_volume(path: &Path) -> bool {
    let within_data = fs::read_link(path).is_ok_and(|target| {
        target.components().next().is_some_and(|first| first == Component::Normal("..data".as_ref()))
    });
    within_data || is_mounted_alone(path)
}

fn is_mounted_alone(path: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|there| there.dev()).ok();
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    device(path) != device(folder) && statfs(path).is_ok_and(|it| it.filesystem_type() == TMPFS_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn with_mode(mode: u32, check: impl FnOnce(&Path)) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("clouds.yaml");
        fs::write(&path, "clouds: {}").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
        check(&path);
    }

    #[test]
    fn a_secret_that_others_can_read_is_warned_about_with_what_to_type() {
        for mode in [0o644, 0o640, 0o604] {
            with_mode(mode, |path| {
                let warning = check_permissions(path, true).expect("no error").expect("a warning");
                assert!(warning.ends_with(&format!("type: chmod 600 {}", path.display())), "{warning}");
                assert_eq!(
                    check_permissions(path, false).expect("no error"),
                    None,
                    "there is no secret in it"
                );
            });
        }
        with_mode(0o600, |path| assert_eq!(check_permissions(path, true).expect("no error"), None));
    }

    #[test]
    fn a_file_that_others_can_write_is_refused() {
        for mode in [0o620, 0o602, 0o666] {
            with_mode(mode, |path| {
                let error = check_permissions(path, false).expect_err("refused").to_string();
                assert!(error.contains("type: chmod go-w"), "{error}");
            });
        }
    }

    /// As `subPath` mounts one key of a Secret. Mounting takes rights; that a mount of a tmpfs is there does not.
    #[test]
    fn only_a_tmpfs_mounted_by_itself_is_one() {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("Linux tells");
        let is_tmpfs = |line: &&str| line.split(' ').nth(2) == Some("tmpfs");
        let mounts: Vec<&str> =
            mounts.lines().filter(is_tmpfs).filter_map(|line| line.split(' ').nth(1)).collect();
        let alone = mounts.iter().filter(|it| is_mounted_alone(Path::new(it))).count();
        assert!(mounts.is_empty() || alone > 0, "none of {mounts:?}");
        with_mode(0o644, |path| assert!(!is_mounted_alone(path), "it is a file among others"));
        assert!(!is_mounted_alone(Path::new("/proc")), "a mount, but of no tmpfs");
    }

    #[test]
    fn files_of_a_secret_volume_are_readable_by_design() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("..2026_11_21");
        fs::create_dir(&data).expect("made");
        fs::write(data.join("cloud.conf"), "[Global]").expect("written");
        fs::set_permissions(data.join("cloud.conf"), fs::Permissions::from_mode(0o644)).expect("set");
        symlink("..2026_11_21", folder.path().join("..data")).expect("linked");
        symlink("..data/cloud.conf", folder.path().join("cloud.conf")).expect("linked");
        assert_eq!(check_permissions(&folder.path().join("cloud.conf"), true).expect("no error"), None);
    }
}
