//! How much memory this process can have: that of the machine, or of its control group where that is less.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// `None`: the kernel does not say.
pub(super) fn bytes() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = files(&groups, Path::new("/sys/fs/cgroup"));
    let limits = limits.into_iter().filter_map(|file| limit(&fs::read_to_string(file).ok()?));
    limits.chain(machine).min()
}

/// Of `/proc/meminfo`.
fn total(text: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Where limits may be: of the group and of all above it, in both versions of control groups. In a container the
/// group's path may be that outside, while its files are at the root.
fn files(groups: &str, root: &Path) -> Vec<PathBuf> {
    let mut files = vec![root.join("memory.max"), root.join("memory/memory.limit_in_bytes")];
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (base, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            some if some.split(',').any(|it| it == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let path = Path::new(path.trim_start_matches('/'));
        let parents = path.ancestors().filter(|it| !it.as_os_str().is_empty());
        files.extend(parents.map(|group| base.join(group).join(file)));
    }
    files
}

/// `max` is none.
fn limit(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_the_group_and_of_all_above_it_count() {
        let root = Path::new("/sys/fs/cgroup");
        let unified = files("0::/kubepods/pod1/c\n", root);
        for group in ["", "kubepods", "kubepods/pod1", "kubepods/pod1/c"] {
            assert!(unified.contains(&root.join(group).join("memory.max")), "{group}");
        }
        let split = files("5:cpu,cpuacct:/a\n4:memory:/docker/x\n", root);
        assert!(split.contains(&root.join("memory/docker/x/memory.limit_in_bytes")));
        assert!(!split.iter().any(|it| it.ends_with("a/memory.limit_in_bytes")));
    }

    #[test]
    fn what_is_no_limit_is_none() {
        assert_eq!((limit("max\n"), limit("1048576\n")), (None, Some(1 << 20)));
        assert_eq!(total("MemFree: 1 kB\nMemTotal:       2048 kB\n"), Some(2 << 20));
        assert_eq!(total("nothing"), None);
    }

    #[test]
    fn this_machine_has_some() {
        assert!(bytes().is_some_and(|it| it > 1 << 20));
    }
}
