//! What belongs to a whole process, and so has one of its own: signals and the start of logging.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::{process::Command, time::Duration};

use seaway_admin::{
    Signal, Signals,
    logging::{self, Format, LogError},
};

#[tokio::test]
async fn the_first_stop_drains_the_second_is_at_once_and_a_hang_up_reloads() {
    let mut signals = Signals::listen().unwrap();
    for (name, expected) in [
        ("HUP", Signal::Reload),
        ("HUP", Signal::Reload),
        ("INT", Signal::Stop),
        ("TERM", Signal::StopNow),
        ("INT", Signal::StopNow),
    ] {
        let sent = Command::new("sh")
            .args(["-c", &format!("kill -{name} {}", std::process::id())])
            .status()
            .unwrap();
        assert!(sent.success());
        let heard = tokio::time::timeout(Duration::from_secs(10), signals.next()).await;
        assert_eq!(heard.unwrap(), expected, "{name}");
    }
}

#[test]
fn logging_starts_once_and_not_with_a_misspelt_level() {
    assert!(matches!(logging::start(Format::Json, "verbose"), Err(LogError::Level(_))));
    let handle = logging::start(Format::Json, "warn").unwrap();
    assert_eq!(handle.level(), "warn");
    assert!(matches!(logging::start(Format::Human, "info"), Err(LogError::Started)));
}
