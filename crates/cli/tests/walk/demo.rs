//! The README's first command.

use crate::harness::{run, stderr, stdout};

#[test]
fn the_demo_shows_one_backend_being_killed_and_noticed() {
    // Above those that the kernel gives away: nobody, its own backends included, is given them before it listens there.
    let base = 61_000 + (std::process::id() % 1_500) as u16 * 3;
    let [port, http, status] = [base, base + 1, base + 2].map(|it| it.to_string());
    let ports = ["--port", &port, "--http-port", &http, "--status-port", &status];
    let output = run(&[&["demo", "--once"][..], &ports].concat());
    let text = stdout(&output);
    assert!(output.status.success(), "{text}\n{}", stderr(&output));
    assert!(text.lines().count() <= 20, "its story has 20 lines:\n{text}");
    for part in ["curl http://127.0.0.1:", "noticed after", "used after"] {
        assert!(text.contains(part), "{part:?} is missing:\n{text}");
    }
    for way in ["nine connections:                ", "nine requests of one connection: "] {
        let shown: Vec<&str> = text.lines().filter_map(|it| it.trim().strip_prefix(way)).collect();
        assert_eq!(shown.len(), 3, "{way}\n{text}");
        assert_eq!((shown[0], shown[2]), ("alice 3, bob 3, carol 3", "alice 3, bob 3, carol 3"), "{text}");
        assert!(
            shown[1].contains("alice") && shown[1].contains("carol") && !shown[1].contains("bob"),
            "{text}"
        );
    }
    let next: Vec<&str> = text.lines().last().expect("lines").split_whitespace().collect();
    assert_eq!(next[1..], ["check", "examples/web"], "the last line is the next command:\n{text}");
    let checked = std::process::Command::new(next[0]).args(&next[1..]).current_dir("../..").output();
    assert!(checked.is_ok_and(|it| it.status.success()), "it can be typed in the checkout:\n{text}");
}
