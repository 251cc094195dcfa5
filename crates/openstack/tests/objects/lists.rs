use std::collections::BTreeSet;

use seaway_openstack::{
    Cloud,
    neutron::{NewSecurityGroup, SecurityGroup},
    octavia::{LoadBalancer, NewLoadBalancer},
    resource::{Id, IdOnly, Query},
};

use super::{PATIENCE, network};

async fn groups(cloud: &Cloud, number: usize) -> BTreeSet<Id<SecurityGroup>> {
    let mut made = BTreeSet::new();
    for _ in 0..number {
        let new = NewSecurityGroup { name: "listed".into(), ..NewSecurityGroup::new() };
        made.insert(cloud.all::<SecurityGroup>().create(&new).await.expect("a group").id);
    }
    made
}

/// A list is the same in pages of any size, and with few fields.
pub(crate) async fn whole_lists(cloud: &Cloud) {
    let made = groups(cloud, 5).await;
    for size in [1, 2, 5, 6, 1000] {
        let query = Query::named("listed").page(size);
        let listed = cloud.all::<SecurityGroup>().list::<IdOnly<_>>(query).await.expect("groups");
        assert_eq!(listed.len(), 5, "in pages of {size}");
        assert_eq!(listed.into_iter().map(|it| it.0).collect::<BTreeSet<_>>(), made, "in pages of {size}");
    }
    let (_, subnet) = network(cloud, "lists", "10.36.0.0/24").await;
    let balancers = cloud.all::<LoadBalancer>();
    for _ in 0..3 {
        let new = NewLoadBalancer {
            name: "listed".into(),
            provider: Some("ovn".to_owned()).into(),
            vip_subnet_id: Some(subnet.clone()).into(),
            ..NewLoadBalancer::new()
        };
        balancers.create(&new).await.expect("a load balancer");
    }
    for size in [1, 2, 3, 1000] {
        let query = Query::named("listed").page(size);
        let listed = balancers.list::<IdOnly<_>>(query).await.expect("load balancers");
        assert_eq!(listed.len(), 3, "in pages of {size}");
    }
    for it in balancers.list::<IdOnly<_>>(Query::named("listed")).await.expect("load balancers") {
        balancers.until_ready(&it.0, PATIENCE).await.expect("it becomes ACTIVE");
        balancers.delete_cascade(&it.0).await.expect("deleted");
        balancers.until_gone(&it.0, PATIENCE).await.expect("it goes");
    }
}

/// The objects that the next page would begin after are deleted meanwhile: nothing else is missed, nothing told twice.
pub(crate) async fn what_goes_between_two_pages(cloud: &Cloud) {
    let made = groups(cloud, 8).await;
    let all = cloud.all::<SecurityGroup>();
    let mut pages = all.pages::<IdOnly<SecurityGroup>>(Query::named("listed").page(4));
    let mut seen = Vec::new();
    while let Some(page) = pages.next().await.expect("a page") {
        for gone in page.items.iter().rev().take(2) {
            all.delete(&gone.0).await.expect("deleted");
        }
        seen.extend(page.items.into_iter().map(|it| it.0));
    }
    assert_eq!(seen.len(), made.len(), "{seen:?}");
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), made);
}
