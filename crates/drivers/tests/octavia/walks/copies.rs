//! A copy of the cluster that goes on beside it, and is older than a port of a Service.

use std::{collections::BTreeSet, time::Duration};

use seaway_model::Reason;

use super::{Controller, Dice, Event, Walk};

const A_WHILE: Duration = Duration::from_secs(100);

impl Walk {
    async fn served(&self) -> BTreeSet<u16> {
        self.scene.listeners().await.iter().map(|it| it.protocol_port).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_does_not_know_a_port_takes_it_away_once_and_not_again_and_again() {
    let mut walk = Walk::begin(Dice(1)).await;
    walk.happens(Event::Create("shop", vec![80])).await;
    walk.passes(A_WHILE).await;
    let copy = walk.api.copy(|_| true);
    walk.happens(Event::Ports("shop", vec![80, 443])).await;
    walk.passes(A_WHILE).await;
    assert_eq!(walk.served().await, [80, 443].into());
    walk.scene.fake.forget_requests();
    let beside = Controller::start(&walk.scene.fake.auth_url(), &copy, &walk.config, true);
    walk.passes(Duration::from_secs(4_000)).await;
    assert_eq!(walk.scene.fake.count("DELETE */lbaas/listeners/*"), 1, "of a dozen audits");
    assert_eq!(walk.served().await, [80, 443].into());
    let told = beside.handle.ask(|world| world.problems()).await.unwrap();
    let told: Vec<_> = told.into_iter().filter(|it| it.reason == Reason::OtherController).collect();
    assert!(told.len() == 1 && told[0].message.contains("443/TCP"), "{told:?}");
    drop(beside);
    walk.passes(A_WHILE).await;
    // Without it, all is as ever.
    walk.happens(Event::Ports("shop", vec![80])).await;
    walk.passes(A_WHILE).await;
    assert_eq!(walk.served().await, [80].into());
    walk.ends().await;
}
