//! Heartbeats that were sent into a cloud, so that the next leader knows the last of them as one of this cluster.

use seaway_engine::{HeartbeatRecord, OwnersFuture};

use super::{RecordStore, TRIES};
use crate::api_error::ApiError;

const HEARTBEATS: &str = "heartbeats";

impl HeartbeatRecord for RecordStore {
    fn heartbeats(&self) -> OwnersFuture<'_, Vec<String>> {
        Box::pin(async move {
            let kept = self.kept().await.map_err(|answer| answer.why())?.unwrap_or_default();
            let text = kept.data.as_ref().and_then(|it| it.get(HEARTBEATS));
            // What cannot be read is not there: then those in the cloud are taken for another's, and waited for.
            Ok(text.and_then(|it| serde_json::from_str(it).ok()).unwrap_or_default())
        })
    }

    fn record(&self, heartbeats: Vec<String>) -> OwnersFuture<'_, ()> {
        Box::pin(async move {
            let text = serde_json::json!(heartbeats).to_string();
            for _ in 0..TRIES {
                if !self.leading.is_held() {
                    return Err("another leads".to_owned());
                }
                let kept = self.kept().await.map_err(|answer| answer.why())?;
                match self.put(kept, [(HEARTBEATS.to_owned(), text.clone())].into()).await {
                    // What else is in there is written by others.
                    Err(ApiError::Conflict(_)) => {}
                    done => return done.map_err(|answer| answer.why()),
                }
            }
            Err("other processes keep changing the ConfigMap".to_owned())
        })
    }
}
