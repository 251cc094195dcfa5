//! Whom a client stays with, as OVN itself has it: Octavia tells what it was asked for, whether that came there or not.

use serde_json::Value;

use crate::stage::{AUTH_URL, Stage, until};

const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: shop}
spec:
  type: LoadBalancer
  loadBalancerClass: seaway.dev/octavia
  selector: {app: shop}
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 300}}
  ports:
  - {name: one, port: 53, protocol: UDP}
  - {name: two, port: 54, protocol: UDP}
  - {name: web, port: 80}
";

#[test]
fn ovn_keeps_clients_for_as_long_as_they_are_to_be_kept_and_not_longer() {
    let Some(mut stage) = Stage::set(&["a"]) else { return };
    stage.lead(AUTH_URL);
    let before = stage.land.everything();
    stage.scene.cluster.apply(SERVICE);
    stage.address("shop");
    let mut made = stage.land.told(&["loadbalancers"]);
    let (_, balancer) = made.pop_first().expect("a load balancer");
    let balancer = balancer["id"].as_str().expect("an id");
    let kept = |seconds: u16| {
        let options = stage.land.rig.in_ovn(balancer, "options").replace('"', "");
        options.contains(&format!("affinity_timeout={seconds}"))
    };
    let pools = || stage.land.told(&["pools"]);
    let say = |words: &str| {
        stage.scene.cluster.kubectl(&["patch", "service", "shop", "--type", "json", "-p", words]);
    };
    until("clients that send datagrams are kept from the first on", || kept(300));
    let problems = || stage.scene.field("service/shop", PROBLEMS);
    until("it is told that others are not", || problems().contains("80/TCP: OVN has no session affinity"));
    assert!(!problems().contains("UDP"));

    let time = "/spec/sessionAffinityConfig/clientIP/timeoutSeconds";
    say(&format!(r#"[{{"op": "replace", "path": "{time}", "value": 400}}]"#));
    until("it is another time", || kept(400));
    until("of both ports", || {
        let is_new = |it: &&Value| it["session_persistence"]["persistence_timeout"] == 400;
        pools().values().filter(is_new).count() == 2
    });
    // OVN forgets all with one.
    say(r#"[{"op": "remove", "path": "/spec/ports/1"}]"#);
    until("a port is gone", || pools().len() == 2);
    until("the other keeps them", || kept(400));
    say(
        r#"[{"op": "remove", "path": "/spec/sessionAffinityConfig"}, {"op": "replace", "path": "/spec/sessionAffinity", "value": "None"}]"#,
    );
    until("no client is kept", || !kept(400));
    until("all pools are probed, and there are no others", || {
        let all = pools();
        let is_done = |it: &Value| it["session_persistence"].is_null() && it["healthmonitor_id"].is_string();
        all.len() == 2 && all.values().all(is_done)
    });
    until("nothing is wrong any more", || !problems().contains("OVN has no session affinity"));

    stage.scene.cluster.kubectl(&["delete", "service", "shop", "--wait=false"]);
    until("nothing is left", || stage.land.has_only(&before));
}

const PROBLEMS: &str = "{.status.conditions[?(@.type=='seaway.dev/Problems')].message}";
