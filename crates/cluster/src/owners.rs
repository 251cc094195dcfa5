//! Services, asked for by name: whether one is there at this moment, whatever watches have told.

use std::{future::Future, pin::Pin};

use seaway_engine::{Owners, Standing};
use seaway_model::{Fact, Kind, Owner, fact::ServiceKind};

use crate::{
    answer::Answer,
    connect::Cluster,
    decode::{self, Said},
    kinds::Watched,
    told::Told,
};

impl Owners for Cluster {
    fn standing<'a>(
        &'a self,
        owner: &'a Owner,
    ) -> Pin<Box<dyn Future<Output = Result<Standing, String>> + Send + 'a>> {
        Box::pin(async move {
            let Owner::Object { object, uid } = owner else { return Ok(Standing::Gone) };
            let services = Watched::of(Kind::Service).expect("Services are in the table of kinds");
            match self.get(services, &object.namespace, &object.name).await {
                Ok(told) => standing(&told, uid),
                Err(Answer::NotFound) => Ok(Standing::Gone),
                Err(answer) => Err(answer.why()),
            }
        })
    }
}

/// What cannot be read is there all the same.
fn standing(told: &Told, uid: &str) -> Result<Standing, String> {
    if told.uid() != uid {
        return Ok(Standing::Gone);
    }
    match decode::read(Kind::Service, told) {
        Said::Fact(Fact::Service(it)) if it.leaving => Ok(Standing::Leaving),
        Said::Fact(Fact::Service(it)) if it.kind == ServiceKind::LoadBalancer => Ok(Standing::Lives),
        Said::Fact(Fact::Service(_)) => Ok(Standing::Otherwise),
        _ => Err("it is there, and cannot be read".to_owned()),
    }
}
