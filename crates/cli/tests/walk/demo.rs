//! The README's first command.

use crate::harness::{run, stderr, stdout};

#[test]
fn the_demo_shows_one_backend_being_killed_and_noticed() {
    let free =
        || std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port();
    let (port, status) = (free().to_string(), free().to_string());
    let output = run(&["demo", "--once", "--port", &port, "--status-port", &status]);
    let text = stdout(&output);
    assert!(output.status.success(), "{text}\n{}", stderr(&output));
    for part in ["curl http://127.0.0.1:", "alice 3, bob 3, carol 3", "noticed after", "used again after"] {
        assert!(text.contains(part), "{part:?} is missing:\n{text}");
    }
}
