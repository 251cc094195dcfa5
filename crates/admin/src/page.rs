//! The status page: one HTML, whole without JavaScript, told anew every second with it.
//!
//! There is one renderer. The script asks for the same page again (`?part=live`) and moves what changed into the
//! document, so that what was opened, selected or scrolled to stays so.

mod chart;
mod filter;
pub(crate) mod fuzz;
mod html;
mod live;
mod services;

use base64::{Engine, engine::general_purpose::STANDARD};
use hyper::header::HeaderValue;
use sha2::{Digest, Sha256};

pub(crate) use self::filter::{Filter, FilteredView};
use self::html::text;
use crate::process::Usage;

const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/live.js");
/// A wave. It needs no file of its own and no request.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'%3E%3Crect \
                    width='32' height='32' rx='8' fill='%230e7490'/%3E%3Cpath d='M4 13q4-5 8 0t8 0 8 0M4 20q4-5 8 \
                    0t8 0 8 0' fill='none' stroke='%23fff' stroke-width='2.6' stroke-linecap='round'/%3E%3C/svg%3E";

pub(crate) struct Page {
    policy: HeaderValue,
}

impl Page {
    #[allow(clippy::expect_used, reason = "the text is made of constants and digests in base64")]
    pub(crate) fn new() -> Page {
        let digest = |content: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(content)));
        let policy = format!(
            "default-src 'none'; style-src {}; script-src {}; img-src data:; connect-src 'self'; form-action \
             'self'; base-uri 'none'; frame-ancestors 'none'",
            digest(STYLE),
            digest(SCRIPT)
        );
        Page { policy: HeaderValue::try_from(policy).expect("a policy is plain ASCII") }
    }

    /// Allows the style and the script of this page and nothing else, whatever a name might smuggle in.
    pub(crate) fn content_security_policy(&self) -> &HeaderValue {
        &self.policy
    }

    pub(crate) fn render(&self, shown: &FilteredView, filter: &Filter, usage: Usage) -> String {
        let live = live::render(shown, filter, usage);
        if filter.live_part {
            return live;
        }
        let (host, sought) = (text(&shown.view.host), text(&filter.sought));
        format!(
            r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Seaway · {host}</title>
<link rel="icon" href="{ICON}">
<noscript><meta http-equiv="refresh" content="5"></noscript>
<style>{STYLE}</style>
</head>
<body>
<header class="top">
<a class="brand" href="/"><svg viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="8"/><path d="M4 13q4-5 8 0t8 0 8 0M4 20q4-5 8 0t8 0 8 0"/></svg><span>Seaway</span></a>
<h1 class="host">{host}</h1>
<span class="pulse" id="pulse" role="status"></span>
<form action="/" role="search"><input type="search" name="q" value="{sought}" placeholder="Filter services" aria-label="Filter services by name or address" autocomplete="off" spellcheck="false"></form>
</header>
{live}
<footer>
<nav aria-label="Other views"><a href="/state">JSON</a><a href="/;csv">CSV</a><a href="/metrics">Metrics</a><a href="/ready">Readiness</a><a href="/log">Log level</a></nav>
</footer>
<script>{SCRIPT}</script>
</body>
</html>
"#
        )
    }
}
