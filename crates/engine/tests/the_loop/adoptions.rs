//! Services that another controller serves: nothing is written before their adoption, and so many begin in a minute.

use seaway_model::{
    Fact, Name,
    config::{AdoptMode, AdoptionConfig},
    fact::{FinalizerOwner, Meta, Node, Service},
};

use super::{
    removals::{ApiServer, Counts},
    *,
};

fn theirs(name: &str) -> Service {
    let mut service =
        Service { held: FinalizerOwner::ByOthers, published: vec![[203, 0, 113, 7].into()], ..shop() };
    service.meta.name = name.into();
    service.meta.uid = format!("uid-{name}").into();
    service.ports[0].node_port = Some(30_080);
    service
}

fn node(name: &str, last: u8) -> Change {
    let meta = Meta { name: name.into(), ..Meta::default() };
    let node = Node { meta, addresses: vec![[10, 0, 0, last].into()], ready: true, ..Node::default() };
    Change::Put(Fact::Node(Arc::new(node)))
}

fn adopting(adopt: AdoptionConfig) -> Running {
    Running::adopting(&ApiServer::who_says(Ok(None)), &Counts::default(), adopt)
}

fn of_balancers(it: &Script) -> Vec<Instant> {
    let made = it.applied.iter().filter(|it| matches!(it.1, Unit::LoadBalancer(..)));
    made.map(|it| it.0).collect()
}

async fn waiting(running: &Running) -> seaway_plan::Adoption {
    running.handle.ask(World::adoption).await.expect("the engine runs").expect("some may wait")
}

#[tokio::test(start_paused = true)]
async fn what_is_observed_is_looked_at_and_nothing_is_written_whatever_changes() {
    let running = adopting(AdoptionConfig { mode: AdoptMode::Observe, ..AdoptionConfig::default() });
    let first = [put(&theirs("shop")), node("one", 1)];
    running.tell(first.into_iter().chain(synced()).chain([Change::CloudInventory(Vec::new())])).await;
    running.until("it is looked at", |it| !it.at_work.is_empty()).await;
    let told = async {
        while waiting(&running).await.waiting[0].steps.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(60), told).await.expect("what would be done is told");
    assert_eq!(waiting(&running).await.waiting[0].steps, [Name::from("make")]);
    // A short way to a pool would be a write, too.
    running.tell([node("two", 2)]).await;
    tokio::time::sleep(Duration::from_secs(2 * 3_600)).await;
    running.tell([put(&Service { leaving: true, ..theirs("shop") })]).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    running.played.with(|it| {
        assert!(it.applied.is_empty(), "{:?}", it.applied);
        assert!(it.swapped.is_empty(), "{:?}", it.swapped);
        assert_eq!(it.concluded, 0, "from what it did not do");
    });
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_look_finds_to_be_ours_is_served_at_once() {
    let running = adopting(AdoptionConfig { mode: AdoptMode::Observe, ..AdoptionConfig::default() });
    running.played.with(|it| it.ours = true);
    let first = [put(&theirs("shop")), node("one", 1)];
    running.tell(first.into_iter().chain(synced()).chain([Change::CloudInventory(Vec::new())])).await;
    running.until("it is served", |it| !of_balancers(it).is_empty()).await;
    assert_eq!(waiting(&running).await.adopted, 1);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn so_many_adoptions_begin_in_a_minute() {
    let running = adopting(AdoptionConfig { per_minute: Some(2), ..AdoptionConfig::default() });
    let services = (0..5).map(|it| put(&theirs(&format!("s{it}"))));
    running.tell(services.chain([node("one", 1)]).chain(synced())).await;
    // Before the cloud was listed, nothing begins.
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(running.played.with(|it| of_balancers(it).is_empty()));
    let start = Instant::now();
    running.tell([Change::CloudInventory(Vec::new())]).await;
    running.until("all are adopted", |it| of_balancers(it).len() == 5).await;
    let minutes = |it: &Instant| it.duration_since(start).as_secs() / 60;
    let begun: Vec<u64> = running.played.with(|it| of_balancers(it)).iter().map(minutes).collect();
    assert_eq!(begun, [0, 0, 1, 1, 2]);
    let adoption = waiting(&running).await;
    assert_eq!((adoption.adopted, adoption.services), (5, 5));
    running.stop().await;
}
