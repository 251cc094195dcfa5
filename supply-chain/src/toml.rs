//! The part of TOML that lock files and advisories are written in: tables of texts and of lists of texts.
//!
//! Other values are read over. What is no TOML at all is an error with its line.

use std::collections::BTreeMap;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("line {line}: {what}")]
pub struct TomlError {
    pub line: usize,
    pub what: &'static str,
}

/// One `[name]` or `[[name]]`; what stands above all of them has the name "".
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) line: usize,
    entries: BTreeMap<String, Value>,
}

#[derive(Debug, PartialEq, Eq)]
enum Value {
    Text(String),
    List(Vec<String>),
    Other,
}

impl Table {
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        match self.entries.get(key) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// `None` also where there is something else than a list of texts.
    pub(crate) fn list(&self, key: &str) -> Option<&[String]> {
        match self.entries.get(key) {
            Some(Value::List(list)) => Some(list),
            _ => None,
        }
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }
}

/// All tables, in their order.
pub(crate) fn parse(text: &str) -> Result<Vec<Table>, TomlError> {
    let mut reader = Reader { text, at: 0 };
    let mut tables = vec![Table { line: 1, ..Table::default() }];
    loop {
        reader.skip_blank();
        if reader.rest().is_empty() {
            return Ok(tables);
        }
        if reader.take("[") {
            let line = reader.line();
            let double = reader.take("[");
            let name = reader.until(']')?.trim().to_owned();
            if !reader.take(if double { "]]" } else { "]" }) {
                return Err(reader.error("the name of a table does not end"));
            }
            tables.push(Table { name, line, entries: BTreeMap::new() });
        } else {
            let (key, value) = reader.entry()?;
            let table = tables.last_mut().expect("there is the first one");
            if table.entries.insert(key, value).is_some() {
                return Err(reader.error("the key is there twice"));
            }
        }
        reader.end_of_line()?;
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn line(&self) -> usize {
        self.text[..self.at].matches('\n').count() + 1
    }

    fn error(&self, what: &'static str) -> TomlError {
        TomlError { line: self.line(), what }
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.rest().starts_with(word);
        self.at += if found { word.len() } else { 0 };
        found
    }

    fn skip(&mut self, skipped: impl Fn(char) -> bool) {
        self.at = self.text.len() - self.rest().trim_start_matches(skipped).len();
    }

    fn skip_spaces(&mut self) {
        self.skip(|it| it == ' ' || it == '\t');
    }

    /// Spaces, line ends, comments.
    fn skip_blank(&mut self) {
        loop {
            self.skip(char::is_whitespace);
            if !self.rest().starts_with('#') {
                return;
            }
            self.skip(|it| it != '\n');
        }
    }

    fn end_of_line(&mut self) -> Result<(), TomlError> {
        self.skip_spaces();
        if self.rest().starts_with('#') {
            self.skip(|it| it != '\n');
        }
        if self.rest().is_empty() || self.take("\n") || self.take("\r\n") {
            Ok(())
        } else {
            Err(self.error("more stands behind the value"))
        }
    }

    fn until(&mut self, end: char) -> Result<&'a str, TomlError> {
        let found = self.rest().split(['\n', end]).next().unwrap_or_default();
        if !self.rest()[found.len()..].starts_with(end) {
            return Err(self.error("a character is missing at the end of this line"));
        }
        self.at += found.len();
        Ok(found)
    }

    fn entry(&mut self) -> Result<(String, Value), TomlError> {
        let key = if self.rest().starts_with(['"', '\'']) {
            let key = self.text_value()?;
            self.skip_spaces();
            key
        } else {
            self.until('=')?.trim().to_owned()
        };
        if key.is_empty() || !self.take("=") {
            return Err(self.error("a key and \"=\" are expected here"));
        }
        self.skip_spaces();
        Ok((key, self.value()?))
    }

    fn value(&mut self) -> Result<Value, TomlError> {
        match self.rest().chars().next() {
            Some('"' | '\'') => Ok(Value::Text(self.text_value()?)),
            Some('[') => self.list_value(),
            Some('{') => self.other('{', '}'),
            Some(it) if it.is_ascii_alphanumeric() || "+-.".contains(it) => {
                self.skip(|it| it.is_ascii_alphanumeric() || "+-._:".contains(it));
                Ok(Value::Other)
            }
            _ => Err(self.error("a value is expected here")),
        }
    }

    /// `"…"`, `'…'`, `"""…"""`, `'''…'''`.
    fn text_value(&mut self) -> Result<String, TomlError> {
        let escapes = self.rest().starts_with('"');
        let quote = if escapes { "\"" } else { "'" };
        let long = quote.repeat(3);
        let end = if self.take(&long) { &*long } else { quote };
        if end == quote {
            self.take(quote);
        }
        let mut text = String::new();
        while !self.take(end) {
            let it = self.rest().chars().next().ok_or_else(|| self.error("a text does not end"))?;
            if it == '\n' && end == quote {
                return Err(self.error("a text does not end on its line"));
            }
            self.at += it.len_utf8();
            text.push(if it == '\\' && escapes { self.escaped()? } else { it });
        }
        Ok(text)
    }

    fn escaped(&mut self) -> Result<char, TomlError> {
        let it = self.rest().chars().next().ok_or_else(|| self.error("a text does not end"))?;
        self.at += it.len_utf8();
        Ok(match it {
            'n' => '\n',
            't' => '\t',
            '"' | '\\' => it,
            'u' => {
                let code = self.rest().get(..4).and_then(|it| u32::from_str_radix(it, 16).ok());
                self.at += 4;
                code.and_then(char::from_u32).ok_or_else(|| self.error("no character has this code"))?
            }
            // A line that goes on in the next one, for example. Nothing that is looked at here has one.
            _ => ' ',
        })
    }

    fn list_value(&mut self) -> Result<Value, TomlError> {
        let start = self.at;
        self.take("[");
        let mut list = Vec::new();
        loop {
            self.skip_blank();
            if self.take("]") {
                return Ok(Value::List(list));
            }
            if !self.rest().starts_with(['"', '\'']) {
                self.at = start;
                return self.other('[', ']');
            }
            list.push(self.text_value()?);
            self.skip_blank();
            if !self.take(",") && !self.rest().starts_with(']') {
                return Err(self.error("a list has no comma here"));
            }
        }
    }

    /// What nobody asks for, up to where its bracket closes.
    fn other(&mut self, open: char, close: char) -> Result<Value, TomlError> {
        let mut depth = 0;
        loop {
            match self.rest().chars().next() {
                None => return Err(self.error("a bracket is not closed")),
                Some('"' | '\'') => {
                    self.text_value()?;
                    continue;
                }
                Some('#') => {
                    self.skip(|it| it != '\n');
                    continue;
                }
                Some(it) => {
                    self.at += it.len_utf8();
                    depth += i32::from(it == open) - i32::from(it == close);
                }
            }
            if depth == 0 {
                return Ok(Value::Other);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_lists_are_read_and_other_values_are_read_over() {
        let text = "# a comment\nversion = 4\n\n[[package]]\nname = \"a\" # one\nlist = [\n  \"x\", # \"y\"\n \
                    'z'\n]\nmap = { \"k\" = [\"}\"] }\n\"quoted key\" = 'raw \\'\n[deep.er]\nodd = [1, 2]\n\
                    long = \"\"\"two\nlines\"\"\"\nescaped = \"\\\"\\u0041\\\\\"\nwhen = 2026-11-22T10:00:00Z";
        let tables = parse(text).expect("TOML");
        let names: Vec<(&str, usize)> = tables.iter().map(|it| (&*it.name, it.line)).collect();
        assert_eq!(names, [("", 1), ("package", 4), ("deep.er", 12)]);
        assert!(tables[0].has("version") && tables[0].text("version").is_none());
        assert_eq!(tables[1].text("name"), Some("a"));
        assert_eq!(tables[1].list("list"), Some(&["x".to_owned(), "z".to_owned()][..]));
        assert_eq!(tables[1].text("quoted key"), Some("raw \\"));
        assert_eq!(tables[1].keys().collect::<Vec<_>>(), ["list", "map", "name", "quoted key"]);
        assert_eq!(tables[2].list("odd"), None);
        assert_eq!(tables[2].text("long"), Some("two\nlines"));
        assert_eq!(tables[2].text("escaped"), Some("\"A\\"));
    }

    #[test]
    fn what_is_no_toml_is_an_error_with_its_line() {
        for (text, line) in [
            ("a = \"b", 1),
            ("\na = \"b\nc\"", 2),
            ("a = [\"b\" \"c\"]", 1),
            ("a = [\"b\"", 1),
            ("a =", 1),
            ("a", 1),
            ("[a", 1),
            ("[[a]", 1),
            ("a = 1 b", 1),
            ("a = 1\n\na = 2", 3),
            ("a = {", 1),
            ("a = \"\\uD800\"", 1),
        ] {
            assert_eq!(parse(text).expect_err(text).line, line, "{text:?}");
        }
    }
}
