//! Which process has a socket: the kernel tells inodes, `/proc/*/fd` tells whose they are.

use std::collections::{HashMap, HashSet};
use std::io::Read as _;
use std::path::Path;
use std::{fmt, fs};

/// Command lines may be megabytes long.
const COMMAND_LINE_MAX: u64 = 4096;

/// A process of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    pub name: String,
    /// With its arguments, which may hold secrets: for whoever asks, not for logs.
    pub command_line: String,
}

impl Process {
    /// The owner of one socket.
    pub fn owner_of(inode: u64) -> Option<Process> {
        Process::owners(&HashSet::from([inode])).remove(&inode)
    }

    /// The owners of some sockets, by one walk through `/proc`. Missing are those that we may not
    /// look at, and those of the kernel. A shared socket is the oldest process's, by number.
    pub fn owners(inodes: &HashSet<u64>) -> HashMap<u64, Process> {
        let mut owners = HashMap::new();
        let mut pids: Vec<u32> = names(Path::new("/proc")).collect();
        pids.sort_unstable();
        for pid in pids {
            if owners.len() == inodes.len() {
                break;
            }
            let held = sockets(&Path::new("/proc").join(pid.to_string()));
            let held = held.filter(|inode| inodes.contains(inode));
            let new: HashSet<u64> = held.filter(|inode| !owners.contains_key(inode)).collect();
            if !new.is_empty() {
                let process = Process::read(pid);
                owners.extend(new.into_iter().map(|inode| (inode, process.clone())));
            }
        }
        owners
    }

    /// The sockets of this process.
    pub fn own_sockets() -> HashSet<u64> {
        sockets(Path::new("/proc/self")).collect()
    }

    fn read(pid: u32) -> Process {
        let folder = Path::new("/proc").join(pid.to_string());
        let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
        let mut command_line = Vec::new();
        if let Ok(file) = fs::File::open(folder.join("cmdline")) {
            // A process that just ended has none.
            let _ = file.take(COMMAND_LINE_MAX).read_to_end(&mut command_line);
        }
        let command_line = String::from_utf8_lossy(&command_line);
        Process {
            pid,
            name: name.trim_end().to_owned(),
            command_line: command_line.trim_end_matches('\0').replace('\0', " "),
        }
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {})", self.name, self.pid)
    }
}

/// The inodes of a process's sockets; none if it ended or may not be looked at.
fn sockets(process: &Path) -> impl Iterator<Item = u64> + use<> {
    let folder = process.join("fd");
    names(&folder).collect::<Vec<u32>>().into_iter().filter_map(move |fd| {
        let link = fs::read_link(folder.join(fd.to_string())).ok()?;
        let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        inode.parse().ok()
    })
}

/// The entries of a folder that are numbers.
fn names(folder: &Path) -> impl Iterator<Item = u32> + use<> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn the_owner_of_a_socket_of_ours_is_this_process() {
        let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let link = fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd())).expect("a link");
        let inode = link.to_string_lossy().replace(|c: char| !c.is_ascii_digit(), "");
        let inode: u64 = inode.parse().expect("an inode");
        assert!(Process::own_sockets().contains(&inode));
        let owner = Process::owner_of(inode).expect("an owner");
        assert_eq!(owner.pid, std::process::id());
        assert!(owner.command_line.contains("seaway"), "{owner:?}");
        drop(socket);
        assert_eq!(Process::owner_of(u64::MAX), None);
    }
}
