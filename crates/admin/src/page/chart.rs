//! The last hour as bars, one for each minute.

use std::fmt::{self, Write};

use super::html::grouped;
use crate::view::HistoryView;

const HEIGHT: u64 = 20;

/// `what`: requests, or connections.
pub(super) fn write(page: &mut String, history: &HistoryView, what: &str) -> fmt::Result {
    let sum = |of: &[u64]| of.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
    let most = history.requests.iter().chain(&history.errors).copied().max().unwrap_or_default().max(1);
    let errors = sum(&history.errors);
    page.write_str(
        r#"<p class="hour"><svg viewBox="0 0 60 20" preserveAspectRatio="none" aria-hidden="true"><path d=""#,
    )?;
    bars(page, &history.requests, most)?;
    page.write_str(r#""/><path class="failed" d=""#)?;
    bars(page, &history.errors, most)?;
    write!(page, r#""/></svg> <small>last hour: {} {what}, "#, grouped(sum(&history.requests)))?;
    match errors {
        0 => page.write_str("no errors")?,
        errors => write!(page, r#"<span class="bad">{} errors</span>"#, grouped(errors))?,
    }
    writeln!(page, "; {} a minute at most</small></p>", grouped(most))
}

/// What happened at all is seen, however little it is beside the rest.
fn bars(page: &mut String, counts: &[u64], most: u64) -> fmt::Result {
    for (minute, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let high = u128::from(*count).saturating_mul(HEIGHT.into()).div_ceil(most.into());
        write!(page, "M{minute} {HEIGHT}v-{high}h.8v{high}z")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_high_as_their_share_and_never_invisible() {
        let mut requests = vec![0; 60];
        (requests[3], requests[58], requests[59]) = (1, 500, 1_000);
        let mut errors = vec![0; 60];
        errors[59] = 2;
        let mut page = String::new();
        write(&mut page, &HistoryView { requests, errors }, "requests").expect("a String takes all");
        for part in [
            r#"<path d="M3 20v-1h.8v1zM58 20v-10h.8v10zM59 20v-20h.8v20z"/>"#,
            r#"<path class="failed" d="M59 20v-1h.8v1z"/>"#,
            "last hour: 1\u{2009}501 requests, <span class=\"bad\">2 errors</span>; 1\u{2009}000 a minute at most",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
        let mut page = String::new();
        let most = HistoryView { requests: vec![u64::MAX; 60], errors: vec![0; 60] };
        write(&mut page, &most, "requests").expect("a String takes all");
        assert!(page.contains("v-20h") && page.contains("no errors"), "{page}");
    }
}
