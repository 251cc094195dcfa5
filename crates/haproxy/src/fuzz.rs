//! What HAProxy says, for fuzzers: see `fuzz/README.md`.

use crate::runtime::{
    observed,
    reply::{ExpectedReply, ReplySplitter},
    statistics::statistics,
};

/// Replies are the same however they are cut; no table makes more of itself than it has lines.
pub fn haproxy(bytes: &[u8]) {
    let cut = |size: usize| {
        let mut replies = ReplySplitter::default();
        let mut all: Vec<String> = Vec::new();
        for piece in bytes.chunks(size.max(1)) {
            replies.push_bytes(piece);
            all.extend(std::iter::from_fn(|| replies.next_reply()));
        }
        (all, replies.waiting())
    };
    let whole = cut(bytes.len());
    assert_eq!(cut(1), whole);
    assert_eq!(cut(3), whole);
    for reply in &whole.0 {
        for expected in [
            ExpectedReply::Silence,
            ExpectedReply::Says("Success!"),
            ExpectedReply::Number("New version created: "),
            ExpectedReply::Address,
            ExpectedReply::SilenceOr("Key not found."),
            ExpectedReply::Table,
        ] {
            if let Err(refusal) = expected.check(reply) {
                assert!(!refusal.0.contains('\n') && refusal.0.chars().count() <= 200);
            }
        }
        let unknown = reply.trim().starts_with("Unknown command");
        assert!(!unknown || ExpectedReply::Says("U").check(reply).is_err(), "what is unknown was not done");
    }
    let text = String::from_utf8_lossy(bytes);
    let lines = text.lines().count();
    assert!(observed::servers(&text).len() <= lines);
    assert!(observed::connections(&text).len() <= lines);
    assert!(observed::map(&text).len() <= lines);
    assert!(observed::crt_list(&text).len() <= lines);
    assert!(observed::processes(&text).old.len() <= lines);
    assert!(observed::alerts(bytes, "/run/").len() <= 5);
    let counted = statistics(&text);
    assert!(counted.frontends.len() + counted.backends.len() + counted.servers.len() <= lines);
    observed::version(&text);
    let kept = observed::kept_state(&text, |_, _, at| at.is_some());
    assert!(kept.lines().all(|it| text.lines().any(|line| line.trim_end() == it)));
    let all = observed::servers(&kept);
    assert!(
        all.values().all(|it| !it.is_maintained && !it.is_drained),
        "the next worker believes what it was told"
    );
}
