//! Hosts that start while there is no API server.

use std::{fs, os::unix::fs::PermissionsExt};

use seaway_testkit::{
    topology::until,
    traffic::{Clients, Kind, Target},
};

use crate::scene::{Scene, deployment, service};

/// Each on a new connection.
const RATE: u32 = 500;

/// Whether a host that starts without an API server would serve this. It is kept every few seconds: pods that answer already may
/// not be ready in there yet.
pub(crate) fn is_kept(scene: &Scene, host: &str, ip: &str) -> bool {
    let known = fs::read_to_string(scene.snapshot(host)).unwrap_or_default();
    let mut pods = known.lines().filter(|line| line.contains("10.244.")).peekable();
    let are_ready = pods.peek().is_some() && pods.all(|line| !line.contains("\"ready\":false"));
    are_ready && known.matches(ip).count() > 1
}

#[test]
fn a_host_that_starts_without_an_api_server_serves_what_it_knew_until_the_api_server_says_more() {
    let Some(mut scene) = Scene::up(1) else { return };
    let host = scene.nodes[0].name().to_owned();
    scene.cluster.apply(&deployment("shop", 2));
    for name in ["shop", "goes"] {
        scene.cluster.apply(&service(name, "selector: {app: shop}"));
    }
    let (at, goes) = (scene.answering("shop"), scene.address("goes"));
    let answers = |scene: &Scene, ip: &str| scene.outside.curl(&format!("http://{ip}/")).is_ok();
    until("both answer", || answers(&scene, &goes));
    let kept = scene.snapshot(&host);
    until("snapshot written", || is_kept(&scene, &host, &goes));
    let mode = fs::metadata(&kept).expect("is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    scene.kill(&host);
    assert!(!answers(&scene, &at.ip().to_string()), "nobody serves it");
    // What nobody tells that host before the API server is gone.
    scene.cluster.kubectl(&["delete", "service", "goes"]);
    scene.cluster.apply(&service("later", "selector: {app: shop}"));
    scene.cluster.kill_api();
    scene.serve(0);
    let says = "serving the configuration saved at";
    until("it says so", || scene.log(&host).contains(says));
    until("it serves", || answers(&scene, &at.ip().to_string()) && answers(&scene, &goes));
    assert!(scene.state(&scene.nodes[0]).contains(says), "{}", scene.state(&scene.nodes[0]));
    let told = crate::metrics::told(&scene, &host);
    assert!(told.contains("seaway_snapshot_in_use 1\n"), "{told}");
    assert!(told.contains("seaway_snapshot_timestamp_seconds 1"), "{told}");

    let clients = scene.outside.run(Clients::here);
    let load = clients.load(vec![Target::new("shop", Kind::Http, at).times(RATE)]);
    load.goes_on(RATE as usize);
    scene.cluster.start_api();
    // Its address may be the one that came meanwhile within the same second: asked for, it answers on.
    let gone = "listener closed listener=default/goes:80";
    until("what is gone is served no more", || scene.log(&host).contains(gone));
    let later = scene.address("later");
    let on_lo = || scene.nodes[0].namespace().ip(&["address", "show", "lo"]);
    until("its address is gone", || later == goes || !on_lo().contains(&goes));
    until("what came meanwhile is served", || answers(&scene, &later));
    until("it is as the API server says", || {
        let state = scene.state(&scene.nodes[0]);
        !state.is_empty() && !state.contains(says)
    });
    until("metrics say so", || crate::metrics::told(&scene, &host).contains("seaway_snapshot_in_use 0\n"));
    load.goes_on(RATE as usize);
    let heard = load.end();
    eprintln!("{heard}");
    heard.was_always_answered();
}
