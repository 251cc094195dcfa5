//! What HAProxy counts: the rows of `show stat`, read by the names of its columns.

use std::{borrow::Cow, collections::BTreeMap, net::SocketAddr};

/// What a proxy or a server has counted since its worker started, and how its members are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// By the names of frontends.
    pub frontends: BTreeMap<String, Counters>,
    /// By the names of backends.
    pub backends: BTreeMap<String, Counters>,
    /// By backend and server.
    pub servers: BTreeMap<(String, String), Server>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections now, and the most at once.
    pub current: u64,
    pub most: u64,
    pub total: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Connections and sessions that a rule of the frontend turned away.
    pub denied: u64,
    /// Requests that could not be read.
    pub request_errors: u64,
    pub connect_errors: u64,
    pub retries: u64,
    /// Responses that ended early.
    pub response_errors: u64,
    /// Of HTTP.
    pub requests: u64,
    /// Of HTTP, by hundreds of their status; the first counts what is none.
    pub answers: [u64; 6],
    pub check_failures: u64,
    pub times_down: u64,
}

impl Counters {
    /// All that only grows; of the rest, what is so now.
    fn each(&mut self, other: &Counters, change: impl Fn(u64, u64) -> u64) {
        let pairs = [
            (&mut self.total, other.total),
            (&mut self.bytes_in, other.bytes_in),
            (&mut self.bytes_out, other.bytes_out),
            (&mut self.denied, other.denied),
            (&mut self.request_errors, other.request_errors),
            (&mut self.connect_errors, other.connect_errors),
            (&mut self.retries, other.retries),
            (&mut self.response_errors, other.response_errors),
            (&mut self.requests, other.requests),
            (&mut self.check_failures, other.check_failures),
            (&mut self.times_down, other.times_down),
        ];
        for (place, by) in pairs.into_iter().chain(self.answers.iter_mut().zip(other.answers)) {
            *place = change(*place, by);
        }
    }

    /// With what another one counted beside it, or before it.
    pub fn add(&mut self, other: &Counters) {
        self.each(other, u64::saturating_add);
        self.current = self.current.saturating_add(other.current);
        self.most = self.most.max(other.most);
    }

