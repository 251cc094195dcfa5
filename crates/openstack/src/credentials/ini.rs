//! INI as the library behind `cloud.conf` (gcfg, which follows git's configuration) reads it, with the line of
//! everything.
//!
//! ```text
//!     [Section "sub section"]     ; names do not care for case, sub sections do
//!     key = value                 # a comment, unless it is quoted
//!     key = "with # and ; \" \\"  quotes may begin and end anywhere in a value
//!     flag                        a key alone is true
//!     long = one \
//!            line
//! ```

use std::fmt;

use secrecy::{ExposeSecret, SecretString};

/// A text of sections, in order. The same section may come several times.
#[derive(Clone, Debug, Default)]
pub struct Ini {
    pub sections: Vec<Section>,
}

#[derive(Clone, Debug)]
pub struct Section {
    pub name: String,
    pub sub: Option<String>,
    pub line: usize,
    pub entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub key: String,
    pub line: usize,
    /// Any of them may be a password.
    value: SecretString,
}

/// Why a text is no INI, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IniError {
    pub line: usize,
    pub what: &'static str,
}

impl Ini {
    pub fn parse(text: &str) -> Result<Ini, IniError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut ini = Ini::default();
        let mut lines = text.split('\n').enumerate();
        while let Some((index, line)) = lines.next() {
            let at = index.saturating_add(1);
            let broken = |what| IniError { line: at, what };
            let line = line.strip_suffix('\r').unwrap_or(line).trim_start();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(header) = line.strip_prefix('[') {
                ini.sections.push(
                    header_of(header, at).ok_or(broken("not a section: write [Name] or [Name \"sub\"]"))?,
                );
                continue;
            }
            let end = line
                .find(|c: char| !(c.is_alphanumeric() || matches!(c, '-' | '_' | '.')))
                .unwrap_or(line.len());
            let (key, rest) = line.split_at(end);
            let rest = rest.trim_start();
            let value = match rest.strip_prefix('=') {
                _ if key.is_empty() => {
                    return Err(broken(
                        "the line does not begin with a key (letters, digits, `-`, `_`, `.`), a [section], or `#` or \
                             `;` for a comment",
                    ));
                }
                Some(value) => value_of(value, &mut lines).map_err(broken)?,
                None if rest.is_empty() || rest.starts_with(['#', ';']) => "true".to_owned(),
                None => return Err(broken("write `=` between key and value")),
            };
            let Some(section) = ini.sections.last_mut() else {
                return Err(broken("the key is not in a [section]: write the section above it"));
            };
            section.entries.push(Entry { key: key.to_owned(), line: at, value: value.into() });
        }
        Ok(ini)
    }

    /// All sections of this name without a sub section, as if they were one.
    pub fn entries(&self, section: &str) -> impl Iterator<Item = &Entry> {
        self.subsections(section).filter(|it| it.sub.is_none()).flat_map(|it| &it.entries)
    }

    /// `[LoadBalancerClass "gold"]`, `[LoadBalancerClass "silver"]`, …
    pub fn subsections(&self, name: &str) -> impl Iterator<Item = &Section> {
        self.sections.iter().filter(move |it| it.name.eq_ignore_ascii_case(name))
    }

    /// The last one counts, as gcfg has it.
    pub fn entry(&self, section: &str, key: &str) -> Option<&Entry> {
        self.entries(section).filter(|it| it.key.eq_ignore_ascii_case(key)).last()
    }
}

impl Entry {
    pub fn value(&self) -> &str {
        self.value.expose_secret()
    }
}

impl fmt::Display for IniError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

/// Of what stands after the `[`.
fn header_of(header: &str, line: usize) -> Option<Section> {
    let end = header.find(|c: char| !(c.is_alphanumeric() || matches!(c, '-' | '_' | '.')))?;
    let (name, rest) = header.split_at(end);
    let rest = rest.trim_start();
    let (sub, rest) = match rest.strip_prefix('"') {
        None => (None, rest),
        Some(quoted) => {
            let mut sub = String::new();
            let mut chars = quoted.chars();
            loop {
                match chars.next()? {
                    '"' => break,
                    '\\' => sub.push(chars.next()?),
                    c => sub.push(c),
                }
            }
            (Some(sub), chars.as_str().trim_start())
        }
    };
    let after = rest.strip_prefix(']')?.trim();
    let fine = !name.is_empty() && (after.is_empty() || after.starts_with(['#', ';']));
    fine.then(|| Section { name: name.to_owned(), sub, line, entries: Vec::new() })
}

/// Of what stands after the `=`, and of the lines below that a backslash adds to it.
fn value_of<'t>(
    first: &'t str,
    lines: &mut impl Iterator<Item = (usize, &'t str)>,
) -> Result<String, &'static str> {
    let mut value = String::new();
    // Blanks at the end count only if they are quoted.
    let (mut quoted, mut solid) = (false, 0);
    let mut chars = first.trim_start().chars();
    loop {
        match chars.next() {
            None if quoted => return Err("a quote is not closed"),
            None => break,
            Some('#' | ';') if !quoted => break,
            Some('"') => {
                quoted = !quoted;
                solid = value.len();
            }
            Some('\\') => {
                match chars.next() {
                    Some(c @ ('\\' | '"')) => value.push(c),
                    Some('n') => value.push('\n'),
                    Some('t') => value.push('\t'),
                    Some('b') => value.push('\u{8}'),
                    // Without the character: the value may be a password.
                    Some(_) => {
                        return Err(
                            "after a backslash only \\, \", n, t or b may stand: write \\\\ for a backslash",
                        );
                    }
                    None => match lines.next() {
                        Some((_, next)) => chars = next.strip_suffix('\r').unwrap_or(next).chars(),
                        None => return Err("a backslash at the end of the file continues nothing"),
                    },
                }
                solid = value.len();
            }
            Some(c) => {
                value.push(c);
                if quoted || !c.is_whitespace() {
                    solid = value.len();
                }
            }
        }
    }
    value.truncate(solid);
    Ok(value)
}

#[cfg(test)]
mod tests;
