//! Each service with its listeners and its pools. On a narrow screen the tables become cards, so every cell carries
//! its column's name, and every part its role, which a changed `display` would take away.

use std::fmt::{self, Write};

use seaway_model::{Time, load_balancer::Balance};

use super::{
    chart,
    filter::{Filter, FilteredView, Severity, severity},
    html::{age, bytes, grouped, rate, text},
    live::plural,
};
use crate::view::{ByteCounts, HttpCounts, ListenerView, MemberView, PoolView, Rate, ServiceView, Sessions};

pub(super) fn write(page: &mut String, shown: &FilteredView, filter: &Filter, now: Time) -> fmt::Result {
    let services = &shown.view.services;
    page.write_str(
        "<section data-key=\"services\" aria-labelledby=\"services\"><h2 id=\"services\">Services",
    )?;
    if services.len() < shown.sums.services {
        write!(
            page,
            r#" <span class="tally">{} of {}</span>"#,
            grouped(services.len() as u64),
            grouped(shown.sums.services as u64)
        )?;
    }
    page.write_str("</h2>\n")?;
    if services.is_empty() {
        match filter.sought.is_empty() {
            true => page.write_str(
                "<p class=\"empty\">No Service asks for a load balancer yet. One of <code>type: \
                 LoadBalancer</code> appears here as soon as it is read.</p>\n",
            )?,
            false => writeln!(
                page,
                r#"<p class="empty">No service matches “{}”. <a href="/">Show all</a></p>"#,
                text(&filter.sought)
            )?,
        }
    }
    for one in services {
        service(page, one, now)?;
    }
    if services.len() < shown.matching {
        writeln!(
            page,
            r#"<p class="more">{} more; type a part of a name or address above to find one.</p>"#,
            grouped(shown.matching.saturating_sub(services.len()) as u64)
        )?;
    }
    page.write_str("</section>\n")
}