    /// What was counted since.
    #[must_use]
    pub fn since(mut self, before: &Counters) -> Counters {
        self.each(before, u64::saturating_sub);
        self
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Server {
    pub counters: Counters,
    /// `None`: a slot that never had a member, or one whose name is not resolved.
    pub at: Option<SocketAddr>,
    pub health: Health,
    /// Seconds since its checks last changed their mind.
    pub changed: Option<u64>,
    /// What its last check met.
    pub last_check: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// It is not checked.
    #[default]
    Unchecked,
    Up,
    Down,
    /// It is not to be used: a free slot, or one whose member has left.
    Maintenance,
}

/// Rows of others, and what is no row, are passed over.
pub fn statistics(table: &str) -> Statistics {
    let mut columns: BTreeMap<&str, usize> = BTreeMap::new();
    let mut seen = Statistics::default();
    for line in table.lines() {
        if let Some(header) = line.strip_prefix("# ") {
            columns = header.split(',').zip(0..).collect();
            continue;
        }
        let cells = cells(line);
        let cell = |name: &str| columns.get(name).and_then(|it| cells.get(*it)).map(AsRef::as_ref);
        let (Some(proxy), Some(name)) = (cell("pxname"), cell("svname")) else { continue };
        let number = |name: &str| cell(name).and_then(|it| it.parse::<u64>().ok()).unwrap_or_default();
        let counters = Counters {
            current: number("scur"),
            most: number("smax"),
            total: number("stot"),
            bytes_in: number("bin"),
            bytes_out: number("bout"),
            denied: number("dcon").saturating_add(number("dses")),
            request_errors: number("ereq"),
            connect_errors: number("econ"),
            retries: number("wretr"),
            response_errors: number("eresp").saturating_add(number("srv_abrt")),
            requests: number("req_tot"),
            answers: ["hrsp_other", "hrsp_1xx", "hrsp_2xx", "hrsp_3xx", "hrsp_4xx", "hrsp_5xx"].map(number),
            check_failures: number("chkfail"),
            times_down: number("chkdown"),
        };
        match cell("type") {
            Some("0") => drop(seen.frontends.insert(proxy.to_owned(), counters)),
            Some("1") => drop(seen.backends.insert(proxy.to_owned(), counters)),
            Some("2") => {
                let server = Server {
                    counters,
                    at: cell("addr").and_then(|it| it.parse().ok()),
                    health: health(cell("status").unwrap_or_default()),
                    changed: cell("lastchg").and_then(|it| it.parse().ok()),
                    last_check: cell("last_chk").unwrap_or_default().to_owned(),
                };
                seen.servers.insert((proxy.to_owned(), name.to_owned()), server);
            }
            _ => {}
        }
    }
    seen
}

/// `UP 1/3` is up still, and `DOWN 1/2` is not yet.
fn health(status: &str) -> Health {
    match status.split(' ').next().unwrap_or_default() {
        // A server that gets nothing new is none that is down.
        "UP" | "DRAIN" | "NOLB" => Health::Up,
        "DOWN" => Health::Down,
        "MAINT" => Health::Maintenance,
        _ => Health::Unchecked,
    }
}

/// A cell in quotes may have commas; two quotes in it are one.
fn cells(line: &str) -> Vec<Cow<'_, str>> {
    // Of thousands of rows, few have a quote.
    if !line.contains('"') {
        return line.split(',').map(Cow::Borrowed).collect();
    }
    let mut cells = vec![String::new()];
    let (mut is_quoted, mut letters) = (false, line.chars().peekable());
    while let Some(letter) = letters.next() {
        match letter {
            '"' if is_quoted && letters.peek() == Some(&'"') => {
                letters.next();
                cells.last_mut().into_iter().for_each(|it| it.push('"'));
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => cells.push(String::new()),
            letter => cells.last_mut().into_iter().for_each(|it| it.push(letter)),
        }
    }
    cells.into_iter().map(Cow::Owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As HAProxy 2.6 prints it, without the columns that are not read.
    const TABLE: &str = "# pxname,svname,scur,smax,stot,bin,bout,ereq,econ,eresp,wretr,status,chkfail,chkdown,lastchg,type,\
        hrsp_1xx,hrsp_2xx,hrsp_3xx,hrsp_4xx,hrsp_5xx,hrsp_other,req_tot,srv_abrt,last_chk,addr,dcon,dses,\n\
        default.shop.80,FRONTEND,1,2,10,83,217,3,,,,OPEN,,,,0,0,7,0,1,2,0,10,,,,4,1,\n\
        default.shop,s1,0,0,0,0,0,,5,1,0,DOWN,1,1,6,2,0,0,0,0,0,0,,2,\"refused, so \"\"it\"\" says\",127.0.0.1:1,,,\n\
        default.shop,s2,0,0,0,0,0,,0,0,0,MAINT,,,6,2,0,0,0,0,0,0,,0,,127.0.0.1:2,,,\n\
        default.shop,s3,0,1,4,83,217,,1,0,3,no check,,,6,2,0,0,0,0,0,0,,0,,[::1]:2,,,\n\
        default.shop,BACKEND,0,1,1,83,217,,1,0,3,UP,,0,6,1,0,0,0,0,1,0,1,0,,,,,\n\n";

    #[test]
    fn rows_are_read_by_the_names_of_columns() {
        let seen = statistics(TABLE);
        let front = seen.frontends["default.shop.80"];
        assert_eq!((front.current, front.most, front.total, front.requests), (1, 2, 10, 10));
        assert_eq!((front.denied, front.request_errors, front.answers), (5, 3, [0, 0, 7, 0, 1, 2]));
        assert_eq!(seen.backends["default.shop"].retries, 3);
        let server = |name: &str| seen.servers[&("default.shop".to_owned(), name.to_owned())].clone();
        let down = server("s1");
        assert_eq!((down.health, down.changed, down.counters.times_down), (Health::Down, Some(6), 1));
        assert_eq!((down.last_check.as_str(), down.counters.response_errors), ("refused, so \"it\" says", 3));
        assert_eq!(server("s2").health, Health::Maintenance);
        let unchecked = server("s3");
        assert_eq!(unchecked.health, Health::Unchecked);
        assert_eq!(unchecked.at, "[::1]:2".parse().ok());
        assert_eq!(["UP 1/3", "DOWN 1/2", "DRAIN"].map(health), [Health::Up, Health::Down, Health::Up]);
    }

    #[test]
    fn what_grows_is_added_and_what_is_so_now_is_not_subtracted() {
        let of = |current, total| Counters { current, most: current, total, ..Counters::default() };
        let mut sum = of(1, 10);
        sum.add(&of(3, 5));
        assert_eq!(sum, Counters { current: 4, most: 3, total: 15, ..Counters::default() });
        assert_eq!(of(3, 15).since(&of(9, 10)), of(3, 5));
    }
}
