//! The part of the page that changes: how things stand, the sums, the problems, the services.

use std::{
    fmt::{self, Write},
    time::{SystemTime, UNIX_EPOCH},
};

use seaway_model::{Problem, Time};

use super::{
    chart,
    filter::{Filter, FilteredView, ServiceTotals},
    html::{age, bytes, grouped, rate, text},
    services,
};
use crate::{
    process::Usage,
    view::{BgpPeerView, Readiness, View},
};

/// Problems beyond these are counted, not told: the first ones are enough to begin with.
const PROBLEMS: usize = 50;

pub(super) fn render(shown: &FilteredView, filter: &Filter, usage: Usage) -> String {
    let mut page = String::with_capacity(16 * 1024);
    // Writing to a String cannot fail.
    _ = write(&mut page, shown, filter, usage);
    page
}

fn write(page: &mut String, shown: &FilteredView, filter: &Filter, usage: Usage) -> fmt::Result {
    let view = &shown.view;
    let now = Time(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64));
    writeln!(page, r#"<main id="live" data-title="{}">"#, title(view))?;
    standing(page, view, &shown.sums)?;
    sums(page, &shown.sums)?;
    view.history.iter().try_for_each(|it| chart::write(page, it, "requests and connections"))?;
    problems(page, &view.problems)?;
    sessions(page, &view.bgp, now)?;
    services::write(page, shown, filter, now)?;
    about(page, view, usage, now)?;
    page.write_str("</main>\n")
}

/// For the browser's tab: a glance at twenty tabs should be enough.
fn title(view: &View) -> String {
    let problems = match view.problems.len() {
        0 => String::new(),
        1 => "1 problem · ".to_owned(),
        many => format!("{many} problems · "),
    };
    format!("{problems}Seaway · {}", text(&view.host))
}

