//! The control groups of this process: how near they are to the limit at which the kernel ends processes.
//!
//! A group counts what [`MemoryBudget`](super::MemoryBudget) does not: buffers of sockets, pipes, files in memory, and what
//! other processes of the group hold. Page cache counts there as well, and goes before anybody is ended: it is taken off.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// From the group of the process up to the root.
pub(super) struct Cgroups {
    groups: Vec<Cgroup>,
    /// Why one of them could not be read has been said.
    is_reported: AtomicBool,
}

/// The files of one group, in either version of control groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cgroup {
    pub(super) limit: PathBuf,
    usage: PathBuf,
    stat: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MemoryPressure {
    None,
    /// New requests are refused.
    Near,
    /// New connections are refused, too.
    AtHand,
}

/// Of a limit, in percent.
const NEAR: u64 = 90;
const AT_HAND: u64 = 95;
/// What version 1 says where there is no limit is a little less than 2^63.
const NO_LIMIT: u64 = 1 << 62;

impl Cgroups {
    pub(super) fn of_this_process() -> Cgroups {
        let written = fs::read_to_string("/proc/self/cgroup").inspect_err(|error| {
            tracing::warn!(%error, "/proc/self/cgroup cannot be read: only limits.memory limits the memory");
        });
        Cgroups::of(&written.unwrap_or_default(), Path::new("/sys/fs/cgroup"))
    }

    /// `written`: `/proc/self/cgroup`. Groups without these files are left out, as is the root of version 2.
    pub(super) fn of(written: &str, root: &Path) -> Cgroups {
        let mut groups = groups(written, root);
        groups.retain(|it| it.limit.exists() && it.usage.exists());
        Cgroups { groups, is_reported: AtomicBool::new(false) }
    }

    /// The worst of all groups. One that cannot be read is short of nothing; the log says so once.
    pub(super) fn shortage(&self) -> MemoryPressure {
        let Some(own) = self.groups.first() else { return MemoryPressure::None };
        let each = self.groups.iter().map(|group| match group.shortage(own) {
            Ok(shortage) => shortage,
            Err(error) => {
                if !self.is_reported.swap(true, Relaxed) {
                    tracing::warn!(
                        group = %group.usage.display(), %error,
                        "a control group cannot be read: Seaway does not notice when its memory limit is nearly reached",
                    );
                }
                MemoryPressure::None
            }
        });
        each.max().unwrap_or(MemoryPressure::None)
    }
}

impl Cgroup {
    fn version_2(folder: &Path) -> Cgroup {
        let [limit, usage, stat] = ["memory.max", "memory.current", "memory.stat"].map(|it| folder.join(it));
        Cgroup { limit, usage, stat }
    }

    fn version_1(folder: &Path) -> Cgroup {
        let files = ["memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat"];
        let [limit, usage, stat] = files.map(|it| folder.join(it));
        Cgroup { limit, usage, stat }
    }

    /// A group above that of this process counts only if this process' group holds half of what is held in it: refusing
    /// clients helps nobody where others hold the memory.
    fn shortage(&self, own: &Cgroup) -> io::Result<MemoryPressure> {
        let Some(limit) = limit(CgroupValue::read(&self.limit)?.text()) else {
            return Ok(MemoryPressure::None);
        };
        let usage = CgroupValue::read(&self.usage)?;
        // The statistics cost the kernel more than the rest, and are seldom needed.
        if MemoryPressure::of(number(usage.text())?, limit) == MemoryPressure::None {
            return Ok(MemoryPressure::None);
        }
        let held = held(usage.text(), &fs::read_to_string(&self.stat)?)?;
        let shortage = MemoryPressure::of(held, limit);
        if self == own || shortage == MemoryPressure::None {
            return Ok(shortage);
        }
        let of_own = held_in(own)?;
        Ok(if of_own >= held / 2 { shortage } else { MemoryPressure::None })
    }
}

impl MemoryPressure {
    fn of(held: u64, limit: u64) -> MemoryPressure {
        let is_beyond = |percent: u64| held >= (limit / 100).saturating_mul(percent);
        match () {
            () if is_beyond(AT_HAND) => MemoryPressure::AtHand,
            () if is_beyond(NEAR) => MemoryPressure::Near,
            () => MemoryPressure::None,
        }
    }
}

/// Of the group and of all above it, in both versions of control groups. In a container the group's path may be that
/// outside, while its files are at the root.
pub(super) fn groups(written: &str, root: &Path) -> Vec<Cgroup> {
    let mut groups = Vec::new();
    for line in written.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (base, group): (_, fn(&Path) -> Cgroup) = match controllers {
            "" => (root.to_owned(), Cgroup::version_2),
            some if some.split(',').any(|it| it == "memory") => (root.join("memory"), Cgroup::version_1),
            _ => continue,
        };
        let path = Path::new(path.trim_start_matches('/'));
        let parents = path.ancestors().filter(|it| !it.as_os_str().is_empty());
        groups.extend(parents.map(|it| group(&base.join(it))));
    }
    groups.extend([Cgroup::version_2(root), Cgroup::version_1(&root.join("memory"))]);
    groups
}

/// A file of one number, read without an allocation: this is done ten times a second between requests, which have none.
struct CgroupValue {
    bytes: [u8; 32],
    count: usize,
}

impl CgroupValue {
    fn read(path: &Path) -> io::Result<CgroupValue> {
        let mut line = CgroupValue { bytes: [0; 32], count: 0 };
        line.count = fs::File::open(path)?.read(&mut line.bytes)?;
        Ok(line)
    }

    /// Nothing, where it is no text: then it is no number.
    fn text(&self) -> &str {
        let bytes = self.bytes.get(..self.count).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }
}

/// `max` is none.
pub(super) fn limit(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|it| *it < NO_LIMIT)
}

fn held_in(group: &Cgroup) -> io::Result<u64> {
    held(CgroupValue::read(&group.usage)?.text(), &fs::read_to_string(&group.stat)?)
}

/// What a group has and the kernel cannot take back: all, less cached files and caches of file systems. Version 1 tells
/// what groups below have by names of their own.
fn held(usage: &str, stat: &str) -> io::Result<u64> {
    let of = |name: &str| {
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse::<u64>().ok();
        stat.lines().find_map(value)
    };
    let whole = |total: &str, name: &str| of(total).or_else(|| of(name));
    let missing = || {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "memory.stat does not say how much memory holds cached files",
        )
    };
    let inactive = whole("total_inactive_file", "inactive_file").ok_or_else(missing)?;
    let active = whole("total_active_file", "active_file").ok_or_else(missing)?;
    let caches = of("slab_reclaimable").unwrap_or_default();
    let goes = inactive.saturating_add(active).saturating_add(caches);
    Ok(number(usage)?.saturating_sub(goes))
}

fn number(text: &str) -> io::Result<u64> {
    text.trim().parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests;
