//! What HAProxy says of itself: its servers, its maps, its crt-lists and its processes.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

/// A server of `show servers state`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedServer {
    /// `None`: of a name that was not resolved.
    pub at: Option<SocketAddr>,
    pub weight: u16,
    pub is_maintained: bool,
    pub is_drained: bool,
    /// What its checks say.
    pub is_up: bool,
}

/// By backend and server.
pub type ObservedServers = BTreeMap<(String, String), ObservedServer>;

/// Reads `show servers state`, whose columns have names.
pub fn servers(table: &str) -> ObservedServers {
    let mut columns: BTreeMap<&str, usize> = BTreeMap::new();
    let mut seen = ObservedServers::new();
    for line in table.lines() {
        if let Some(header) = line.strip_prefix('#') {
            columns = header.split_whitespace().zip(0..).collect();
            continue;
        }
        let cells: Vec<&str> = line.split_whitespace().collect();
        let cell = |name: &str| columns.get(name).and_then(|it| cells.get(*it)).copied();
        let number = |name: &str| cell(name).and_then(|it| it.parse::<u32>().ok());
        let (Some(backend), Some(name), Some(admin)) =
            (cell("be_name"), cell("srv_name"), number("srv_admin_state"))
        else {
            continue;
        };
        let ip = cell("srv_addr").and_then(|it| it.parse::<IpAddr>().ok());
        let port = number("srv_port").and_then(|it| u16::try_from(it).ok());
        let server = ObservedServer {
            at: ip.zip(port).map(SocketAddr::from),
            weight: number("srv_uweight").and_then(|it| u16::try_from(it).ok()).unwrap_or_default(),
            // Forced, inherited, and for want of an address. That the file said so (0x04) stays when it is over.
            is_maintained: admin & (0x01 | 0x02 | 0x20) != 0,
            is_drained: admin & (0x08 | 0x10) != 0,
            is_up: number("srv_op_state") != Some(0),
        };
        seen.insert((backend.to_owned(), name.to_owned()), server);
    }
    seen
}

/// Connections that are in use, by backend and server, from `show servers conn`.
pub fn connections(table: &str) -> BTreeMap<(String, String), u64> {
    let mut column = None;
    let mut seen = BTreeMap::new();
    for line in table.lines() {
        let cells: Vec<&str> = line.split_whitespace().collect();
        if line.starts_with('#') {
            column = cells.iter().position(|it| *it == "used_cur").map(|it| it - 1);
            continue;
        }
        let name = cells.first().and_then(|it| it.split_once('/'));
        let used = column.and_then(|it| cells.get(it)).and_then(|it| it.parse().ok());
        if let (Some((backend, server)), Some(used)) = (name, used) {
            seen.insert((backend.to_owned(), server.to_owned()), used);
        }
    }
    seen
}

/// Keys and values of `show map FILE`, in its order.
pub fn map(table: &str) -> Vec<(String, String)> {
    let lines = table.lines().filter_map(|line| {
        let (_, entry) = line.split_once(' ')?;
        let (key, value) = entry.split_once(' ')?;
        Some((key.to_owned(), value.trim_end().to_owned()))
    });
    lines.collect()
}

/// A line of `show ssl crt-list -n FILE`: the file of a certificate, the number that says which line it is, and names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrtListLine {
    pub file: String,
    pub number: u64,
    pub names: Vec<String>,
}

pub fn crt_list(table: &str) -> Vec<CrtListLine> {
    let lines = table.lines().filter_map(|line| {
        let line = line.trim();
        let (file, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        let (file, number) = file.rsplit_once(':')?;
        let names =
            rest.trim_start().strip_prefix('[').map_or(rest, |it| it.split_once(']').map_or("", |it| it.1));
        Some(CrtListLine {
            file: file.to_owned(),
            number: number.parse().ok()?,
            names: names.split_whitespace().map(str::to_owned).collect(),
        })
    });
    lines.collect()
}

/// What the master says of its workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processes {
    pub master: Option<u32>,
    pub worker: Option<u32>,
    /// Workers of before that still have connections; the oldest last.
    pub old: Vec<u32>,
    pub reloads: u32,
    pub failed: u32,
}

/// Reads `show proc` of the master.
pub fn processes(table: &str) -> Processes {
    let mut seen = Processes::default();
    let mut is_old = false;
    let mut old = Vec::new();
    for line in table.lines() {
        if line.starts_with('#') {
            is_old = line.starts_with("# old workers");
            continue;
        }
        let mut cells = line.split_whitespace();
        let (Some(Ok(pid)), Some(kind)) = (cells.next().map(str::parse), cells.next()) else { continue };
        match kind {
            "master" => {
                seen.master = Some(pid);
                seen.reloads = cells.next().and_then(|it| it.parse().ok()).unwrap_or_default();
                let failed = super::reply::number_behind(line, "[failed:");
                seen.failed = failed.and_then(|it| it.try_into().ok()).unwrap_or_default();
            }
            "worker" if is_old => {
                old.push((cells.next().and_then(|it| it.parse::<u32>().ok()).unwrap_or_default(), pid));
            }
            "worker" => seen.worker = Some(pid),
            _ => {}
        }
    }
    // Who saw more reloads is older.
    old.sort_unstable();
    seen.old = old.into_iter().map(|it| it.1).collect();
    seen
}