/// One sentence that says whether to worry.
fn standing(page: &mut String, view: &View, sums: &ServiceTotals) -> fmt::Result {
    let out = match sums.members.saturating_sub(sums.usable) {
        0 => None,
        out => Some(format!("{out} of {} not usable", plural(sums.members, "member", "members"))),
    };
    let (class, sentence) = match (&view.readiness, view.readiness.not_ready_reason()) {
        (Readiness::Stopping, _) => ("warn", "Stopping: open connections are draining".to_owned()),
        (_, Some(why)) => ("warn", format!("Not ready: {}", text(why))),
        _ if sums.failed_listeners > 0 || sums.unanswered > 0 => {
            let failed = plural(sums.failed_listeners, "listener", "listeners");
            let unanswered = plural(sums.unanswered, "Service", "Services");
            let parts = [
                (sums.failed_listeners > 0).then(|| format!("{failed} not served")),
                (sums.unanswered > 0).then(|| format!("{unanswered} without a usable member")),
                out,
            ];
            ("bad", parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
        }
        _ if let Some(out) = out => ("warn", format!("Serving, with {out}")),
        _ if !view.problems.is_empty() => (
            "warn",
            format!("Serving, with {} to correct", plural(view.problems.len(), "problem", "problems")),
        ),
        _ if sums.services == 0 => ("good", "Ready, with nothing to serve yet".to_owned()),
        _ => ("good", "Everything is served".to_owned()),
    };
    writeln!(page, r#"<p class="standing {class}" role="status">{sentence}</p>"#)
}

fn sums(page: &mut String, sums: &ServiceTotals) -> fmt::Result {
    let traffic = |of: fn(&crate::view::Rate) -> f64| {
        sums.rate.as_ref().map_or("–".to_owned(), |rate| format!("{}/s", bytes(of(rate))))
    };
    let new = sums.rate.map_or("–".to_owned(), |r| rate(r.connections));
    page.write_str("<dl class=\"sums\">\n")?;
    for (label, value, note) in [
        ("Services", grouped(sums.services as u64), ""),
        ("Members in use", format!("{}<small> of {}</small>", sums.usable, sums.members), ""),
        ("Open connections", grouped(sums.open), ""),
        ("New per second", new, ""),
        ("From clients", traffic(|r| r.bytes_in), ""),
        ("To clients", traffic(|r| r.bytes_out), ""),
        ("Refused", grouped(sums.refused), "since start"),
        ("Errors", grouped(sums.errors), "since start"),
    ] {
        write!(page, "<div><dt>{label}</dt><dd>{value}")?;
        if !note.is_empty() {
            write!(page, "<small> {note}</small>")?;
        }
        page.write_str("</dd></div>\n")?;
    }
    page.write_str("</dl>\n")
}

fn problems(page: &mut String, problems: &[Problem]) -> fmt::Result {
    if problems.is_empty() {
        return Ok(());
    }
    writeln!(
        page,
        r#"<section class="problems" data-key="problems" aria-labelledby="problems"><h2 id="problems">Problems <span class="tally">{}</span></h2>"#,
        problems.len()
    )?;
    page.write_str("<ul>\n")?;
    for problem in problems.iter().take(PROBLEMS) {
        self::problem(page, problem)?;
    }
    page.write_str("</ul>\n")?;
    if let Some(more) = problems.len().checked_sub(PROBLEMS).filter(|&more| more > 0) {
        writeln!(page, r#"<p class="more">and {more} more, in <a href="/state">JSON</a></p>"#)?;
    }
    page.write_str("</section>\n")
}

fn problem(page: &mut String, problem: &Problem) -> fmt::Result {
    write!(
        page,
        r#"<li><p class="what"><span class="reason">{}</span> <b>{}</b>"#,
        problem.reason,
        text(&problem.object.to_string())
    )?;
    if !problem.field.is_empty() {
        write!(page, " <code>{}</code>", text(&problem.field))?;
    }
    write!(page, "</p><p>{}</p>", text(&problem.message))?;
    if let Some(place) = &problem.place {
        match place.line {
            0 => write!(page, r#"<p class="place">{}</p>"#, text(&place.file))?,
            line => write!(page, r#"<p class="place">{}:{line}:{}</p>"#, text(&place.file), place.column)?,
        }
    }
    // A sentence reads as one; a manifest to write keeps its lines.
    if problem.fix.contains('\n') {
        write!(page, r#"<pre class="fix" tabindex="0">{}</pre>"#, text(problem.fix.trim_end()))?;
    } else if !problem.fix.is_empty() {
        write!(page, r#"<p class="fix">{}</p>"#, text(&problem.fix))?;
    }
    page.write_str("</li>\n")
}

/// With routers, by BGP.
fn sessions(page: &mut String, peers: &[BgpPeerView], now: Time) -> fmt::Result {
    if peers.is_empty() {
        return Ok(());
    }
    page.write_str(
        r#"<section class="problems" data-key="bgp" aria-labelledby="bgp"><h2 id="bgp">BGP sessions</h2>"#,
    )?;
    page.write_str("\n<ul>\n")?;
    for it in peers {
        write!(
            page,
            r#"<li><p class="what"><b>{}</b> {} for {}, {} announced"#,
            text(&it.peer),
            text(&it.state),
            age(it.since, now),
            plural(it.prefixes as usize, "prefix", "prefixes"),
        )?;
        if let Some(is_up) = it.bfd_up {
            write!(page, ", BFD {}", if is_up { "up" } else { "down" })?;
        }
        page.write_str("</p>")?;
        if !it.detail.is_empty() {
            write!(page, "<p>{}</p>", text(&it.detail))?;
        }
        page.write_str("</li>\n")?;
    }
    page.write_str("</ul></section>\n")
}

fn about(page: &mut String, view: &View, usage: Usage, now: Time) -> fmt::Result {
    writeln!(
        page,
        r#"<p class="about">Seaway {} · up {} · {} · {} resident · {} of {} for clients · {} of {} descriptors</p>"#,
        text(&view.version),
        age(view.started, now),
        plural(view.workers as usize, "worker", "workers"),
        bytes(usage.resident_bytes as f64),
        bytes(view.memory.bytes as f64),
        bytes(view.memory.limit_bytes as f64),
        grouped(usage.descriptors),
        grouped(usage.descriptor_limit),
    )
}

pub(super) fn plural(number: usize, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number as u64), if number == 1 { one } else { many })
}
