use std::{future::pending, time::Duration};

use clap::Parser;
use seaway_model::{
    Config,
    config::{FrontDoorRoutes, FrontDoorServices, OpenPolicy, TlsSecrets, UnlistedHosts},
};
use tokio::time::timeout;

use super::{died::died, *};
use crate::{
    args::{Cli, Command},
    look,
};

fn loaded(config: &str) -> Settings {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("seaway.yaml");
    std::fs::write(&file, config).unwrap();
    let line = ["seaway", "node", "--host", "node-7", "--config", &file.to_string_lossy()];
    let Command::Node(arguments) = Cli::parse_from(line).command else { panic!("another command") };
    load(&arguments.member, Part::Controller).unwrap()
}

#[test]
fn the_front_door_is_closed_in_a_cluster_unless_somebody_opens_it() {
    assert_eq!(loaded("").config.front_door.opens, OpenPolicy::Never);
    assert_eq!(loaded("frontDoor: {enabled: true}").config.front_door.opens, OpenPolicy::Always);
    assert_eq!(loaded("frontDoor: {enabled: false}").config.front_door.opens, OpenPolicy::Never);
}

#[test]
fn what_tenants_could_harm_others_by_is_closed_in_a_cluster_unless_the_configuration_opens_it() {
    let Config { front_door, tenants, .. } = loaded("frontDoor: {enabled: true}").config;
    assert_eq!(
        (front_door.services, front_door.tls.secrets),
        (FrontDoorServices::Annotated, TlsSecrets::Named)
    );
    assert_eq!((front_door.routes, front_door.owners.others), (FrontDoorRoutes::Never, UnlistedHosts::First));
    assert_eq!((tenants.members.machines, tenants.members.names), (false, false));
    assert_eq!(tenants.sources, Some(vec![]));
    let open = "{frontDoor: {services: all, tls: {secrets: all}, parentRef: a/b, hostOwners: {others: shared}}, \
                tenants: {membersByName: true, transparentFrom: [192.0.2.0/24]}}";
    let Config { front_door, tenants, .. } = loaded(open).config;
    assert_eq!((front_door.services, front_door.tls.secrets), (FrontDoorServices::All, TlsSecrets::All));
    assert!(matches!(front_door.routes, FrontDoorRoutes::Of(_)) && !front_door.owners.are_enforced());
    assert!(tenants.members.names && !tenants.members.machines);
    assert_eq!(tenants.sources.map(|it| it.len()), Some(1));
}

#[test]
fn services_without_a_class_are_left_alone_in_a_cluster_unless_somebody_says_otherwise() {
    assert!(!loaded("").config.classless);
    assert!(loaded("defaultDriver: native").config.classless);
    assert!(!loaded("defaultDriver: none").config.classless);
}

#[test]
fn what_is_shown_of_a_cloud_is_planned_by_the_configuration_of_a_controller() {
    let folder = tempfile::tempdir().unwrap();
    let [config, conf] = ["seaway.yaml", "cloud.conf"].map(|it| folder.path().join(it));
    std::fs::write(&conf, "[LoadBalancer]\nsubnet-id=s\nfloating-network-id=f\n").unwrap();
    let line = |command: &[&str]| {
        let files = [("--config", &config), ("--cloud-config", &conf)];
        let files = files.map(|(flag, file)| [flag.to_owned(), file.to_string_lossy().into_owned()]);
        let command = command.iter().map(|it| (*it).to_owned());
        Cli::parse_from(["seaway".to_owned()].into_iter().chain(command).chain(files.into_iter().flatten()))
    };
    for text in [
        "",
        "defaultDriver: native",
        "defaultDriver: octavia",
        "defaultDriver: none",
        "frontDoor: {enabled: true}",
        "{defaultDriver: octavia, cloud: {rebuildOnError: true, orphans: delete}}",
    ] {
        std::fs::write(&config, text).unwrap();
        let Command::Controller(it) = line(&["controller"]).command else { panic!("another command") };
        let controller = Arguments { cloud: it.cloud, ..it.member };
        let controller = load(&controller, Part::Controller).unwrap();
        let Command::Plan(plan) = line(&["plan", "--cloud"]).command else { panic!("another command") };
        let shown = look::cloud::settings_of(&plan, &conf).unwrap();
        assert_eq!(shown.config, controller.config, "{text}");
    }
    std::fs::write(&conf, "[LoadBalancer]\ninternal-lb=ture\n").unwrap();
    let Command::Plan(plan) = line(&["plan", "--cloud"]).command else { panic!("another command") };
    let refused = look::cloud::settings_of(&plan, &conf).unwrap_err();
    assert!(refused.to_string().contains(":2: [LoadBalancer] internal-lb"), "{refused}");
}

#[tokio::test]
async fn the_death_of_an_engine_is_noticed_and_a_life_is_not() {
    let (_stop, stopped) = watch::channel(false);
    let world = World::new(Roles::default(), Vec::new(), Arc::default());
    let (engine, handle) = Engine::new(world, Drivers::default(), Loop::default());
    let mut engine = tokio::spawn(engine.run(stopped));
    let (tell, heard) = mpsc::channel(1);
    let changes = handle.changes();
    let reported = crate::control::ReportedProblems::new(seaway_engine::ProblemLog::default());
    let mut hearing = tokio::spawn(
        ChangeForwarder { changes, own_host: None, memory: Memory::default(), reported }.run(heard),
    );
    let mut life = std::pin::pin!(died(&mut engine, pending(), &mut hearing));
    assert!(timeout(Duration::from_millis(50), &mut life).await.is_err());
    drop(tell);
    assert_eq!(life.await, "the forwarder of watch events has ended");
    let mut killed: JoinHandle<World> = tokio::spawn(pending());
    killed.abort();
    let mut hearing = tokio::spawn(pending());
    let what = died(&mut killed, pending(), &mut hearing).await;
    assert!(what.starts_with("the engine failed (task "), "{what}");
}

#[test]
fn a_host_is_called_as_its_node_is() {
    assert_eq!(&*loaded("host: {name: machine}").host, "node-7");
}
