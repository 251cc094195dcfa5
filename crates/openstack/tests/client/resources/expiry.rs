//! A token that ends by the clock, ours and the cloud's.

use std::time::Duration;

use seaway_openstack::{
    neutron::Network,
    resource::{IdOnly, Query},
};
use tokio::task::JoinSet;

use super::stage::Stage;

#[tokio::test]
async fn a_token_that_expires_in_the_middle_of_a_hundred_calls_costs_one_sign_in() {
    let stage = Stage::set().await;
    let day = Duration::from_secs(24 * 3600);
    for (round, (ours, theirs)) in
        [(day, day), (Duration::ZERO, day), (day, Duration::ZERO)].into_iter().enumerate()
    {
        // A token that is younger than a second is not renewed, and this clock moves by itself only when calls wait.
        stage.clock.advance(Duration::from_secs(60));
        stage.fake.advance(Duration::from_secs(60));
        let mut calls = JoinSet::new();
        for number in 0..100 {
            if number == 50 {
                stage.clock.advance(ours);
                stage.fake.advance(theirs);
            }
            let cloud = stage.cloud.clone();
            calls.spawn(async move { cloud.all::<Network>().list::<IdOnly<Network>>(Query::all()).await });
            tokio::task::yield_now().await;
        }
        for outcome in calls.join_all().await {
            outcome.unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
        assert_eq!(stage.fake.count("POST */auth/tokens"), round + 2, "one more than in the round before");
    }
}
