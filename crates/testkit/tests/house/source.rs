//! One source file, and its words: names outside of comments and texts.

use std::{fs, path::Path};

pub(crate) struct Source {
    /// From the checkout's root.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Source {
    pub(crate) fn gather(folder: &Path, root: &Path, found: &mut Vec<Source>) {
        let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for path in entries.map(|it| it.expect("readable").path()) {
            if path.is_dir() {
                Source::gather(&path, root, found);
            } else if path.extension().is_some_and(|it| it == "rs") {
                // Somebody may be saving it just now.
                let Ok(text) = fs::read_to_string(&path) else { continue };
                let path =
                    path.strip_prefix(root).expect("within the checkout").to_string_lossy().into_owned();
                found.push(Source { path, text });
            }
        }
    }

    pub(crate) fn is_test(&self) -> bool {
        self.path.contains("/tests/") || self.path.ends_with("/tests.rs") || self.path.contains("/fuzz")
    }

    /// Names, each with its line; one that `::` follows is told with it (`fs::`).
    pub(crate) fn words(&self) -> Vec<(usize, String)> {
        words(&self.text)
    }

    /// The same without the items that are only compiled for tests.
    pub(crate) fn words_outside_tests(&self) -> Vec<(usize, String)> {
        words_of(self.tokens_outside_tests())
    }

    /// All but comments and the items that are only compiled for tests, each with its line.
    pub(crate) fn tokens_outside_tests(&self) -> Vec<(usize, Token)> {
        outside_tests(tokens(&self.text))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    /// A name; one that `::` follows has it with it.
    Word(String),
    /// What stands between the quotes of a text.
    Text(String),
    Sign(char),
}

fn words(text: &str) -> Vec<(usize, String)> {
    words_of(tokens(text))
}

fn words_of(tokens: Vec<(usize, Token)>) -> Vec<(usize, String)> {
    let word = |(line, token)| match token {
        Token::Word(word) => Some((line, word)),
        _ => None,
    };
    tokens.into_iter().filter_map(word).collect()
}

/// A file may go on after such an item: a `use`, a field, a function or a module.
fn outside_tests(tokens: Vec<(usize, Token)>) -> Vec<(usize, Token)> {
    let mut left = Vec::new();
    let mut rest = tokens.into_iter();
    while let Some(token) = rest.next() {
        left.push(token);
        let is_marked = left.iter().rev().zip(["]", ")", "test", "(", "cfg", "[", "#"]).filter(
            |((_, it), sign)| match it {
                Token::Word(word) => word == sign,
                Token::Sign(it) => sign.chars().eq([*it]),
                Token::Text(_) => false,
            },
        );
        if is_marked.count() == 7 {
            left.truncate(left.len() - 7);
            let mut depth = 0_usize;
            // Further attributes of the item end with a bracket, and the item itself does not.
            rest.by_ref().find(|(_, it)| {
                match it {
                    Token::Sign('(' | '[' | '{') => depth += 1,
                    Token::Sign(')' | ']' | '}') => depth = depth.saturating_sub(1),
                    _ => {}
                }
                depth == 0 && matches!(it, Token::Sign(';' | ',' | '}'))
            });
        }
    }
    left
}

fn tokens(text: &str) -> Vec<(usize, Token)> {
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |at| at + 2)
        } else if let Some(length) = raw_text(rest) {
            let body = rest[..length].trim_start_matches(['b', 'r', '#']).trim_end_matches('#');
            tokens.push((line, Token::Text(body.trim_matches('"').to_owned())));
            length
        } else if first == '"' {
            let length = closed(rest, '"');
            tokens.push((line, Token::Text(unescaped(rest.get(1..length - 1).unwrap_or_default()))));
            length
        } else if first == '\'' {
            character(rest)
        } else if is_part(first) {
            let length = rest.find(|it| !is_part(it)).unwrap_or(rest.len());
            let path = if rest[length..].starts_with("::") { "::" } else { "" };
            tokens.push((line, Token::Word(format!("{}{path}", &rest[..length]))));
            length
        } else {
            if !first.is_whitespace() {
                tokens.push((line, Token::Sign(first)));
            }
            first.len_utf8()
        };
        let (passed, left) = rest.split_at(length);
        line += passed.matches('\n').count();
        rest = left;
    }
    tokens
}

/// A text's lines joined as Rust joins them, and `\"` without its backslash.
fn unescaped(text: &str) -> String {
    let mut lines = text.split("\\\n");
    let mut joined = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        joined += line.trim_start();
    }
    joined.replace("\\\"", "\"")
}

fn is_part(it: char) -> bool {
    it.is_alphanumeric() || it == '_'
}

/// `r"…"`, `r#"…"#`, `br"…"`: its whole length.
fn raw_text(rest: &str) -> Option<usize> {
    let after = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r'))?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    let body = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let head = rest.len() - body.len();
    Some(body.find(&end).map_or(rest.len(), |at| head + at + end.len()))
}

/// The length up to the closing `quote`, escapes skipped.
fn closed(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, it) in rest.char_indices().skip(1) {
        match it {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            it if it == quote => return at + it.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

/// `'a'` and `'\n'` are characters, `'a` is a lifetime.
fn character(rest: &str) -> usize {
    let mut after = rest.chars().skip(1);
    match (after.next(), after.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => closed(rest, '\''),
        _ => 1,
    }
}

#[test]
fn words_are_names_outside_of_comments_and_texts() {
    let text = "use std::fs::File; // unsafe\n/* unsafe\n */ let x: &'a str = \"unsafe \\\" unsafe\";\nr#\"unsafe \" unsafe\"#; b'\"'; '\\''; unsafe { f() }";
    let told: Vec<(usize, &str)> = vec![
        (1, "use"),
        (1, "std::"),
        (1, "fs::"),
        (1, "File"),
        (3, "let"),
        (3, "x"),
        (3, "a"),
        (3, "str"),
        (4, "b"),
        (4, "unsafe"),
        (4, "f"),
    ];
    let found = words(text);
    assert_eq!(found.iter().map(|(line, word)| (*line, &**word)).collect::<Vec<_>>(), told);
}

#[test]
fn what_follows_an_item_for_tests_is_seen() {
    let text = "#[cfg(test)]\nuse a::b;\nfn f() { #[cfg(test)] { g(1); } h() }\n#[cfg(test)]\n#[allow(x)]\nmod c { fn d() {} }\nstruct E { #[cfg(test)] i: u8, j: u8 }\n#[cfg(test)]\nmod tests;";
    let source = Source { path: String::new(), text: text.to_owned() };
    let found: Vec<String> = source.words_outside_tests().into_iter().map(|(_, word)| word).collect();
    assert_eq!(found, ["fn", "f", "h", "struct", "E", "j", "u8"]);
}
