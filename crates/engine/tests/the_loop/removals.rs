//! Before anything is removed in a cloud, the API server is asked.

use std::collections::BTreeSet;

use seaway_engine::{Counted, DeletionLimit, Owners, OwnersFuture, deletion_limit};
use seaway_model::{
    ObjectRef, Owner,
    config::{AddressPoolRules, AdoptionConfig, CloudDefaults},
    dns::{Dns, DnsProvider, DnsZone},
    fact::{FactRef, Families, FamilyPolicy, Service, ServiceKind},
    load_balancer::Family,
};

use super::*;

struct InCloud;

impl Placement for InCloud {
    fn units(&self, demand: &Demand) -> Vec<Unit> {
        let place = || Place::Cloud { name: "somecloud".into(), driver: "somecloud".into() };
        let mut units = vec![Unit::LoadBalancer(place(), LbKey::Of(demand.owner.clone()))];
        let second = |it| Unit::LoadBalancer(place(), LbKey::Second(demand.owner.clone(), it));
        units.extend(demand.second_family().map(second));
        units.extend(
            demand
                .is_opened()
                .then(|| Unit::SecurityGroup { cloud: "somecloud".into(), class: "somecloud".into() }),
        );
        units
    }
}

pub(super) type Said = Result<Option<Service>, String>;

/// What the API server says, and how often it was asked.
#[derive(Clone)]
pub(super) struct ApiServer(Arc<Mutex<(Said, u32)>>);

impl ApiServer {
    pub(super) fn who_says(answer: Said) -> ApiServer {
        ApiServer(Arc::new(Mutex::new((answer, 0))))
    }

    fn says(&self, answer: Said) {
        self.0.lock().expect("no test panics while it holds this").0 = answer;
    }

    fn count(&self) -> u32 {
        self.0.lock().expect("no test panics while it holds this").1
    }

    fn answer(&self) -> Result<Option<Arc<Service>>, String> {
        let mut asked = self.0.lock().expect("no test panics while it holds this");
        asked.1 += 1;
        asked.0.clone().map(|it| it.map(Arc::new))
    }
}

impl Owners for ApiServer {
    fn service<'a>(&'a self, _: &'a Owner) -> OwnersFuture<'a, Option<Arc<Service>>> {
        Box::pin(std::future::ready(self.answer()))
    }

    fn services(&self) -> OwnersFuture<'_, Vec<Arc<Service>>> {
        Box::pin(std::future::ready(self.answer().map(|it| it.into_iter().collect())))
    }
}

/// Counts Units as an object in a cluster does, over restarts.
#[derive(Clone, Default)]
pub(super) struct Counts(Arc<Mutex<BTreeSet<String>>>);

impl DeletionLimit for Counts {
    fn count<'a>(&'a self, what: &'a str, _: &'a ObjectRef, balancers: usize) -> OwnersFuture<'a, Counted> {
        let mut all = self.0.lock().expect("no test panics while it holds this");
        let limit = deletion_limit(balancers, all.len());
        let is_within = all.contains(what) || all.len() < limit;
        if is_within {
            all.insert(what.to_owned());
        }
        Box::pin(std::future::ready(Ok(if is_within { Counted::Within } else { Counted::Beyond { limit } })))
    }
}

impl Running {
    /// As a controller whose Services are served by a cloud, and whose API server says what `asked` says.
    fn in_a_cloud(asked: &ApiServer) -> Running {
        Running::limited(asked, &Counts::default())
    }

    fn limited(asked: &ApiServer, counts: &Counts) -> Running {
        Running::adopting(asked, counts, AdoptionConfig::default())
    }