/// What HAProxy has to say against a file, without the paths of a folder that is there for the check alone; at most five lines.
pub fn alerts(output: &[u8], folder: &str) -> Vec<String> {
    let text = String::from_utf8_lossy(output);
    let alerts = text.lines().filter(|it| is_alert(it));
    let words = alerts
        .map(|it| it.split_once(" : ").map_or(it, |it| it.1).replace(folder, "").chars().take(300).collect());
    words.take(5).collect()
}

/// Whether a line of what HAProxy prints is about what it cannot do.
pub fn is_alert(line: &str) -> bool {
    line.starts_with("[ALERT]")
}

/// The servers of `show servers state` that the next worker may believe: in use as they are, and the same there.
pub fn kept_state(table: &str, keeps: impl Fn(&str, &str, Option<SocketAddr>) -> bool) -> String {
    let seen = servers(table);
    let mut columns: Vec<&str> = Vec::new();
    let mut kept = String::new();
    for line in table.lines().filter(|it| !it.trim().is_empty()) {
        if let Some(header) = line.strip_prefix('#') {
            columns = header.split_whitespace().collect();
        }
        let cell = |name: &str| {
            let place = columns.iter().position(|it| *it == name)?;
            line.split_whitespace().nth(place)
        };
        let is_kept = match cell("be_name").zip(cell("srv_name")) {
            Some((backend, name)) if !line.starts_with('#') => {
                let server = seen.get(&(backend.to_owned(), name.to_owned()));
                server.is_some_and(|it| !it.is_maintained && !it.is_drained && keeps(backend, name, it.at))
            }
            // The version, and the names of columns.
            _ => true,
        };
        if is_kept {
            kept.push_str(line.trim_end());
            kept.push('\n');
        }
    }
    kept
}

/// `Version: 2.6.12-1+deb12u4` of `show info`, and what `haproxy -v` says.
pub fn version(text: &str) -> Option<(u16, u16)> {
    let at = ["Version: ", "HAProxy version "].iter().find_map(|it| text.split_once(it).map(|it| it.1))?;
    let (major, rest) = at.split_once('.')?;
    let end = rest.find(|it: char| !it.is_ascii_digit()).unwrap_or(rest.len());
    Some((major.parse().ok()?, rest[..end].parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_by_the_names_of_columns() {
        let table = "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight x srv_port\n\
                     3 be_a 1 s1 127.0.0.1 2 8 3 1 2\n3 be_a 2 s2 ::1 0 5 1 1 0\n3 be_a 3 s3 ::1 2 4 1 1 9\n";
        let seen = servers(table);
        let s1 = &seen[&("be_a".to_owned(), "s1".to_owned())];
        assert_eq!(s1.at, Some(SocketAddr::from(([127, 0, 0, 1], 2))));
        assert!(s1.is_drained && !s1.is_maintained && s1.is_up && s1.weight == 3);
        let s2 = &seen[&("be_a".to_owned(), "s2".to_owned())];
        assert!(s2.is_maintained && !s2.is_up);
        assert!(!seen[&("be_a".to_owned(), "s3".to_owned())].is_maintained);
    }

    #[test]
    fn old_workers_are_told_from_the_one_that_serves() {
        let table = "#<PID>          <type>          <reloads>       <uptime>        <version>      \n\
                     30299           master          2 [failed: 1]   0d00h00m45s     2.6.12\n# workers\n\
                     31494           worker          1               0d00h00m04s     2.6.12\n# old workers\n\
                     31400           worker          2               0d00h00m09s     2.6.12\n# programs\n\n";
        let (master, worker) = (Some(30299), Some(31494));
        assert_eq!(processes(table), Processes { master, worker, old: vec![31400], reloads: 2, failed: 1 });
    }

    #[test]
    fn connections_lists_and_maps_are_read() {
        let table = "# bkname/svname bkid/svid addr port - purge_delay used_cur used_max\nbe_a/s1 3/1 127.0.0.1 1 - 5000 7 9\n";
        assert_eq!(connections(table)[&("be_a".to_owned(), "s1".to_owned())], 7);
        let list = crt_list("# /x/list.txt\n/x/a:b.pem:1 a.test\n/x/b.pem:2 [alpn h2\0] b.test c.test\n");
        let b =
            CrtListLine { file: "/x/b.pem".into(), number: 2, names: vec!["b.test".into(), "c.test".into()] };
        assert_eq!(list[1], b);
        assert_eq!(list[0].file, "/x/a:b.pem");
        assert_eq!(map("0x7f63 a.test/ be_a\n\n"), [("a.test/".to_owned(), "be_a".to_owned())]);
        assert_eq!(version("HAProxy version 2.6.12-1+deb12u4 2026/10/17"), Some((2, 6)));
    }
}
