//! How much memory this process can have: that of the machine, or of its control group where that is less.

use std::{fs, path::Path};

use super::cgroups::{groups, limit};

/// `None`: the kernel does not say.
pub(super) fn bytes() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
    let written = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let groups = groups(&written, Path::new("/sys/fs/cgroup"));
    let limits = groups.into_iter().filter_map(|it| limit(&fs::read_to_string(it.limit).ok()?));
    limits.chain(machine).min()
}

/// Of `/proc/meminfo`.
fn total(text: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_total_is_none() {
        assert_eq!(total("MemFree: 1 kB\nMemTotal:       2048 kB\n"), Some(2 << 20));
        assert_eq!(total("nothing"), None);
    }

    #[test]
    fn this_machine_has_some() {
        assert!(bytes().is_some_and(|it| it > 1 << 20));
    }
}
