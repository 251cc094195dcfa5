//! What is done for one host name, one after the other.

use std::fmt;

use seaway_engine::{Effect, Effects};

#[derive(Debug, PartialEq)]
pub enum Step {
    AskWhen,
    Begin,
    Publish,
    Answer,
    Finalize,
    Keep,
    Abandon(String),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::AskWhen => f.write_str("query when the certificate is to be renewed"),
            Step::Begin => f.write_str("order a certificate"),
            Step::Publish => f.write_str("add the record that proves the host name to DNS"),
            Step::Answer => f.write_str("let the certificate authority check the host name"),
            Step::Finalize => f.write_str("submit the certificate signing request"),
            Step::Keep => f.write_str("store the certificate"),
            Step::Abandon(why) => write!(f, "end the order: {why}"),
        }
    }
}

impl Effects for Step {
    /// What is stored is replaced by what was issued, and nothing else: the data plane shows either.
    fn effect(&self) -> Effect {
        match self {
            Step::AskWhen
            | Step::Begin
            | Step::Publish
            | Step::Answer
            | Step::Finalize
            | Step::Keep
            | Step::Abandon(_) => Effect::CHANGES,
        }
    }
}
