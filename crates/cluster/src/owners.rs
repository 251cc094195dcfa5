//! Services, asked for at this moment, whatever watches have told: one by its name, or all.

use std::sync::Arc;

use kube::api::ListParams;
use seaway_engine::{Owners, OwnersFuture};
use seaway_model::{Fact, Kind, Owner, fact::Service};

use crate::{
    api_error::ApiError,
    connect::Cluster,
    decode::{self, DecodeOutcome},
    kinds::WatchedKind,
    raw_object::RawObject,
};

/// So many objects come with one answer.
const PAGE: u32 = 500;

impl Owners for Cluster {
    fn service<'a>(&'a self, owner: &'a Owner) -> OwnersFuture<'a, Option<Arc<Service>>> {
        Box::pin(async move {
            let Owner::Object { object, uid } = owner else { return Ok(None) };
            match self.get(services(), &object.namespace, &object.name).await {
                Ok(told) if told.uid() == &**uid => read(&told).map(Some),
                Ok(_) | Err(ApiError::NotFound) => Ok(None),
                Err(answer) => Err(answer.why()),
            }
        })
    }

    fn services(&self) -> OwnersFuture<'_, Vec<Arc<Service>>> {
        Box::pin(async move {
            let mut params = ListParams { limit: Some(PAGE), ..ListParams::default() };
            let mut all = Vec::new();
            loop {
                let page = self.within_deadline(self.api(services()).list(&params)).await;
                let page = page.map_err(|answer| answer.why())?;
                for told in &page.items {
                    all.push(read(told)?);
                }
                params.continue_token = page.metadata.continue_.filter(|it| !it.is_empty());
                if params.continue_token.is_none() {
                    return Ok(all);
                }
            }
        })
    }
}

fn services() -> &'static WatchedKind {
    WatchedKind::known(Kind::Service)
}

/// What cannot be read is there all the same.
fn read(told: &RawObject) -> Result<Arc<Service>, String> {
    match decode::read(Kind::Service, told) {
        DecodeOutcome::Fact(Fact::Service(it)) | DecodeOutcome::Partial(Fact::Service(it), _) => Ok(it),
        _ => Err(format!("Service {}/{} exists, but cannot be decoded", told.namespace(), told.name())),
    }
}