    pub(super) fn adopting(asked: &ApiServer, counts: &Counts, adopt: AdoptionConfig) -> Running {
        let played = Played::default();
        let usual = CloudDefaults { classless: true, groups: true, ..CloudDefaults::default() };
        let clouds = [("somecloud".into(), Arc::new(usual))];
        let config = Arc::new(Config { clouds: clouds.into(), adopt, ..Config::default() });
        let roles = Roles { allocate: true, host: None };
        let world = World::new(roles, vec![Arc::new(InCloud)], config);
        let (engine, handle) =
            Engine::new(world, Drivers::default().with(played.clone()), Settings::default());
        let (stop, stopped) = watch::channel(false);
        let engine = engine.asking(Arc::new(asked.clone())).limiting(Arc::new(counts.clone()));
        Running { handle, played, stop, task: tokio::spawn(engine.run(stopped)) }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_removed_from_a_cloud_before_the_api_server_says_that_its_owner_is_gone() {
    let gone = || Change::Gone(FactRef::Object(owner(&shop()).object()));
    let otherwise = Service { kind: ServiceKind::ClusterIp, ..shop() };
    for said in [None, Some(Service { leaving: true, ..shop() }), Some(otherwise)] {
        let asked = ApiServer::who_says(Ok(Some(shop())));
        let running = Running::in_a_cloud(&asked);
        running.tell([put(&shop())].into_iter().chain(synced())).await;
        running.until("it is made", |it| it.applied.iter().any(|it| it.2 == "make")).await;
        assert_eq!(asked.count(), 0, "nobody is asked for what is wanted");
        // A list that failed, a watch that is late.
        running.tell([gone()]).await;
        let removed = |it: &mut Script| {
            let of = |it: &&(Instant, Unit, String)| is_first(&it.1) && it.2 == "remove";
            it.applied.iter().filter(of).count()
        };
        let patience = Duration::from_secs(100);
        tokio::time::sleep(patience).await;
        assert!(asked.count() >= 2, "each time anew");
        assert_eq!(running.played.with(removed), 0, "it lives");
        let told = running.handle.ask(|world| world.problems()).await.expect("the engine runs");
        assert!(told.iter().any(|it| it.reason == Reason::Released), "{told:?}");
        // Who does not know is not asked to guess.
        asked.says(Err("services is forbidden".to_owned()));
        tokio::time::sleep(patience).await;
        assert_eq!(running.played.with(removed), 0, "nobody knows");
        let told = running.handle.ask(|world| world.problems()).await.expect("the engine runs");
        assert!(told.iter().any(|it| it.message.contains("is forbidden")), "{told:?}");
        asked.says(Ok(said));
        running.until("it is removed", |it| removed(it) == 1).await;
        running.stop().await;
    }
}

fn is_first(unit: &Unit) -> bool {
    matches!(unit, Unit::LoadBalancer(_, LbKey::Of(_)))
}

#[tokio::test(start_paused = true)]
async fn nor_is_its_second_load_balancer_or_the_group_of_all_before_that_is_asked_of_the_api_server() {
    let both = Families { policy: FamilyPolicy::Prefer, first: Some(Family::V4), second: Some(Family::V6) };
    let single = Families { policy: FamilyPolicy::Single, first: Some(Family::V4), second: None };
    let mut shop = Service { families: both, ..shop() };
    shop.ports[0].node_port = Some(30_080);
    let asked = ApiServer::who_says(Ok(Some(shop.clone())));
    let running = Running::in_a_cloud(&asked);
    running.tell([put(&shop)].into_iter().chain(synced())).await;
    running.until("all are made", |it| it.applied.iter().filter(|it| it.2 == "make").count() == 3).await;
    let removed = |it: &mut Script| -> Vec<Unit> {
        it.applied.iter().filter(|it| it.2 == "remove").map(|it| it.1.clone()).collect()
    };
    let patience = Duration::from_secs(100);
    // A watch that tells what was long ago; then a list without it.
    running.tell([put(&Service { families: single, ..shop.clone() })]).await;
    tokio::time::sleep(patience).await;
    running.tell([Change::Gone(FactRef::Object(owner(&shop).object()))]).await;
    tokio::time::sleep(patience).await;
    assert_eq!(running.played.with(removed), [], "it wants both, and its ports are opened");
    let told = running.handle.ask(|world| world.problems()).await.expect("the engine runs");
    let of_second = |it: &&Problem| it.message.starts_with("the second load balancer");
    let of_group = |it: &&Problem| it.message.starts_with("the security group");
    assert!(told.iter().any(|it| of_second(&it)) && told.iter().any(|it| of_group(&it)), "{told:?}");
    asked.says(Err("services is forbidden".to_owned()));
    tokio::time::sleep(patience).await;
    assert_eq!(running.played.with(removed), [], "nobody knows");
    asked.says(Ok(Some(Service { families: single, ..shop.clone() })));
    running.until("the second goes", |it| !removed(it).is_empty()).await;
    tokio::time::sleep(patience).await;
    let gone = running.played.with(removed);
    assert!(matches!(gone[..], [Unit::LoadBalancer(_, LbKey::Second(..))]), "{gone:?}");
    asked.says(Ok(None));
    running.until("all of it goes", |it| removed(it).len() == 3).await;
    running.stop().await;
}

/// With a name in DNS, of which it is never asked how it is served.
fn with_name(number: usize) -> Service {
    let mut service = shop();
    service.meta.name = format!("s{number:02}").into();
    service.meta.uid = service.meta.name.clone();
    let name = format!("n{number:02}.shop.example");
    service.meta.annotations.insert("seaway.dev/dns-names".into(), name.as_str().into());
    service
}

fn publishing(asked: &ApiServer) -> Running {
    let zone =
        DnsZone { name: "shop.example".into(), by: DnsProvider::Endpoints, ttl: 60, namespaces: Vec::new() };
    let dns = Some(Dns { owner: "prod".into(), zones: vec![Arc::new(zone)] });
    let config = Arc::new(Config { dns, pools: AddressPoolRules::CLUSTER, ..Config::default() });
    let world = World::new(Roles { allocate: true, host: None }, Vec::new(), config);
    let played = Played::default();
    let (engine, handle) = Engine::new(world, Drivers::default().with(played.clone()), Settings::default());
    let (stop, stopped) = watch::channel(false);
    let engine = engine.asking(Arc::new(asked.clone())).limiting(Arc::new(Counts::default()));
    Running { handle, played, stop, task: tokio::spawn(engine.run(stopped)) }
}

fn removed_names(it: &mut Script) -> Vec<String> {
    let mut names = Vec::new();
    for (_, unit, step) in &it.applied {
        if let (Unit::DnsName(name), "remove") = (unit, step.as_str()) {
            names.push(name.to_string());
        }
    }
    names
}

fn made_names(it: &mut Script) -> usize {
    it.applied.iter().filter(|it| matches!(it.1, Unit::DnsName(_)) && it.2 == "make").count()
}

#[tokio::test(start_paused = true)]
async fn no_name_leaves_dns_before_the_api_server_says_that_no_service_asks_for_it() {
    let shop = with_name(0);
    let without = Service { kind: ServiceKind::ClusterIp, ..shop.clone() };
    for said in [None, Some(Service { leaving: true, ..shop.clone() }), Some(without)] {
        let asked = ApiServer::who_says(Ok(Some(shop.clone())));
        let running = publishing(&asked);
        running.tell([put(&shop)].into_iter().chain(synced())).await;
        running.until("it is published", |it| made_names(it) > 0).await;
        // A watch that is late.
        running.tell([Change::Gone(FactRef::Object(owner(&shop).object()))]).await;
        let patience = Duration::from_secs(100);
        tokio::time::sleep(patience).await;
        assert!(asked.count() >= 2, "each time anew");
        assert_eq!(running.played.with(removed_names), [""; 0], "a Service asks for it");
        let told = running.handle.ask(|world| world.problems()).await.expect("the engine runs");
        assert!(
            told.iter().any(|it| it.message.contains("a Service still requests this DNS name")),
            "{told:?}"
        );
        asked.says(Err("services is forbidden".to_owned()));
        tokio::time::sleep(patience).await;
        assert_eq!(running.played.with(removed_names), [""; 0], "nobody knows");
        asked.says(Ok(said));
        running.until("it is removed", |it| removed_names(it) == ["n00.shop.example"]).await;
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn names_whose_end_was_not_seen_leave_dns_up_to_the_limit() {
    let all: Vec<Service> = (0..20).map(with_name).collect();
    let asked = ApiServer::who_says(Ok(None));
    let running = publishing(&asked);
    running.tell(all.iter().map(put).chain(synced())).await;
    running.until("all are published", |it| made_names(it) >= all.len()).await;
    // A list that came back without them.
    running.tell(all.iter().map(|it| Change::Missing(FactRef::Object(owner(it).object())))).await;
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(running.played.with(removed_names).len(), 3, "as many as may go in an hour");
    let told = running.handle.ask(|world| world.problems()).await.expect("the engine runs");
    assert!(told.iter().any(|it| it.reason == Reason::DeletionLimit), "{told:?}");
    // Those that are seen to go are not counted.
    running.tell(all.iter().map(put)).await;
    running.tell(all.iter().map(|it| Change::Gone(FactRef::Object(owner(it).object())))).await;
    running
        .until("all are gone", |it| {
            let names: BTreeSet<String> = removed_names(it).into_iter().collect();
            names.len() == all.len()
        })
        .await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn deletions_that_no_services_deletion_asked_for_stop_at_a_limit_over_restarts_and_others_go_on() {
    let named = |number: usize| {
        let mut service = shop();
        service.meta.name = format!("s{number:02}").into();
        service.meta.uid = service.meta.name.clone();
        service
    };
    let all: Vec<Service> = (0..50).map(named).collect();
    let otherwise = |it: &Service| Service { kind: ServiceKind::ClusterIp, ..it.clone() };
    let (asked, counts) = (ApiServer::who_says(Ok(Some(otherwise(&all[0])))), Counts::default());
    let removed = |it: &mut Script| it.applied.iter().filter(|it| it.2 == "remove").count();
    let made = |it: &mut Script| it.applied.iter().filter(|it| it.2 == "make").count();
    let begin = async || {
        let running = Running::limited(&asked, &counts);
        running.tell(all.iter().map(put).chain(synced())).await;
        running.until("all are made", |it| made(it) == all.len()).await;
        running
    };
    // Somebody's tool makes all of them another type.
    let running = begin().await;
    running.tell(all.iter().map(|it| put(&otherwise(it)))).await;
    running.until("some go", |it| removed(it) == 5).await;
    tokio::time::sleep(Duration::from_secs(200)).await;
    let most = running.played.with(removed);
    assert!((3..=5).contains(&most), "a tenth of what is there: {most}");
    let told = running.handle.ask(|world| world.problems()).await.expect("the engine runs");
    let limited = told.iter().filter(|it| it.reason == Reason::DeletionLimit).count();
    assert_eq!(limited, all.len() - most);
    running.stop().await;
    // Whoever begins again does not begin at nothing; what is deleted goes all the same.
    let running = begin().await;
    running.tell(all.iter().map(|it| put(&otherwise(it)))).await;
    tokio::time::sleep(Duration::from_secs(200)).await;
    let again = running.played.with(removed);
    assert!(again <= most, "{again} and not one more than {most}");
    asked.says(Ok(None));
    let deletions = all.iter().map(|it| Change::Gone(FactRef::Object(owner(it).object())));
    running.tell(deletions).await;
    running.until("all that was deleted goes", |it| removed(it) == all.len()).await;
    running.stop().await;
}
