//! Directives as a tree, with the files that are included in their places.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

use anyhow::{Result, bail};

use super::{
    super::{Text, report::DirectiveLocation, text_of},
    lexer::{Lexer, Token},
};

/// Of blocks within each other, and of files that include each other.
const DEEPEST: usize = 32;
const MOST_FILES: usize = 1000;

#[derive(Clone, Debug)]
pub(super) struct Directive {
    pub(super) place: DirectiveLocation,
    pub(super) name: String,
    pub(super) args: Vec<String>,
    pub(super) block: Option<Vec<Directive>>,
}

impl Directive {
    /// As it stands in a report.
    pub(super) fn written(&self) -> String {
        let mut text = self.name.clone();
        for it in &self.args {
            text.push(' ');
            text.push_str(it);
        }
        text
    }

    pub(super) fn arg(&self, at: usize) -> &str {
        self.args.get(at).map_or("", String::as_str)
    }
}

/// What was read.
pub(super) struct ParsedConfig {
    pub(super) directives: Vec<Directive>,
    pub(super) unread: UnresolvedIncludes,
    /// Includes whose directives stand in their places.
    pub(super) included: Vec<Directive>,
}

/// Includes that lead to nothing.
type UnresolvedIncludes = Vec<UnresolvedInclude>;

pub(super) struct UnresolvedInclude {
    pub(super) place: DirectiveLocation,
    pub(super) why: String,
    /// Whether there may be directives in it: a pattern that no file matches has none.
    pub(super) may_say_more: bool,
}

struct ParserState {
    /// Where relative names begin.
    main: PathBuf,
    room: u64,
    files: usize,
    nth: u32,
    unread: UnresolvedIncludes,
    read: Vec<Directive>,
}

pub(super) fn parse(file: &Path, text: &Text, room: u64) -> Result<ParsedConfig> {
    let mut reading =
        ParserState { main: file.to_owned(), room, files: 1, nth: 0, unread: Vec::new(), read: Vec::new() };
    let directives = reading.file(text, 0)?;
    Ok(ParsedConfig { directives, unread: reading.unread, included: reading.read })
}

impl ParserState {
    fn file(&mut self, text: &Text, depth: usize) -> Result<Vec<Directive>> {
        let mut lexer = Lexer::new(&text.text);
        let directives = self.block(&mut lexer, text, depth, false)?;
        Ok(directives)
    }

    fn block(
        &mut self,
        lexer: &mut Lexer<'_>,
        text: &Text,
        depth: usize,
        is_within: bool,
    ) -> Result<Vec<Directive>> {
        let mut directives = Vec::new();
        let mut words: Vec<(u32, String)> = Vec::new();
        loop {
            let next = match lexer.next() {
                Ok(next) => next,
                Err((line, why)) => bail!("{}:{line}: {why}", text.name),
            };
            let Some((line, token)) = next else {
                if let Some((line, word)) = words.first() {
                    bail!("{}:{line}: {word}: the file ends before \";\" or \"{{\"", text.name);
                }
                if is_within {
                    bail!("{}: the file ends before a \"}}\"", text.name);
                }
                return Ok(directives);
            };
            match token {
                Token::Word(word) => words.push((line, word)),
                Token::Close if words.is_empty() && is_within => return Ok(directives),
                Token::End if !words.is_empty() => {
                    let directive = self.directive(&mut words, text, None);
                    match &*directive.name {
                        "include" => directives.extend(self.included(directive, depth)?),
                        _ => directives.push(directive),
                    }
                }
                Token::Open if !words.is_empty() => {
                    if depth >= DEEPEST {
                        bail!(
                            "{}:{line}: blocks and includes are nested deeper than {DEEPEST} levels",
                            text.name
                        );
                    }
                    let mut directive = self.directive(&mut words, text, Some(Vec::new()));
                    if directive.name.ends_with("_by_lua_block") {
                        if lexer.raw().is_none() {
                            bail!("{}:{line}: a block that does not end", text.name);
                        }
                    } else {
                        directive.block = Some(self.block(lexer, text, depth.saturating_add(1), true)?);
                    }
                    directives.push(directive);
                }
                Token::End | Token::Open | Token::Close | Token::Raw => {
                    let sign = match token {
                        Token::End => ";",
                        Token::Open => "{",
                        _ => "}",
                    };
                    bail!("{}:{line}: {sign:?} is not expected here", text.name);
                }
            }
        }
    }

    fn directive(
        &mut self,
        words: &mut Vec<(u32, String)>,
        text: &Text,
        block: Option<Vec<Directive>>,
    ) -> Directive {
        let line = words.first().map_or(0, |it| it.0);
        let mut all = std::mem::take(words).into_iter().map(|it| it.1);
        let name = all.next().unwrap_or_default();
        self.nth = self.nth.saturating_add(1);
        let place = DirectiveLocation { file: text.name.clone(), line, nth: self.nth };
        Directive { place, name, args: all.collect(), block }
    }

