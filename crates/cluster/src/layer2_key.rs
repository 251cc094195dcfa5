//! The key by which hosts that announce addresses by ARP and NDP recognize each other: the leader makes it, where nothing has.
//!
//! A Secret is only ever created, so that a key in use is never replaced: hosts with different keys do not hear each other. Who may
//! not create Secrets in Seaway's namespace creates none; `components/layer2` permits it.

use std::{fmt::Write as _, time::Duration};

use aws_lc_rs::rand;
use seaway_engine::backoff;
use seaway_model::Kind;
use serde_json::json;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use crate::{api_error::ApiError, connect::Cluster, kinds::WatchedKind, lease::Leadership};

/// `components/layer2` mounts it.
const NAME: &str = "seaway-layer2";
const SOON: Duration = Duration::from_secs(1);
const SELDOM: Duration = Duration::from_secs(300);

/// Makes the key at the start of each lead.
pub async fn make_layer2_key(cluster: Cluster, mut leading: Leadership) {
    loop {
        if !leading.is_held() {
            leading.changed_from(false).await;
        }
        let mut tries: u32 = 0;
        while leading.is_held() && !is_made(&cluster, tries).await {
            tries = tries.saturating_add(1);
            sleep(backoff(tries, SOON, SELDOM, tries.into())).await;
        }
        leading.changed_from(true).await;
    }
}

/// Whether there is nothing left to do.
async fn is_made(cluster: &Cluster, tries: u32) -> bool {
    let Some(key) = random() else {
        warn!("this machine has no source of random numbers: the Secret of the layer 2 key cannot be made");
        return true;
    };
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": NAME, "labels": {"app.kubernetes.io/managed-by": "seaway"}},
        "stringData": {"key": key},
    });
    let namespace = cluster.namespace();
    match cluster.create(WatchedKind::known(Kind::Secret), namespace, &secret).await {
        Ok(_) => info!(%namespace, name = NAME, "Secret created: the key of hosts that announce addresses"),
        // There is one, and it is in use.
        Err(ApiError::Conflict(_)) => {}
        // Until components/layer2 is applied.
        Err(ApiError::Forbidden(why)) => {
            debug!(why, "the Secret of the layer 2 key is not created");
            return false;
        }
        Err(answer @ ApiError::Invalid(_)) => {
            warn!(why = answer.message_with_fix(), "the Secret of the layer 2 key is refused");
        }
        Err(answer) => {
            let why = answer.message_with_fix();
            if tries == 0 {
                warn!(why, "the Secret of the layer 2 key cannot be created; Seaway tries again");
            } else {
                debug!(why, tries, "the Secret of the layer 2 key still cannot be created");
            }
            return false;
        }
    }
    true
}

/// 256 bits, in hexadecimal digits.
fn random() -> Option<String> {
    let mut bytes = [0; 32];
    rand::fill(&mut bytes).ok()?;
    Some(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_another_and_long_enough() {
        let keys = [random(), random()].map(|it| it.expect("there are random numbers"));
        assert_ne!(keys[0], keys[1]);
        assert!(keys.iter().all(|it| it.len() == 64 && it.bytes().all(|byte| byte.is_ascii_hexdigit())));
    }
}
