//! Lines as HAProxy takes them apart, by sections.

use anyhow::{Result, bail};

use super::super::{Text, report::DirectiveLocation};

const SECTIONS: [&str; 20] = [
    "global",
    "defaults",
    "frontend",
    "backend",
    "listen",
    "userlist",
    "peers",
    "resolvers",
    "mailers",
    "program",
    "cache",
    "http-errors",
    "ring",
    "log-forward",
    "fcgi-app",
    "crt-store",
    "traces",
    "acme",
    "log-profile",
    "dynamic-update",
];

#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) place: DirectiveLocation,
    pub(super) words: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) place: DirectiveLocation,
    pub(super) kind: String,
    pub(super) name: String,
    more: Vec<String>,
    pub(super) lines: Vec<Line>,
}

impl Line {
    pub(super) fn word(&self, at: usize) -> &str {
        self.words.get(at).map_or("", String::as_str)
    }

    pub(super) fn after(&self, at: usize) -> &[String] {
        self.words.get(at..).unwrap_or_default()
    }

    pub(super) fn written(&self) -> String {
        self.words.join(" ")
    }
}

impl Section {
    pub(super) fn written(&self) -> String {
        format!("{} {}", self.kind, self.name).trim().to_owned()
    }

    /// `backend web from common`
    pub(super) fn from(&self) -> Option<&str> {
        let at = self.more.iter().position(|it| it == "from")?;
        self.more.get(at.saturating_add(1)).map(String::as_str)
    }

    /// `frontend web *:80`, or `listen *:80`: an address in place of a `bind`, as HAProxy had it before 1.7.
    pub(super) fn has_address(&self) -> bool {
        let listens = matches!(&*self.kind, "frontend" | "listen");
        listens && (self.name.contains(':') || self.more.get(1).is_some_and(|it| it != "from"))
    }

    pub(super) fn with<'s>(&'s self, word: &'s str) -> impl Iterator<Item = &'s Line> {
        self.lines.iter().filter(move |it| it.word(0) == word)
    }
}

pub(super) fn parse(text: &Text) -> Result<Vec<Section>> {
    let mut sections: Vec<Section> = Vec::new();
    for (number, line) in (1_u32..).zip(text.text.lines()) {
        let place = DirectiveLocation { file: text.name.clone(), line: number, nth: 0 };
        let Some(words) = words(line) else { bail!("{place}: a quote that does not end") };
        let Some(first) = words.first() else { continue };
        if SECTIONS.contains(&first.as_str()) {
            sections.push(Section {
                place,
                kind: first.clone(),
                name: words.get(1).cloned().unwrap_or_default(),
                more: words.get(1..).unwrap_or_default().to_vec(),
                lines: Vec::new(),
            });
            continue;
        }
        let prints = [".notice", ".warning", ".diag"].contains(&first.as_str());
        if prints && sections.is_empty() {
            continue;
        }
        if first.starts_with('.') && !prints {
            bail!(
                "{place}: {first}: conditions of the preprocessor (.if) are not read; replace them by the lines that apply"
            );
        }
        match sections.last_mut() {
            Some(section) => section.lines.push(Line { place, words }),
            None => bail!("{place}: {first}: a section such as \"global\" or \"frontend\" has to come first"),
        }
    }
    Ok(sections)
}

/// `None`: a quote does not end.
fn words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = line.chars();
    while let Some(it) = rest.next() {
        match it {
            '#' => break,
            '\\' => word.get_or_insert_default().extend(rest.next().map(|it| match it {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                it => it,
            })),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next()? {
                        '\'' => break,
                        it => word.push(it),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next()? {
                        '"' => break,
                        '\\' => match rest.next()? {
                            it @ ('"' | '\\' | '$') => word.push(it),
                            it => word.extend(['\\', it]),
                        },
                        it => word.push(it),
                    }
                }
            }
            it if it.is_whitespace() => words.extend(word.take()),
            it => word.get_or_insert_default().push(it),
        }
    }
    words.extend(word);
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn quotes_escapes_and_comments_are_those_of_haproxy() {
        for (line, expected) in [
            ("bind *:80 # all", &["bind", "*:80"][..]),
            (r#"  acl a hdr(host) -i "a b" 'c d'"#, &["acl", "a", "hdr(host)", "-i", "a b", "c d"]),
            (r"a\ b c\#d", &["a b", "c#d"]),
            (r#"path_reg "\.php$""#, &["path_reg", r"\.php$"]),
            ("", &[]),
        ] {
            assert_eq!(words(line).expect("it ends"), expected, "{line}");
        }
        assert_eq!(words("a 'b"), None);
    }
}