    fn included(&mut self, include: Directive, depth: usize) -> Result<Vec<Directive>> {
        let written = include.arg(0);
        let path = super::super::beside(&self.main, written);
        let (mut paths, is_readable) = matching(&path);
        paths.sort();
        let not_read = |why: String, may_say_more: bool| UnresolvedInclude {
            place: include.place.clone(),
            why,
            may_say_more,
        };
        if !is_readable {
            let why = "a folder of the pattern does not exist on this machine, or cannot be read: run the import on the \
                 machine that has it";
            self.unread.push(not_read(why.to_owned(), true));
        } else if paths.is_empty() {
            let is_pattern = written.contains(['*', '?']);
            let why = match is_pattern {
                true => "no file matches here; run this where the files are",
                false => "the file does not exist on this machine: run the import on the machine that has it",
            };
            self.unread.push(not_read(why.to_owned(), !is_pattern));
        }
        if paths.is_empty() {
            return Ok(vec![include]);
        }
        if depth >= DEEPEST {
            bail!("{}: includes are nested deeper than {DEEPEST} levels", include.place);
        }
        let mut all = Vec::new();
        for path in paths {
            self.files = self.files.saturating_add(1);
            if self.files > MOST_FILES {
                bail!("{}: more than {MOST_FILES} files are included", include.place);
            }
            match text_of(&path, &mut self.room) {
                Ok(text) => all.extend(self.file(&text, depth.saturating_add(1))?),
                Err(error) if error.downcast_ref::<std::io::Error>().is_some() => {
                    self.unread.push(not_read(format!("{error:#}"), true));
                }
                Err(error) => return Err(error),
            }
        }
        match self.unread.iter().any(|it| it.place == include.place) {
            true => all.push(include),
            // Its directives are in its place.
            false => self.read.push(include),
        }
        Ok(all)
    }
}

/// Files whose path is like this one, where `*` and `?` stand for letters of a name; and whether all folders could be read.
fn matching(path: &Path) -> (Vec<PathBuf>, bool) {
    let mut is_readable = true;
    let mut found = vec![PathBuf::new()];
    for part in path.components() {
        let pattern = match part {
            Component::Normal(name) => name.to_string_lossy().into_owned(),
            other => {
                found.iter_mut().for_each(|it| it.push(other));
                continue;
            }
        };
        if !pattern.contains(['*', '?']) {
            found.iter_mut().for_each(|it| it.push(&pattern));
            continue;
        }
        let below = |folder: &PathBuf| {
            let entries = fs::read_dir(folder);
            is_readable &= entries.is_ok();
            let entries = entries.into_iter().flatten().flatten();
            let fits = entries.filter(|it| {
                let name = it.file_name().to_string_lossy().into_owned();
                (pattern.starts_with('.') || !name.starts_with('.')) && is_like(&name, &pattern)
            });
            fits.map(|it| it.path()).take(MOST_FILES).collect::<Vec<_>>()
        };
        found = found.iter().flat_map(below).take(MOST_FILES).collect();
    }
    found.retain(|it| it.is_file());
    (found, is_readable)
}

fn is_like(name: &str, pattern: &str) -> bool {
    let (name, pattern): (Vec<char>, Vec<char>) = (name.chars().collect(), pattern.chars().collect());
    // Which beginnings of the pattern fit what was read of the name.
    let mut fits = vec![false; pattern.len().saturating_add(1)];
    let star = |fits: &mut Vec<bool>| {
        for (at, it) in pattern.iter().enumerate() {
            if *it == '*'
                && fits.get(at) == Some(&true)
                && let Some(next) = fits.get_mut(at.saturating_add(1))
            {
                *next = true;
            }
        }
    };
    if let Some(first) = fits.first_mut() {
        *first = true;
    }
    star(&mut fits);
    for letter in name {
        let mut next = vec![false; fits.len()];
        for (at, it) in pattern.iter().enumerate() {
            if fits.get(at) != Some(&true) {
                continue;
            }
            let to = if *it == '*' { at } else { at.saturating_add(1) };
            if (*it == '*' || *it == '?' || *it == letter)
                && let Some(slot) = next.get_mut(to)
            {
                *slot = true;
            }
        }
        star(&mut next);
        fits = next;
    }
    fits.last() == Some(&true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks_stand_for_letters() {
        for (name, pattern, fits) in [
            ("shop.conf", "*.conf", true),
            ("shop.conf", "*", true),
            ("shop.conf", "s?op.c*f", true),
            ("shop.conf.bak", "*.conf", false),
            ("", "*", true),
            ("a", "?", true),
            ("ab", "?", false),
        ] {
            assert_eq!(is_like(name, pattern), fits, "{name} {pattern}");
        }
    }
}
