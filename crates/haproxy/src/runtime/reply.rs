//! What HAProxy replies, cut at its prompts and judged by what a command's success looks like.

use std::fmt;

/// Ends each reply of a socket in interactive mode.
const PROMPT: &[u8] = b"\n> ";
/// Shown for each line of a payload.
const MORE: &str = "+ ";

/// What the reply of a command looks like where HAProxy did it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedReply {
    /// Nothing is said.
    Silence,
    /// This is said, among other words.
    Says(&'static str),
    /// A number behind these words.
    Number(&'static str),
    /// An address that is the server's now, or was before; what is wrong with one is a mere warning there.
    Address,
    /// Nothing, or these words: what should go is gone already.
    SilenceOr(&'static str),
    /// A table: whatever has no severity.
    Table,
}

/// A command that was not done, in HAProxy's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandError(pub String);

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "an empty reply" } else { &self.0 })
    }
}

impl ExpectedReply {
    /// The words of a reply without its severity; an error where the command was not done.
    pub fn check(self, reply: &str) -> Result<&str, CommandError> {
        let (severity, words) = severity(reply);
        let is_unknown = words.starts_with("Unknown command") || words.starts_with("Permission denied");
        // As syslog has it: 3 and less are errors.
        let is_error = severity.is_some_and(|it| it <= 3) || is_unknown;
        let is_done = match self {
            ExpectedReply::Silence => words.is_empty(),
            ExpectedReply::Says(what) => !is_error && words.contains(what),
            ExpectedReply::Number(before) => !is_error && number_behind(words, before).is_some(),
            ExpectedReply::Address => {
                !is_error && (words.contains(" changed from ") || words.contains("no need to change"))
            }
            ExpectedReply::SilenceOr(what) => words.is_empty() || words.contains(what),
            ExpectedReply::Table => severity.is_none() && !is_unknown,
        };
        if is_done { Ok(words) } else { Err(CommandError(first_line(words))) }
    }
}

/// The number behind these words.
pub fn number_behind(text: &str, before: &str) -> Option<u64> {
    let at = text.find(before)? + before.len();
    let digits: &str = text[at..].trim_start();
    let end = digits.find(|it: char| !it.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

/// `[3]: No such server.`, which a socket says after `set severity-output number`.
fn severity(reply: &str) -> (Option<u8>, &str) {
    let reply = reply.trim();
    let Some((number, words)) = reply.strip_prefix('[').and_then(|it| it.split_once("]: ")) else {
        return (None, reply);
    };
    match number.parse() {
        Ok(severity) => (Some(severity), words.trim()),
        Err(_) => (None, reply),
    }
}

/// What is said of a certificate may have several lines, and HAProxy's help has many.
fn first_line(words: &str) -> String {
    words.lines().next().unwrap_or_default().chars().take(200).collect()
}

/// Cuts what a socket says into replies, as it comes.
#[derive(Debug, Default)]
pub struct ReplySplitter {
    bytes: Vec<u8>,
    /// Until here no prompt was found.
    looked: usize,
}

impl ReplySplitter {
    /// What came.
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes that belong to no reply yet.
    pub fn waiting(&self) -> usize {
        self.bytes.len()
    }

    /// The next reply that is whole. What is not text in it is replaced: HAProxy shows the NUL between two ALPN names.
    pub fn next_reply(&mut self) -> Option<String> {
        let found = self.bytes[self.looked..].windows(PROMPT.len()).position(|it| it == PROMPT);
        let Some(at) = found.map(|it| it + self.looked) else {
            // A prompt may have come in part.
            self.looked = self.bytes.len().saturating_sub(PROMPT.len() - 1);
            return None;
        };
        let reply = String::from_utf8_lossy(&self.bytes[..at]).into_owned();
        self.bytes.drain(..at + PROMPT.len());
        self.looked = 0;
        let mut words = reply.as_str();
        while let Some(rest) = words.strip_prefix(MORE) {
            words = rest;
        }
        Some(words.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As HAProxy 2.6 sends it.
    const SENT: &str = "\n> \n> [6]: New version created: 2\n\n> + + + + \n> [3]: No such server.\n\n> ";

    fn replies(pieces: &[&[u8]]) -> Vec<String> {
        let mut replies = ReplySplitter::default();
        let mut all = Vec::new();
        for piece in pieces {
            replies.push_bytes(piece);
            all.extend(std::iter::from_fn(|| replies.next_reply()));
        }
        assert_eq!(replies.waiting(), 0);
        all
    }

    #[test]
    fn replies_are_the_same_however_they_are_cut() {
        let whole = replies(&[SENT.as_bytes()]);
        assert_eq!(whole, ["", "", "[6]: New version created: 2\n", "", "[3]: No such server.\n"]);
        let single: Vec<&[u8]> = SENT.as_bytes().chunks(1).collect();
        assert_eq!(replies(&single), whole);
    }

    #[test]
    fn an_error_is_recognised_though_haproxy_has_no_status_codes() {
        let refused = |expected: ExpectedReply, reply: &str| expected.check(reply).is_err();
        for expected in [
            ExpectedReply::Silence,
            ExpectedReply::Says("Success!"),
            ExpectedReply::Number("New version created: "),
            ExpectedReply::Address,
            ExpectedReply::SilenceOr("Key not found."),
            ExpectedReply::Table,
        ] {
            assert!(refused(expected, "[3]: No such backend.\n"), "{expected:?}");
            assert!(
                refused(expected, "[6]: Unknown command, but maybe one of the following\n"),
                "{expected:?}"
            );
            assert!(refused(expected, "Unknown command: 'x'\n"), "{expected:?}");
            assert!(refused(expected, "[3]: Permission denied\n"), "{expected:?}");
        }
        // A mere warning, and nothing was done.
        assert!(refused(ExpectedReply::Address, "[4]: Invalid addr 'bla' by 'stats socket command'\n"));
        assert!(refused(ExpectedReply::Says("Success!"), "Committing /x.pem.\n"));
        assert!(refused(ExpectedReply::Says("Success!"), ""));
    }

    #[test]
    fn what_was_done_is_recognised() {
        let done = |expected: ExpectedReply, reply: &str| expected.check(reply).is_ok();
        assert!(done(ExpectedReply::Silence, "\n"));
        assert!(done(ExpectedReply::Says("Success!"), "Committing /x.pem.\nSuccess!\n"));
        assert!(done(
            ExpectedReply::Address,
            "[4]: no need to change the addr, port changed from '1' to '2' by 'x'\n"
        ));
        assert!(done(ExpectedReply::SilenceOr("Key not found."), "[3]: Key not found.\n"));
        assert!(done(ExpectedReply::Table, "1\n# be_id be_name\n"));
        let number = ExpectedReply::Number("New version created: ").check("[6]: New version created: 12\n");
        assert_eq!(number.ok().and_then(|it| number_behind(it, "New version created: ")), Some(12));
    }
}
