//! What a running HAProxy prints: all of it is logged, and its last complaints are kept, to say why something failed.

use std::{path::Path, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader},
    sync::watch,
    time::{Instant, timeout},
};

use crate::runtime::observed;

/// Lines that are kept.
const KEPT: usize = 5;
/// Of a line: more is another line.
const MOST_LINE: u64 = 4 << 10;
/// Who has said nothing for so long has said all, but is not listened to for longer than that.
const QUIET: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, Default)]
pub(super) struct Alerts(Arc<watch::Sender<Vec<String>>>);

impl Alerts {
    /// Reads until HAProxy ends.
    pub(super) async fn follow(self, from: impl AsyncRead + Unpin) {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while let Ok(count) = (&mut from).take(MOST_LINE).read_until(b'\n', &mut line).await
            && count > 0
        {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            line.clear();
            if observed::is_alert(&text) {
                self.0.send_modify(|kept| {
                    let over = (kept.len() + 1).saturating_sub(KEPT);
                    kept.drain(..over);
                    kept.push(text.clone());
                });
            }
            if !text.is_empty() {
                tracing::debug!(target: "haproxy", "{text}");
            }
        }
    }

    /// What was said is not about what comes now.
    pub(super) fn forget(&self) {
        self.0.send_replace(Vec::new());
    }

    /// The last ones, in HAProxy's words.
    pub(super) async fn last(&self, folder: &Path) -> Vec<String> {
        let mut said = self.0.subscribe();
        let since = Instant::now();
        while since.elapsed() < PATIENCE && matches!(timeout(QUIET, said.changed()).await, Ok(Ok(()))) {}
        let text = said.borrow().join("\n");
        observed::alerts(text.as_bytes(), &format!("{}/", folder.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_complaints_are_kept_and_no_others() {
        let alerts = Alerts::default();
        let of =
            |number: usize| format!("[ALERT]    (7) : cannot bind /run/x/{number}\n[NOTICE]   (7) : so\n");
        let text: String = (0..7).map(of).collect();
        alerts.clone().follow(text.as_bytes()).await;
        let last = alerts.last(Path::new("/run/x")).await;
        assert_eq!(last, [2, 3, 4, 5, 6].map(|it| format!("cannot bind {it}")));
        alerts.forget();
        assert!(alerts.last(Path::new("/run/x")).await.is_empty());
    }
}
