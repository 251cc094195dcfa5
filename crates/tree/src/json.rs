//! JSON values one after the other, with places. A reader of its own because YAML forbids the tabs that JSON may be
//! indented by, and because no JSON crate keeps places.

use super::{DEPTH, Entry, NODES, Node, Position, SyntaxError, Value, distinct};

pub(super) fn parse(text: &str) -> Result<Vec<Node>, SyntaxError> {
    let mut reader = Reader { rest: text, at: Position { line: 1, column: 1 }, nodes: 0 };
    let mut roots = Vec::new();
    loop {
        reader.blanks();
        if reader.rest.is_empty() {
            return Ok(roots);
        }
        roots.push(reader.value(0)?);
    }
}

struct Reader<'a> {
    rest: &'a str,
    at: Position,
    nodes: usize,
}

impl Reader<'_> {
    fn value(&mut self, depth: usize) -> Result<Node, SyntaxError> {
        let at = self.at;
        self.nodes = self.nodes.saturating_add(1);
        if depth >= DEPTH {
            return Err(at.error(format!("nested deeper than {DEPTH} levels")));
        }
        if self.nodes > NODES {
            return Err(at.error(format!("more than {NODES} values in one document")));
        }
        let value = match self.rest.as_bytes().first() {
            Some(b'{') => self.map(depth)?,
            Some(b'[') => self.list(depth)?,
            Some(b'"') => Value::Text(self.text()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(_) => self.word()?,
            None => return Err(at.error("unexpected end of JSON input")),
        };
        Ok(Node { at, value })
    }

    fn map(&mut self, depth: usize) -> Result<Value, SyntaxError> {
        let mut entries = Vec::new();
        self.bump();
        self.blanks();
        if self.take('}') {
            return Ok(Value::Map(entries));
        }
        loop {
            self.blanks();
            let at = self.at;
            if !self.rest.starts_with('"') {
                return Err(at.error("expected a key in double quotes"));
            }
            let key = self.text()?;
            self.blanks();
            if !self.take(':') {
                return Err(self.at.error("expected ':' after a key"));
            }
            self.blanks();
            entries.push(Entry { key, at, value: self.value(depth.saturating_add(1))? });
            self.blanks();
            if self.take('}') {
                return distinct(entries).map(Value::Map);
            }
            if !self.take(',') {
                return Err(self.at.error("expected ',' or '}' after a value"));
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<Value, SyntaxError> {
        let mut items = Vec::new();
        self.bump();
        self.blanks();
        if self.take(']') {
            return Ok(Value::List(items));
        }
        loop {
            self.blanks();
            items.push(self.value(depth.saturating_add(1))?);
            self.blanks();
            if self.take(']') {
                return Ok(Value::List(items));
            }
            if !self.take(',') {
                return Err(self.at.error("expected ',' or ']' after a value"));
            }
        }
    }

    fn text(&mut self) -> Result<String, SyntaxError> {
        let mut text = String::new();
        self.bump();
        loop {
            let at = self.at;
            match self.bump() {
                None => return Err(at.error("unexpected end of JSON input within a string")),
                Some('"') => return Ok(text),
                Some('\\') => text.push(self.escape(at)?),
                Some(c) if c < ' ' => {
                    return Err(
                        at.error("a string has a control character: write it as an escape, such as \\n")
                    );
                }
                Some(c) => text.push(c),
            }
        }
    }

    fn escape(&mut self, at: Position) -> Result<char, SyntaxError> {
        let plain = match self.bump() {
            Some(c @ ('"' | '\\' | '/')) => c,
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('u') => {
                let first = self.hex(at)?;
                // Beyond the basic plane JSON writes two; one alone stands for nothing.
                let code = if (0xd800..0xdc00).contains(&first) && self.rest.starts_with("\\u") {
                    self.bump();
                    self.bump();
                    let second = self.hex(at)?;
                    0x10000_u32.saturating_add((first & 0x3ff) << 10 | second.wrapping_sub(0xdc00) & 0x3ff)
                } else {
                    first
                };
                char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            _ => return Err(at.error("an escape that JSON does not have")),
        };
        Ok(plain)
    }

    fn hex(&mut self, at: Position) -> Result<u32, SyntaxError> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.bump().and_then(|c| c.to_digit(16));
            code =
                code << 4 | digit.ok_or_else(|| at.error("an escape that is not four hexadecimal digits"))?;
        }
        Ok(code)
    }

    fn number(&mut self) -> Result<Value, SyntaxError> {
        let at = self.at;
        let end = self
            .rest
            .find(|c: char| !c.is_ascii_digit() && !matches!(c, '-' | '+' | '.' | 'e' | 'E'))
            .unwrap_or(self.rest.len());
        let digits = self.rest.get(..end).unwrap_or_default();
        let unsigned = digits.strip_prefix('-').unwrap_or(digits);
        let octal = matches!(unsigned.as_bytes(), [b'0', b'0'..=b'9', ..]);
        let value = if octal || unsigned.starts_with('+') {
            None
        } else {
            digits.parse().map(Value::Int).or_else(|_| digits.parse().map(Value::Float)).ok()
        };
        let value = value.ok_or_else(|| at.error(format!("{digits:?} is not a number")))?;
        self.skip(end);
        Ok(value)
    }

    fn word(&mut self) -> Result<Value, SyntaxError> {
        for (word, value) in
            [("true", Value::Bool(true)), ("false", Value::Bool(false)), ("null", Value::Null)]
        {
            if self.rest.starts_with(word) {
                self.skip(word.len());
                return Ok(value);
            }
        }
        Err(self.at.error("expected a JSON value"))
    }

    fn blanks(&mut self) {
        while self.rest.starts_with([' ', '\t', '\n', '\r']) {
            self.bump();
        }
    }

    fn take(&mut self, wanted: char) -> bool {
        let there = self.rest.starts_with(wanted);
        if there {
            self.bump();
        }
        there
    }

    /// Over ASCII without line breaks.
    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
        self.at.column = self.at.column.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    fn bump(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let next = chars.next()?;
        self.rest = chars.as_str();
        self.at = match next {
            '\n' => Position { line: self.at.line.saturating_add(1), column: 1 },
            _ => Position { line: self.at.line, column: self.at.column.saturating_add(1) },
        };
        Some(next)
    }
}
