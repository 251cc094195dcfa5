//! The security group beside Services that were released: another controller has not opened their node ports yet.

use seaway_model::L4;

use crate::groups::GroupScene;

#[tokio::test]
async fn what_is_open_for_a_service_that_is_released_stays_open() {
    let town = GroupScene::set().await;
    let nodes = [town.node(11).await];
    town.reach(&town.wish(&[("shop", &[30_080]), ("mail", &[30_025])], &nodes)).await;
    let rules = town.rules().await;
    let mut wish = town.wish(&[("shop", &[30_080])], &nodes);
    wish.kept.insert((L4::Tcp, 30_025));
    assert_eq!(town.reach(&wish).await, [""; 0]);
    assert_eq!(town.rules().await, rules);
    wish.kept.clear();
    town.reach(&wish).await;
    assert!(town.rules().await.len() < rules.len(), "its Service is gone");
}
