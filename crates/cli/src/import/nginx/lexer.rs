//! The tokens of nginx's language, as ngx_conf_file.c takes them apart.

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// Quotes and escapes are undone.
    Word(String),
    End,
    Open,
    Close,
    /// What is between the braces of a block in another language.
    Raw,
}

pub(super) struct Lexer<'t> {
    rest: std::iter::Peekable<std::str::Chars<'t>>,
    line: u32,
}

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t str) -> Lexer<'t> {
        Lexer { rest: text.strip_prefix('\u{feff}').unwrap_or(text).chars().peekable(), line: 1 }
    }

    fn next_char(&mut self) -> Option<char> {
        let next = self.rest.next();
        if next == Some('\n') {
            self.line = self.line.saturating_add(1);
        }
        next
    }

    /// The next token with its line; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(u32, Token)>, (u32, &'static str)> {
        loop {
            let Some(first) = self.rest.peek().copied() else { return Ok(None) };
            let line = self.line;
            match first {
                '#' => while self.next_char().is_some_and(|it| it != '\n') {},
                ';' => return Ok(self.single(line, Token::End)),
                '{' => return Ok(self.single(line, Token::Open)),
                '}' => return Ok(self.single(line, Token::Close)),
                '"' | '\'' => {
                    self.next_char();
                    return self
                        .quoted(first)
                        .map(|word| Some((line, Token::Word(word))))
                        .ok_or((line, "a quote that does not end"));
                }
                it if it.is_whitespace() => drop(self.next_char()),
                _ => return Ok(Some((line, Token::Word(self.plain())))),
            }
        }
    }

    fn single(&mut self, line: u32, token: Token) -> Option<(u32, Token)> {
        self.next_char();
        Some((line, token))
    }

    fn quoted(&mut self, by: char) -> Option<String> {
        let mut word = String::new();
        loop {
            match self.next_char()? {
                it if it == by => return Some(word),
                '\\' => self.escape(&mut word),
                it => word.push(it),
            }
        }
    }

    fn plain(&mut self) -> String {
        let mut word = String::new();
        while let Some(it) = self.rest.peek().copied() {
            // `${name}` is a part of the word.
            if it.is_whitespace() || it == ';' || (it == '{' && !word.ends_with('$')) {
                break;
            }
            self.next_char();
            if it == '\\' {
                self.escape(&mut word);
            } else {
                word.push(it);
            }
        }
        word
    }

    fn escape(&mut self, word: &mut String) {
        match self.next_char() {
            Some(it @ ('"' | '\'' | '\\')) => word.push(it),
            Some('t') => word.push('\t'),
            Some('r') => word.push('\r'),
            Some('n') => word.push('\n'),
            // Of an expression: it stays.
            Some(it) => word.extend(['\\', it]),
            None => word.push('\\'),
        }
    }

    /// What is up to the brace that closes the one before: Lua, whose comments and texts may have braces.
    pub(super) fn raw(&mut self) -> Option<(u32, Token)> {
        let line = self.line;
        let mut depth = 1_usize;
        loop {
            match self.next_char()? {
                '{' => depth = depth.saturating_add(1),
                '}' if depth == 1 => return Some((line, Token::Raw)),
                '}' => depth = depth.saturating_sub(1),
                by @ ('"' | '\'') => drop(self.quoted(by)?),
                '[' => drop(self.long_text()?),
                '-' if self.rest.next_if_eq(&'-').is_some() => {
                    let is_long = self.rest.next_if_eq(&'[').is_some() && self.long_text()?;
                    if !is_long {
                        while self.next_char().is_some_and(|it| it != '\n') {}
                    }
                }
                _ => {}
            }
        }
    }

    /// Behind a `[`: skips Lua's `[[ … ]]` or `[=[ … ]=]`, and says whether one begins there.
    fn long_text(&mut self) -> Option<bool> {
        let mut level = 0_usize;
        while self.rest.next_if_eq(&'=').is_some() {
            level = level.saturating_add(1);
        }
        if self.rest.next_if_eq(&'[').is_none() {
            return Some(false);
        }
        loop {
            while self.next_char()? != ']' {}
            let mut found = 0_usize;
            while self.rest.next_if_eq(&'=').is_some() {
                found = found.saturating_add(1);
            }
            if found == level && self.rest.next_if_eq(&']').is_some() {
                return Some(true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let mut lexer = Lexer::new(text);
        let mut words = Vec::new();
        while let Some((line, token)) = lexer.next().expect("it is right") {
            words.push(match token {
                Token::Word(word) => format!("{line}:{word}"),
                other => format!("{line}:{other:?}"),
            });
        }
        words
    }

    #[test]
    fn quotes_escapes_and_comments_are_those_of_nginx() {
        assert_eq!(words("a 'b c' # d\n e;"), ["1:a", "1:b c", "2:e", "2:End"]);
        assert_eq!(words(r#"a "x \" y" '\.php$' {}"#), ["1:a", "1:x \" y", "1:\\.php$", "1:Open", "1:Close"]);
        assert_eq!(words(r"~ \.php$ ${x}y a#b"), ["1:~", "1:\\.php$", "1:${x}y", "1:a#b"]);
        assert!(Lexer::new("a 'b").next().is_ok_and(|it| it.is_some()));
        for lua in ["-- }\n x }", "'}' \"\\\"}\" }", "[[ } ]] a[1] }", "--[=[ }\n ]] } ]=] }", "{ a - b } }"]
        {
            let mut lexer = Lexer::new(lua);
            assert!(lexer.raw().is_some() && lexer.next() == Ok(None), "{lua}");
        }
        assert!(Lexer::new("-- }").raw().is_none());
        let mut open = Lexer::new("'b");
        assert_eq!(open.next(), Err((1, "a quote that does not end")));
    }
}
