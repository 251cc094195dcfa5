//! What somebody changes by hand at a load balancer of ours is put right, and told.

use std::{collections::BTreeMap, net::Ipv4Addr};

use seaway_openstack::{
    Class, Error,
    octavia::{
        HealthMonitor, Listener, ListenerChange, Member, NewMember, Persistence, PersistenceType, Pool,
        PoolChange,
    },
    resource::{Edit, Id, Query},
};
use serde_json::Value;

use crate::{
    scene::deployment,
    stage::{AUTH_URL, BALANCERS, Stage, until},
};

const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: shop}
spec:
  type: LoadBalancer
  loadBalancerClass: seaway.dev/octavia
  selector: {app: shop}
  ports: [{name: a, port: 80}, {name: b, port: 8080, targetPort: 80}]
";

#[test]
fn what_somebody_changes_by_hand_is_put_right_and_told() {
    let Some(mut stage) = Stage::set(&["a", "b"]) else { return };
    stage.lead(AUTH_URL);
    let before = stage.land.everything();
    let cluster = stage.scene.cluster.clone();
    cluster.apply(&deployment("shop", 1));
    cluster.apply(SERVICE);
    let address = stage.address("shop");
    let serves = || {
        stage.answers(&format!("http://{address}/"), "shop");
        stage.answers(&format!("http://{address}:8080/"), "shop");
    };
    serves();
    let rest = || stage.land.at_rest(|all| all.len() == 11);
    let made = shape(&rest());
    let tells = |what: &str| {
        let events = || stage.scene.field("events", EVENTS);
        until(&format!("an event tells that {what}"), || events().contains(what));
    };

    // One after the other, each until it is put right: what is found while Seaway itself writes is put right, and not told.
    let mended = || {
        until("it is as it was", || shape(&stage.land.told(&BALANCERS)) == made);
        rest();
    };
    let (land, cloud) = (&stage.land, &stage.land.cloud);

    // Changed.
    let listener = id_of::<Listener>(&stage, "listeners", "listener_0_");
    let limit = ListenerChange { connection_limit: Edit::To(Some(7)), ..ListenerChange::default() };
    by_hand(&stage, || land.runtime.block_on(cloud.all::<Listener>().change(&listener, &limit)));
    tells("the listener of 80/TCP was changed");
    mended();
    let pool = id_of::<Pool>(&stage, "pools", "pool_1_");
    let kept = PoolChange {
        session_persistence: Edit::To(Some(Persistence {
            kind: PersistenceType::SourceIp,
            ..Persistence::default()
        })),
        // OVN trips over it otherwise.
        admin_state_up: Edit::To(true),
        ..PoolChange::default()
    };
    by_hand(&stage, || land.runtime.block_on(cloud.all::<Pool>().change(&pool, &kept)));
    tells("the pool of 8080/TCP was changed");
    mended();
    let members = cloud.within::<Member>(&pool);
    let stranger = NewMember::new(Ipv4Addr::new(10, 0, 0, 77), 80_u16);
    by_hand(&stage, || land.runtime.block_on(members.create(&stranger)));
    tells("10.0.0.77:80");
    mended();
    serves();

    // Taken away: a member, a monitor, a listener.
    let of_pool = land.runtime.block_on(members.list::<Member>(Query::all()));
    let first = of_pool.expect("a list").remove(0);
    assert!(stage.land.told(&["members"]).contains_key(&format!("members/{}", first.id)));
    by_hand(&stage, || land.runtime.block_on(members.delete(&first.id)));
    until("the member is gone", || {
        !stage.land.told(&["members"]).contains_key(&format!("members/{}", first.id))
    });
    mended();
    let monitor = id_of::<HealthMonitor>(&stage, "healthmonitors", "monitor_1_");
    by_hand(&stage, || land.runtime.block_on(cloud.all::<HealthMonitor>().delete(&monitor)));
    tells("the health monitor of 8080/TCP was deleted");
    mended();
    let listener = id_of::<Listener>(&stage, "listeners", "listener_0_");
    by_hand(&stage, || land.runtime.block_on(cloud.all::<Listener>().delete(&listener)));
    tells("the listener of 80/TCP was deleted");
    mended();
    serves();

    cluster.kubectl(&["delete", "service", "shop", "--wait=false"]);
    until("nothing is left", || stage.land.has_only(&before));
}

/// One write, as soon as nothing is under way.
fn by_hand<T>(stage: &Stage, write: impl Fn() -> Result<T, Error>) {
    until("somebody may change it by hand", || {
        stage.land.at_rest(|_| true);
        match write() {
            Ok(_) => true,
            // An audit of Seaway came in between.
            Err(error) if matches!(error.class(), Class::Immutable | Class::Conflict) => false,
            Err(error) => panic!("{error}"),
        }
    });
}

const EVENTS: &str = "{.items[?(@.reason=='Drift')].message}";

fn id_of<R>(stage: &Stage, kind: &str, name: &str) -> Id<R> {
    let all = stage.land.told(&[kind]);
    let it = all.values().find(|it| it["name"].as_str().is_some_and(|it| it.starts_with(name)));
    it.expect("it is there")["id"].as_str().expect("an id").parse().expect("an id")
}

/// What of it Seaway writes, without what names it.
fn shape(all: &BTreeMap<String, Value>) -> Vec<String> {
    const WHAT: [&str; 13] = [
        "name",
        "protocol",
        "protocol_port",
        "connection_limit",
        "admin_state_up",
        "lb_algorithm",
        "session_persistence",
        "address",
        "weight",
        "type",
        "delay",
        "timeout",
        "max_retries",
    ];
    let one = |(key, it): (&String, &Value)| {
        let kind = key.split('/').next().unwrap_or_default();
        // A member has no name of ours, and nobody asks for one.
        let is_asked = |field: &&&str| **field != "name" || kind != "members";
        let fields = WHAT.iter().filter(is_asked).map(|field| it[*field].to_string());
        format!("{kind} {}", fields.collect::<Vec<_>>().join(" "))
    };
    let mut told: Vec<String> = all.iter().map(one).collect();
    told.sort();
    told
}
