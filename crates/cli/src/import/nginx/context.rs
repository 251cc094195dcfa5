//! What is known while a configuration is read.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use super::{
    super::{
        ImportResult, beside,
        proxy::Proxy,
        report::{DirectiveLocation, Report},
    },
    parse::Directive,
};

pub(super) struct Context {
    file: PathBuf,
    pub(super) report: Report,
    pub(super) proxy: Proxy,
    /// `upstream NAME { … }`, of `http` or of `stream`.
    pub(super) upstreams: BTreeMap<String, Directive>,
    /// `map $ssl_preread_server_name $name { … }`, by the name that is set.
    pub(super) maps: BTreeMap<String, Directive>,
    /// Includes whose directives are not known.
    pub(super) unread: BTreeSet<DirectiveLocation>,
    /// `if`s that redirect to https, which is translated.
    pub(super) to_https: BTreeSet<DirectiveLocation>,
    /// HSTS that some routes have: places in `proxy.routes`, and seconds.
    pub(super) hsts: Vec<(usize, String)>,
}

impl Context {
    pub(super) fn new(file: &Path) -> Context {
        Context {
            file: file.to_owned(),
            report: Report::default(),
            proxy: Proxy::default(),
            upstreams: BTreeMap::new(),
            maps: BTreeMap::new(),
            unread: BTreeSet::new(),
            to_https: BTreeSet::new(),
            hsts: Vec::new(),
        }
    }

    /// Where a file is that the configuration names.
    pub(super) fn path(&self, named: &str) -> PathBuf {
        beside(&self.file, named)
    }

    pub(super) fn into_imported(self) -> ImportResult {
        ImportResult { proxy: self.proxy, report: self.report }
    }
}

/// Blocks around a directive, the outermost first. An inner block that says something replaces what outer ones say of it.
#[derive(Clone)]
pub(super) struct Scopes<'d>(Vec<&'d [Directive]>);

impl<'d> Scopes<'d> {
    pub(super) fn new(outermost: &'d [Directive]) -> Scopes<'d> {
        Scopes(vec![outermost])
    }

    pub(super) fn within(&self, block: &'d [Directive]) -> Scopes<'d> {
        let mut all = self.0.clone();
        all.push(block);
        Scopes(all)
    }

    /// Those of the innermost block that has any.
    pub(super) fn all(&self, names: &[&str]) -> Vec<&'d Directive> {
        let of = |block: &&'d [Directive]| -> Vec<&'d Directive> {
            block.iter().filter(|it| names.contains(&&*it.name)).collect()
        };
        self.0.iter().rev().map(of).find(|it| !it.is_empty()).unwrap_or_default()
    }

    pub(super) fn one(&self, name: &str) -> Option<&'d Directive> {
        self.all(&[name]).first().copied()
    }

    /// The argument of one that is there.
    pub(super) fn argument(&self, name: &str) -> &'d str {
        self.one(name).map_or("", |it| it.arg(0))
    }

    /// The last one of the innermost block that has any: of several that are done one after the other, it is what remains.
    pub(super) fn last(&self, is: impl Fn(&Directive) -> bool) -> Option<&'d Directive> {
        self.0.iter().rev().find_map(|block| block.iter().rev().find(|it| is(it)))
    }

    /// Whether it stands in the outermost block, and that is one of servers.
    pub(super) fn is_of_all_servers(&self, it: &Directive) -> bool {
        let outermost = self.0.first().copied().unwrap_or_default();
        outermost.iter().any(|of| of.place == it.place) && !outermost.iter().any(|of| of.name == "location")
    }

    /// The block that it stands in.
    pub(super) fn block_of(&self, it: &Directive) -> &'d [Directive] {
        let has = |block: &&&'d [Directive]| block.iter().any(|of| of.place == it.place);
        self.0.iter().find(has).copied().unwrap_or_default()
    }

    /// In all blocks, the innermost first.
    pub(super) fn everywhere(&self) -> impl Iterator<Item = &'d Directive> + '_ {
        self.0.iter().rev().flat_map(|it| it.iter())
    }
}
