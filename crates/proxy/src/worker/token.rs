//! What the kernel gives back with an event: which source, which entry of it, and which life of that entry.

/// Eight bits of kind, 24 of generation, 32 of index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Waker,
    Alarm,
    Listener,
    Connection,
    /// UDP: sockets of listeners and of flows.
    Datagrams,
    HttpListener,
    /// HTTP: a connection to a client or to a member.
    HttpStream,
}

impl Token {
    pub(crate) const GENERATIONS: u32 = (1 << 24) - 1;

    pub(crate) fn new(kind: Kind, index: u32, generation: u32) -> Token {
        Token((kind as u64) << 56 | u64::from(generation & Token::GENERATIONS) << 32 | u64::from(index))
    }

    pub(crate) fn kind(self) -> Kind {
        match self.0 >> 56 {
            0 => Kind::Waker,
            1 => Kind::Alarm,
            2 => Kind::Listener,
            3 => Kind::Connection,
            4 => Kind::Datagrams,
            5 => Kind::HttpListener,
            _ => Kind::HttpStream,
        }
    }

    pub(crate) fn index(self) -> u32 {
        self.0 as u32
    }

    pub(crate) fn generation(self) -> u32 {
        (self.0 >> 32) as u32 & Token::GENERATIONS
    }
}

impl From<u64> for Token {
    fn from(bits: u64) -> Token {
        Token(bits)
    }
}

impl From<Token> for u64 {
    fn from(token: Token) -> u64 {
        token.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_gives_back_what_it_was_made_of() {
        for kind in [
            Kind::Waker,
            Kind::Listener,
            Kind::Connection,
            Kind::Datagrams,
            Kind::HttpListener,
            Kind::HttpStream,
        ] {
            let token = Token::from(u64::from(Token::new(kind, u32::MAX - 1, Token::GENERATIONS)));
            assert_eq!(token.kind(), kind);
            assert_eq!(token.index(), u32::MAX - 1);
            assert_eq!(token.generation(), Token::GENERATIONS);
        }
    }
}
