use std::fs;

/// What the kernel lets a thread do: sets of Linux capabilities, as bits by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapabilitySets {
    pub inheritable: u64,
    pub permitted: u64,
    pub effective: u64,
    /// What it could get by executing something.
    pub bounding: u64,
    pub ambient: u64,
    /// Nothing that it executes has more.
    pub no_new: bool,
}

impl CapabilitySets {
    /// NET_BIND_SERVICE and NET_ADMIN.
    pub const NETWORK: u64 = 1 << 10 | 1 << 12;
    /// NET_RAW.
    pub const RAW: u64 = 1 << 13;

    /// Of every thread of a process; empty once it has ended.
    #[track_caller]
    pub fn of(process: u32) -> Vec<CapabilitySets> {
        let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
        let told = threads.flatten().filter_map(|it| fs::read_to_string(it.path().join("status")).ok());
        told.map(|status| read(&status)).collect()
    }
}

#[track_caller]
fn read(status: &str) -> CapabilitySets {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        u64::from_str_radix(line.expect("the kernel tells it").trim(), 16).expect("is a set")
    };
    CapabilitySets {
        inheritable: field("CapInh"),
        permitted: field("CapPrm"),
        effective: field("CapEff"),
        bounding: field("CapBnd"),
        ambient: field("CapAmb"),
        no_new: field("NoNewPrivs") == 1,
    }
}