fn service(page: &mut String, service: &ServiceView, now: Time) -> fmt::Result {
    let owner = text(&service.owner);
    let (mark, meaning) = match severity(service) {
        Severity::None => ("good", "served"),
        Severity::Some => ("warn", "served, but not all members are usable"),
        Severity::Much => ("bad", "not served"),
    };
    write!(
        page,
        r#"<article class="service" data-key="{owner}"><h3><span class="mark {mark}" role="img" aria-label="{meaning}" title="{meaning}"></span><span class="name">"#
    )?;
    if !service.namespace.is_empty() {
        write!(page, r#"<span class="namespace">{}/</span>"#, text(&service.namespace))?;
    }
    write!(page, "{}</span>", text(&service.name))?;
    for address in &service.addresses {
        write!(page, r#" <code class="address">{address}</code>"#)?;
    }
    if let Some(by) = &service.announced_by {
        write!(page, r#" <small title="{}">announced</small>"#, text(by))?;
    }
    if let Some(why) = service.not_announced.as_deref().filter(|_| severity(service) != Severity::Much) {
        write!(page, r#" <small class="warn" title="{}">served, not announced</small>"#, text(why))?;
    }
    page.write_str("</h3>\n")?;
    links(page, &service.urls)?;
    let speaks_http = service.listeners.iter().any(|it| it.http.is_some());
    let what = if speaks_http { "requests" } else { "connections" };
    service.history.iter().try_for_each(|it| chart::write(page, it, what))?;
    if service.listeners.is_empty() {
        page.write_str("<p class=\"empty\">Seaway serves nothing for this Service.</p>\n")?;
    } else {
        let columns = columns(&["Listener", "State", "Open"], speaks_http, &["Refused", "Errors"]);
        table(page, "Listeners", &owner, &columns, |page| {
            service.listeners.iter().try_for_each(|one| listener(page, one, speaks_http))
        })?;
    }
    for one in &service.pools {
        pool(page, one, &owner, now)?;
    }
    page.write_str("</article>\n")
}

const TRAFFIC: &[&str] = &["Peak", "Total", "New/s", "In", "Out"];
/// Instead, where any row of the table speaks HTTP: requests say more than connections.
const REQUESTS: &[&str] = &["Requests", "Req/s", "4xx", "5xx", "In", "Out"];

fn columns(first: &[&'static str], speaks_http: bool, last: &[&'static str]) -> Vec<&'static str> {
    [first, if speaks_http { REQUESTS } else { TRAFFIC }, last].concat()
}

fn listener(page: &mut String, listener: &ListenerView, speaks_http: bool) -> fmt::Result {
    let at = std::net::SocketAddr::new(listener.address, listener.port);
    write!(
        page,
        r#"<tr role="row" data-key="{at}/{}"><th role="rowheader" scope="row">"#,
        listener.protocol
    )?;
    write!(page, r#"<code>{}</code> <small>{}"#, breakable(&at.to_string()), listener.protocol)?;
    if !listener.name.is_empty() {
        write!(page, " · {}", text(&listener.name))?;
    }
    page.write_str("</small></th>")?;
    match listener.serving {
        true => cell(page, "State", r#"<span class="state up">serving</span>"#)?,
        false => cell(page, "State", r#"<span class="state down">not served</span>"#)?,
    }
    let limit = listener.sessions.limit.map(|limit| format!("<small> of {}</small>", grouped(limit)));
    cell(page, "Open", &format!("{}{}", grouped(listener.sessions.current), limit.unwrap_or_default()))?;
    match speaks_http {
        true => requests(page, listener.http, &listener.bytes, listener.rate)?,
        false => traffic(page, &listener.sessions, &listener.bytes, listener.rate)?,
    }
    // Refusing strangers is what the ranges are for; a limit that is hit is news.
    let by_limit = match listener.refused.by_limit {
        0 => String::new(),
        refused => format!(r#" <small class="bad">{} by limit</small>"#, grouped(refused)),
    };
    cell(page, "Refused", &format!("{}{by_limit}", grouped(listener.refused.total())))?;
    cell(page, "Errors", &worrying(listener.errors))?;
    page.write_str("</tr>\n")
}

fn pool(page: &mut String, pool: &PoolView, owner: &impl fmt::Display, now: Time) -> fmt::Result {
    let (id, label) = (text(&pool.id), text(pool.label()));
    let (usable, all) = (pool.usable(), pool.members.len());
    write!(page, r#"<section class="pool" data-key="pool {id}"><h4>Pool {label} "#)?;
    write!(
        page,
        "<small>{} · {} · {usable} of {} in use",
        pool.protocol,
        balance(pool.balance),
        plural(all, "member", "members")
    )?;
    if pool.panic {
        page.write_str(" · <b class=\"bad\">too few healthy members: traffic is sent to unhealthy ones as well (panic mode)</b>")?;
    }
    if let Some(latency) = pool.latency {
        let (p50, p99) = (millis(latency.p50), millis(latency.p99));
        write!(page, " · <span title=\"{LATENCY}\">p50 {p50}, p99 {p99}</span>")?;
    }
    page.write_str("</small>")?;
    let share = match usable {
        0 => "bad",
        _ if usable == all => "good",
        _ => "warn",
    };
    write!(
        page,
        r#" <svg class="share {share}" viewBox="0 0 96 6" preserveAspectRatio="none" aria-hidden="true"><rect width="{}" height="6" rx="3"/></svg></h4>"#,
        usable.saturating_mul(96).checked_div(all).unwrap_or_default()
    )?;
    links(page, &pool.urls)?;
    if pool.members.is_empty() {
        page.write_str("<p class=\"empty\">No members: connections are reset.</p></section>\n")?;
        return Ok(());
    }
    let speaks_http = pool.members.iter().any(|it| it.http.is_some());
    let of = format_args!("{owner}, pool {label}");
    let columns =
        columns(&["Member", "State", "Weight", "Open"], speaks_http, &["Latency", "Errors", "Check"]);
    table(page, "Members", &of, &columns, |page| {
        pool.members.iter().try_for_each(|one| member(page, one, speaks_http, now))
    })?;
    page.write_str("</section>\n")
}

fn member(page: &mut String, member: &MemberView, speaks_http: bool, now: Time) -> fmt::Result {
    let state = member.state.as_str();
    write!(
        page,
        r#"<tr role="row" class="is-{state}" data-key="{}"><th role="rowheader" scope="row"><code>{}</code>"#,
        text(&member.address),
        breakable(&member.address)
    )?;
    if !member.name.is_empty() {
        write!(page, " <small>{}</small>", text(&member.name))?;
    }
    if member.backup {
        page.write_str(" <small>backup</small>")?;
    }
    page.write_str("</th>")?;
    let since = member.last_change.map(|at| format!(" <small>{}</small>", age(at, now)));
    let since = since.unwrap_or_default();
    cell(page, "State", &format!(r#"<span class="state {state}">{state}</span>{since}"#))?;
    cell(page, "Weight", &grouped(u64::from(member.weight)))?;
    cell(page, "Open", &grouped(member.sessions.current))?;
    match speaks_http {
        true => requests(page, member.http, &member.bytes, member.rate)?,
        false => traffic(page, &member.sessions, &member.bytes, member.rate)?,
    }
    cell(page, "Latency", &member.latency.map_or("–".to_owned(), millis))?;
    let retries = match member.retries {
        0 => String::new(),
        retries => format!(" <small>{} retried</small>", grouped(retries)),
    };
    cell(page, "Errors", &format!("{}{retries}", worrying(member.connect_errors)))?;
    let mut check = match member.check.description.as_str() {
        "" => "<small>not checked</small>".to_owned(),
        description => format!("<small>{}</small>", text(description)),
    };
    // An old error of a member that is well again would only frighten.
    if !member.last_error.is_empty() && !member.state.is_usable() {
        write!(check, r#" <span class="last-error">{}</span>"#, text(&member.last_error))?;
    }
    cell(page, "Check", &check)?;
    page.write_str("</tr>\n")
}

/// The columns that listeners and members have in common.
fn traffic(page: &mut String, sessions: &Sessions, bytes_: &ByteCounts, rate_: Option<Rate>) -> fmt::Result {
    cell(page, "Peak", &grouped(sessions.peak))?;
    cell(page, "Total", &grouped(sessions.total))?;
    cell(page, "New/s", &rate_.map_or("–".to_owned(), |r| rate(r.connections)))?;
    octets(page, bytes_)
}

/// The same, of HTTP. Of 4xx mostly clients are to blame; of 5xx somebody here is.
fn requests(
    page: &mut String,
    http: Option<HttpCounts>,
    bytes_: &ByteCounts,
    rate_: Option<Rate>,
) -> fmt::Result {
    let told = |of: fn(&HttpCounts) -> String| http.as_ref().map_or("–".to_owned(), of);
    cell(page, "Requests", &told(|it| grouped(it.requests)))?;
    let per_second = rate_.filter(|_| http.is_some()).map_or("–".to_owned(), |it| rate(it.requests));
    cell(page, "Req/s", &per_second)?;
    cell(page, "4xx", &told(|it| grouped(it.answers.refused)))?;
    cell(page, "5xx", &told(|it| worrying(it.answers.failed)))?;
    octets(page, bytes_)
}

fn octets(page: &mut String, octets: &ByteCounts) -> fmt::Result {
    cell(page, "In", &bytes(octets.incoming as f64))?;
    cell(page, "Out", &bytes(octets.outgoing as f64))
}

fn table(
    page: &mut String,
    what: &str,
    of: &impl fmt::Display,
    columns: &[&str],
    rows: impl FnOnce(&mut String) -> fmt::Result,
) -> fmt::Result {
    write!(
        page,
        r#"<div class="scroll"><table role="table" class="{}"><caption>{what} of {of}</caption><thead role="rowgroup"><tr role="row">"#,
        what.to_lowercase()
    )?;
    for column in columns {
        write!(page, r#"<th role="columnheader" scope="col">{column}</th>"#)?;
    }
    page.write_str("</tr></thead><tbody role=\"rowgroup\">\n")?;
    rows(page)?;
    page.write_str("</tbody></table></div>\n")
}

/// `content` is markup.
fn cell(page: &mut String, column: &str, content: &str) -> fmt::Result {
    write!(page, r#"<td role="cell" data-label="{column}">{content}</td>"#)
}

/// How long members took in the last seconds.
const LATENCY: &str = "until a member answered (HTTP) or took a connection (TCP), in the last seconds";

/// Where a browser finds it. What is no plain URL of the web is left out: a link does what it says.
fn links(page: &mut String, urls: &[String]) -> fmt::Result {
    let mut plain = urls.iter().filter(|url| is_plain_url(url)).peekable();
    if plain.peek().is_none() {
        return Ok(());
    }
    page.write_str(r#"<p class="urls">"#)?;
    for url in plain {
        write!(page, r#"<a href="{0}" target="_blank" rel="noopener noreferrer">{0}</a> "#, text(url))?;
    }
    page.write_str("</p>\n")
}

fn is_plain_url(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/[]".contains(&byte);
    rest.is_some_and(|it| !it.is_empty() && it.bytes().all(is_plain))
}

/// `0.4 ms`, `12 ms`, `1.5 s`.
fn millis(millis: f64) -> String {
    match millis {
        m if m < 9.95 => format!("{m:.1}\u{a0}ms"),
        m if m < 999.5 => format!("{m:.0}\u{a0}ms"),
        m => format!("{:.1}\u{a0}s", m / 1000.0),
    }
}

fn worrying(number: u64) -> String {
    match number {
        0 => "0".to_owned(),
        number => format!(r#"<span class="bad">{}</span>"#, grouped(number)),
    }
}

/// A long IPv6 address may be broken behind its colons rather than widen a phone's page.
fn breakable(address: &str) -> String {
    text(address).to_string().replace(':', ":<wbr>")
}

fn balance(balance: Balance) -> &'static str {
    match balance {
        Balance::RoundRobin => "round robin",
        Balance::LeastConnections => "least connections",
        Balance::RandomTwo => "random of two",
        Balance::SourceHash => "source hash",
        Balance::First => "first",
    }
}
