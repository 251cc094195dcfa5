//! nginx.conf: `http` with its upstreams and servers, and `stream`.
//!
//! ```text
//!   text ─► lexer ─► Directives (parse.rs, with what is included) ─► http.rs ─► server.rs ─► location.rs ─► Routes
//!                                                                 └► stream.rs ─► listeners     │
//!                                                                         words.rs, access.rs, headers.rs, upstream.rs
//! ```

mod access;
mod context;
mod guard;
mod headers;
mod http;
mod lexer;
mod location;
mod names;
mod order;
mod parse;
mod pass;
mod ports;
mod server;
mod stream;
mod upstream;
mod words;

use std::path::Path;

use anyhow::Result;

pub(super) use self::words::may_refuse;
use self::{
    context::Context,
    parse::{Directive, ParsedConfig},
    words::Class,
};
use super::{ImportResult, LARGEST, Text, text_of};

pub(super) fn read(file: &Path) -> Result<ImportResult> {
    let mut room = LARGEST;
    let text = text_of(file, &mut room)?;
    read_text(file, &text, room)
}

/// `room`: bytes that included files may have.
pub(super) fn read_text(file: &Path, text: &Text, room: u64) -> Result<ImportResult> {
    let ParsedConfig { directives, unread, included } = parse::parse(file, text, room)?;
    let mut context = Context::new(file);
    expect(&directives, &mut context);
    for it in included {
        context.report.expect(&it.place, &it.written());
        context.report.translated(&it.place);
    }
    for it in unread {
        context.report.left_out(&it.place, &it.why);
        if it.may_say_more {
            context.unread.insert(it.place);
        }
    }
    let of_http = ["server", "upstream", "map", "location"];
    // A file of conf.d has no `http` around it, and an example may have no `server`.
    if directives.iter().any(|it| of_http.contains(&&*it.name)) {
        http::read(&directives, &mut context);
    } else {
        for it in &directives {
            match (&*it.name, &it.block) {
                ("http", Some(block)) => {
                    context.report.translated(&it.place);
                    http::read(block, &mut context);
                }
                ("stream", Some(block)) => {
                    context.report.translated(&it.place);
                    stream::read(block, &mut context);
                }
                ("events", Some(_)) => {
                    context.report.no_effect(&it.place, "Seaway needs no settings of its event loop")
                }
                _ => match words::class(&it.name) {
                    // Beside http and stream, nothing refuses requests.
                    Class::Protects(_) => context.report.left_out(&it.place, "this directive is not known"),
                    _ => words::report_unread(it, &mut context.report),
                },
            }
            if !matches!(&*it.name, "http" | "stream") {
                cover(it.block.as_deref().unwrap_or_default(), &mut context);
            }
        }
    }
    Ok(context.into_imported())
}

/// All directives that are read one by one; what is within other blocks is judged with its block.
fn expect(directives: &[Directive], context: &mut Context) {
    for it in directives {
        context.report.expect(&it.place, &it.written());
        let is_read = ["http", "server", "location", "upstream", "stream"].contains(&&*it.name);
        if let Some(block) = it.block.as_ref().filter(|_| is_read) {
            expect(block, context);
        }
    }
}

/// What is within a block that is judged as a whole.
fn cover(block: &[Directive], context: &mut Context) {
    for it in block {
        context.report.translated(&it.place);
        cover(it.block.as_deref().unwrap_or_default(), context);
    }
}

/// Keeps servers by the name that `proxy_pass` uses.
fn keep_upstream(it: &Directive, servers: &[Directive], context: &mut Context) {
    context.report.translated(&it.place);
    context.upstreams.insert(it.arg(0).to_owned(), it.clone());
    for server in servers {
        context.report.translated(&server.place);
    }
}

/// Judges what no other part of the importer reads.
fn judge_rest(directives: &[Directive], read: &[&str], context: &mut Context) {
    for it in directives.iter().filter(|it| !read.contains(&&*it.name) && it.name != "include") {
        cover(it.block.as_deref().unwrap_or_default(), context);
        match words::class(&it.name) {
            Class::Read => context.report.translated(&it.place),
            _ if words::ends_nothing(it, directives) => {
                let why = "no effect: no if, set, return or rewrite stands after it in this block";
                context.report.no_effect(&it.place, why);
            }
            _ => words::report_unread(it, &mut context.report),
        }
    }
}

#[cfg(test)]
mod tests;
