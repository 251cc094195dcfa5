//! HAProxy's statistics format, column for column as version 2.6 prints it, so that what scrapes HAProxy scrapes us.
//!
//! One FRONTEND per port of a Service, over all its addresses; one row per member; one BACKEND per pool. What HAProxy
//! counts and we do not is left empty, as HAProxy itself does, never zero.

use std::{
    collections::{BTreeMap, HashMap},
    ops::AddAssign,
    time::{SystemTime, UNIX_EPOCH},
};

use seaway_model::{L4, Time, load_balancer::Balance};

use crate::view::{
    ByteCounts, HttpCounts, ListenerView, MemberState, MemberView, PoolView, Rate, ServiceView, Sessions,
    View,
};

/// As HAProxy 2.6.12 prints it, the mark in front and the comma at the end included.
pub(crate) const HEADER: &str = include_str!("csv/header.txt");

pub(crate) fn render(view: &View) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let mut table = Table::new(now);
    for (service, number) in view.services.iter().zip(1..) {
        table.service(service, number);
    }
    table.text
}

struct Table {
    text: String,
    /// Where in a row each column stands.
    columns: HashMap<&'static str, usize>,
    now: u64,
}

/// Cells with their columns, in any order; columns that are not named stay empty.
type Row = Vec<(&'static str, String)>;

impl Table {
    fn new(now: u64) -> Table {
        let columns = HEADER.trim_end().trim_start_matches("# ").trim_end_matches(',').split(',');
        let columns = columns.zip(0..).collect();
        Table { text: HEADER.to_owned(), columns, now }
    }

    fn service(&mut self, service: &ServiceView, number: usize) {
        let mut ports: BTreeMap<(u16, L4), Vec<&ListenerView>> = BTreeMap::new();
        for listener in &service.listeners {
            ports.entry((listener.port, listener.protocol)).or_default().push(listener);
        }
        for ((port, protocol), listeners) in ports {
            let name = proxy_name(service, &port.to_string(), protocol);
            self.row(frontend(&name, protocol, &listeners, number));
        }
        for pool in &service.pools {
            let name = proxy_name(service, pool.label(), pool.protocol);
            for (member, id) in pool.members.iter().zip(1..) {
                let row = self.server(&name, pool, member, number, id);
                self.row(row);
            }
            self.row(backend(&name, pool, number));
        }
    }

    fn server(&self, name: &str, pool: &PoolView, member: &MemberView, number: usize, id: usize) -> Row {
        let mut row = sessions(&member.sessions, &member.bytes, member.rate);
        row.extend([
            ("pxname", name.to_owned()),
            ("svname", member.address.clone()),
            ("qcur", "0".to_owned()),
            ("qmax", "0".to_owned()),
            ("econ", member.connect_errors.to_string()),
            ("wredis", member.retries.to_string()),
            ("status", status(member.state).to_owned()),
            ("weight", member.weight.to_string()),
            ("uweight", member.weight.to_string()),
            ("act", u8::from(!member.backup).to_string()),
            ("bck", u8::from(member.backup).to_string()),
            ("iid", number.to_string()),
            ("sid", id.to_string()),
            ("type", "2".to_owned()),
            ("lbtot", member.sessions.total.to_string()),
            ("last_chk", member.last_error.clone()),
            ("addr", member.address.clone()),
            ("mode", mode(pool.protocol, member.http)),
        ]);
        answers(&mut row, member.http, member.rate);
        if let Some(Time(change)) = member.last_change {
            row.push(("lastchg", (self.now.saturating_sub(change) / 1000).to_string()));
        }
        if !member.check.description.is_empty() {
            row.extend([
                ("chkfail", member.check.failures.to_string()),
                ("chkdown", member.check.times_down.to_string()),
                ("check_desc", member.check.description.clone()),
                ("check_rise", member.check.rise.to_string()),
                ("check_fall", member.check.fall.to_string()),
            ]);
        }
        row
    }

    fn row(&mut self, row: Row) {
        let mut cells = vec![""; self.columns.len()];
        // The dash is HAProxy's mark between its own columns and those of its modules.
        let always = [("pid", "1"), ("-", "-")];
        for (column, cell) in row.iter().map(|(column, cell)| (*column, cell.as_str())).chain(always) {
            match self.columns.get(column).and_then(|at| cells.get_mut(*at)) {
                Some(place) => *place = cell,
                None => debug_assert!(false, "HAProxy has no column {column}"),
            }
        }
        for cell in cells {
            push_cell(&mut self.text, cell);
            self.text.push(',');
        }
        self.text.push('\n');
    }
}

fn frontend(name: &str, protocol: L4, listeners: &[&ListenerView], number: usize) -> Row {
    let (mut all, mut bytes, mut rate, mut http) = (Sessions::default(), ByteCounts::default(), None, None);
    for listener in listeners {
        all = sum(all, &listener.sessions);
        bytes.add_assign(listener.bytes);
        add(&mut rate, listener.rate);
        add(&mut http, listener.http);
    }
    let count = |of: fn(&ListenerView) -> u64| listeners.iter().map(|l| of(l)).sum::<u64>().to_string();
    let mut row = sessions(&all, &bytes, rate);
    row.extend([
        ("pxname", name.to_owned()),
        ("svname", "FRONTEND".to_owned()),
        ("dreq", count(|l| l.refused.by_source.saturating_add(l.refused.by_client_rate))),
        ("dcon", count(|l| l.refused.by_limit)),
        ("ereq", count(|l| l.errors)),
        // One address that is not served must not pass for all being well.
        ("status", if listeners.iter().all(|l| l.serving) { "OPEN" } else { "STOP" }.to_owned()),
        ("iid", number.to_string()),
        ("sid", "0".to_owned()),
        ("type", "0".to_owned()),
        ("mode", mode(protocol, http)),
        ("conn_tot", all.total.to_string()),
    ]);
    answers(&mut row, http, rate);
    row
}

fn backend(name: &str, pool: &PoolView, number: usize) -> Row {
    let (mut all, mut bytes, mut rate, mut http) = (Sessions::default(), ByteCounts::default(), None, None);
    for member in &pool.members {
        all = sum(all, &member.sessions);
        bytes.add_assign(member.bytes);
        add(&mut rate, member.rate);
        add(&mut http, member.http);
    }
    let count = |of: fn(&MemberView) -> u64| pool.members.iter().map(of).sum::<u64>().to_string();
    let usable = |backup: bool| {
        let of = |it: &&MemberView| it.backup == backup && it.state.is_usable() && it.weight > 0;
        pool.members.iter().filter(of).count()
    };
    let weight =
        pool.members.iter().filter(|m| m.state.is_usable()).map(|m| u64::from(m.weight)).sum::<u64>();
    let mut row = sessions(&all, &bytes, rate);
    row.extend([
        ("pxname", name.to_owned()),
        ("svname", "BACKEND".to_owned()),
        ("qcur", "0".to_owned()),
        ("qmax", "0".to_owned()),
        ("econ", count(|m| m.connect_errors)),
        ("wredis", count(|m| m.retries)),
        ("status", if pool.usable() > 0 || pool.panic { "UP" } else { "DOWN" }.to_owned()),
        ("weight", weight.to_string()),
        ("uweight", weight.to_string()),
        ("act", usable(false).to_string()),
        ("bck", usable(true).to_string()),
        ("chkdown", count(|m| m.check.times_down)),
        ("iid", number.to_string()),
        ("sid", "0".to_owned()),
        ("type", "1".to_owned()),
        ("lbtot", all.total.to_string()),
        ("mode", mode(pool.protocol, http)),
        ("algo", algorithm(pool.balance).to_owned()),
    ]);
    answers(&mut row, http, rate);
    row
}

/// The columns that all kinds of rows have.
fn sessions(sessions: &Sessions, bytes: &ByteCounts, rate: Option<Rate>) -> Row {
    let mut row = Row::from([
        ("scur", sessions.current.to_string()),
        ("smax", sessions.peak.to_string()),
        ("stot", sessions.total.to_string()),
        ("bin", bytes.incoming.to_string()),
        ("bout", bytes.outgoing.to_string()),
        // Zero until a second look can tell: scrapers want a number here.
        ("rate", format!("{:.0}", rate.unwrap_or_default().connections)),
    ]);
    if let Some(limit) = sessions.limit {
        row.push(("slim", limit.to_string()));
    }
    row
}

/// Of HTTP alone; `hrsp_other` is what has no status of HTTP, which is never passed on.
fn answers(row: &mut Row, http: Option<HttpCounts>, rate: Option<Rate>) {
    let Some(http) = http else { return };
    row.extend([
        ("hrsp_1xx", http.answers.interim.to_string()),
        ("hrsp_2xx", http.answers.good.to_string()),
        ("hrsp_3xx", http.answers.elsewhere.to_string()),
        ("hrsp_4xx", http.answers.refused.to_string()),
        ("hrsp_5xx", http.answers.failed.to_string()),
        ("hrsp_other", "0".to_owned()),
        ("req_rate", format!("{:.0}", rate.unwrap_or_default().requests)),
        ("req_tot", http.requests.to_string()),
    ]);
}

/// Peaks of different moments add up to an upper bound, which is how HAProxy's own aggregates are read too.
fn sum(all: Sessions, one: &Sessions) -> Sessions {
    Sessions {
        current: all.current.saturating_add(one.current),
        peak: all.peak.saturating_add(one.peak),
        total: all.total.saturating_add(one.total),
        limit: one.limit.map_or(all.limit, |limit| Some(all.limit.unwrap_or(0).saturating_add(limit))),
    }
}

fn add<T: Default + AddAssign>(sum: &mut Option<T>, one: Option<T>) {
    if let Some(one) = one {
        sum.get_or_insert_default().add_assign(one);
    }
}

/// `default/shop:80`, `default/dns:53/udp`: TCP is what HAProxy's users expect unless told otherwise.
fn proxy_name(service: &ServiceView, part: &str, protocol: L4) -> String {
    let owner = if service.namespace.is_empty() {
        service.name.clone()
    } else {
        format!("{}/{}", service.namespace, service.name)
    };
    match protocol {
        L4::Tcp => format!("{owner}:{part}"),
        other => format!("{owner}:{part}/{}", mode(other, None)),
    }
}

fn status(state: MemberState) -> &'static str {
    match state {
        MemberState::Up => "UP",
        MemberState::Down | MemberState::Ejected => "DOWN",
        MemberState::Draining => "DRAIN",
        MemberState::Unchecked => "no check",
    }
}

fn mode(protocol: L4, http: Option<HttpCounts>) -> String {
    http.map_or_else(|| protocol.as_str().to_lowercase(), |_| "http".to_owned())
}

fn algorithm(balance: Balance) -> &'static str {
    match balance {
        Balance::RoundRobin => "roundrobin",
        Balance::LeastConnections => "leastconn",
        Balance::RandomTwo => "random(2)",
        Balance::SourceHash => "source",
        Balance::First => "first",
    }
}

/// Quoted as RFC 4180 says, if need be. A row stays a line, whatever a name holds.
fn push_cell(text: &mut String, cell: &str) {
    if !cell.contains([',', '"', '\n', '\r']) {
        text.push_str(cell);
        return;
    }
    text.push('"');
    for c in cell.chars() {
        match c {
            '"' => text.push_str("\"\""),
            c if c.is_control() => text.push(' '),
            c => text.push(c),
        }
    }
    text.push('"');
}
