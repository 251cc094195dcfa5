//! What this process uses, as Linux tells it.

use std::{fs, time::Duration};

use serde::Serialize;

/// Zero where the kernel did not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Usage {
    #[serde(rename = "cpuSeconds", serialize_with = "seconds")]
    pub(crate) cpu: Duration,
    pub(crate) resident_bytes: u64,
    pub(crate) descriptors: u64,
    pub(crate) descriptor_limit: u64,
    pub(crate) threads: u64,
}

/// The unit of /proc/self/stat: a hundredth of a second on every architecture that we run on.
const MILLISECONDS_PER_TICK: u64 = 10;

impl Usage {
    pub(crate) fn now() -> Usage {
        let status = read("/proc/self/status");
        let kilobytes = |key| number_after(&status, key).unwrap_or(0).saturating_mul(1024);
        Usage {
            cpu: cpu(&read("/proc/self/stat")).unwrap_or_default(),
            resident_bytes: kilobytes("VmRSS:"),
            // The descriptor that reads the folder counts itself.
            descriptors: fs::read_dir("/proc/self/fd").map_or(0, |fds| fds.count().saturating_sub(1) as u64),
            descriptor_limit: number_after(&read("/proc/self/limits"), "Max open files").unwrap_or(0),
            threads: number_after(&status, "Threads:").unwrap_or(0),
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn number_after(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

/// User and system time: fields 14 and 15, counted from behind the command, which may contain anything.
fn cpu(stat: &str) -> Option<Duration> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_millis(user.saturating_add(system).saturating_mul(MILLISECONDS_PER_TICK)))
}

fn seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_something() {
        let usage = Usage::now();
        assert!(usage.resident_bytes > 1_000_000, "{usage:?}");
        assert!(usage.descriptors >= 3 && usage.descriptors < usage.descriptor_limit, "{usage:?}");
        assert!(usage.threads >= 1, "{usage:?}");
    }

    #[test]
    fn a_command_with_brackets_does_not_shift_the_fields() {
        assert_eq!(
            cpu("7 (a) b) S 1 1 1 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 1 0 5 6 7"),
            Some(Duration::from_secs(2))
        );
        assert_eq!(cpu("7"), None);
    }
}
