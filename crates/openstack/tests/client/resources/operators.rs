//! What operators alone may do.

use seaway_openstack::{
    Class, Service,
    octavia::{AvailabilityZone, Flavor, FlavorChange, FlavorProfile, NewFlavor, NewFlavorProfile, Provider},
    quota::Limits,
    resource::Query,
};
use seaway_testkit::cloud::Fault;
use serde_json::json;

use super::stage::{Stage, sign_in};

#[tokio::test]
async fn quotas_are_set_read_and_reset_by_operators_alone() {
    let stage = Stage::set().await;
    let operator = sign_in(&stage.fake, "admin", &stage.clock).await.expect("signed in");
    let project = stage.cloud.session().project.clone().expect("a project").id;
    for (service, what) in [(Service::LoadBalancer, "load_balancer"), (Service::Network, "floatingip")] {
        let of = |cloud| match service {
            Service::Network => seaway_openstack::Cloud::network_quotas(cloud, &project),
            _ => seaway_openstack::Cloud::load_balancer_quotas(cloud, &project),
        };
        let before = of(&operator).read().await.expect("limits")[what];
        let limits = Limits::from([(what.to_owned(), 3)]);
        let refused = of(&stage.cloud).change(&limits).await.expect_err("not for everybody");
        assert_eq!(refused.class(), &Class::Forbidden, "{refused}");
        of(&operator).change(&limits).await.expect("changed");
        let now = of(&stage.cloud).read().await.expect("limits");
        assert_eq!((now[what], before == 3), (3, false), "{now:?}");
        of(&operator).reset().await.expect("reset");
        assert_eq!(of(&operator).read().await.expect("limits")[what], before);
        of(&operator).reset().await.expect("once more changes nothing");
    }
}

#[tokio::test]
async fn flavors_are_made_of_profiles_and_told_to_everybody() {
    let stage = Stage::set().await;
    let operator = sign_in(&stage.fake, "admin", &stage.clock).await.expect("signed in");
    let (profiles, flavors) = (operator.all::<FlavorProfile>(), operator.all::<Flavor>());
    let new = NewFlavorProfile {
        name: "p".into(),
        provider_name: "amphora".into(),
        flavor_data: "{}".into(),
        ..NewFlavorProfile::new()
    };
    let profile = profiles.create(&new).await.expect("a profile");
    assert_eq!(profiles.read::<FlavorProfile>(&profile.id).await.expect("it"), profile);
    let new = NewFlavor {
        name: "gold".into(),
        flavor_profile_id: Some(profile.id.clone()).into(),
        ..NewFlavor::new()
    };
    stage.fake.fail(Fault::on("POST */flavors").lose_reply());
    let flavor = flavors.create(&new).await.expect("it is found by its name");
    let seen = stage.cloud.all::<Flavor>().list::<Flavor>(Query::named("gold")).await.expect("flavors");
    assert_eq!(seen.iter().map(|it| &it.id).collect::<Vec<_>>(), [&flavor.id]);
    let in_use = profiles.delete(&profile.id).await.expect_err("a flavor needs it");
    assert_eq!(in_use.class(), &Class::InUse, "{in_use}");

    let told = json!({"flavor": {"id": flavor.id.as_str(), "name": "gold", "enabled": false}});
    stage.fake.fail(Fault::on("PUT */flavors/*").reply(200, told));
    let change = FlavorChange { enabled: false.into(), ..FlavorChange::default() };
    assert!(!flavors.change(&flavor.id, &change).await.expect("changed").enabled);
    flavors.delete(&flavor.id).await.expect("deleted");
    profiles.delete(&profile.id).await.expect("nothing needs it");
    assert_eq!(profiles.find::<FlavorProfile>(&profile.id).await.expect("an answer"), None);
}

#[tokio::test]
async fn what_providers_understand_in_flavors_is_told_to_operators() {
    let stage = Stage::set().await;
    let operator = sign_in(&stage.fake, "admin", &stage.clock).await.expect("signed in");
    let amphora = "amphora".parse().expect("an id");
    let capabilities = operator.all::<Provider>().flavor_capabilities(&amphora).await.expect("for operators");
    assert!(capabilities.iter().any(|it| !it.name.is_empty()), "{capabilities:?}");
    let refused =
        stage.cloud.all::<Provider>().flavor_capabilities(&amphora).await.expect_err("not for everybody");
    assert_eq!(refused.class(), &Class::Forbidden, "{refused}");
    stage.cloud.all::<AvailabilityZone>().list::<AvailabilityZone>(Query::all()).await.expect("zones");
}
