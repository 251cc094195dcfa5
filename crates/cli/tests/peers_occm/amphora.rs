//! What OVN cannot, and Octavia's own provider can: HTTP, PROXY, TLS, other methods, source ranges. Nobody is inside of the rig's
//! amphorae, so no packets flow: requests to the cloud and trees are compared.

use crate::{
    certificates::kept_by_hand,
    migration::{Migration, service},
    stage::Stage,
    tree::beyond_tags,
};

fn kinds(certificate: &str) -> Vec<(&'static str, String)> {
    let web = "ports: [{port: 80}]";
    let local = "externalTrafficPolicy: Local, ports: [{port: 80}]";
    let two = "ports: [{name: a, port: 80}, {name: b, port: 8080, targetPort: 80}]";
    let both =
        "ports: [{name: u, port: 53, targetPort: 7, protocol: UDP}, {name: t, port: 53, targetPort: 80}]";
    let ranges = "sessionAffinity: ClientIP, loadBalancerSourceRanges: [172.24.4.0/24, 192.0.2.0/24], ports: [{port: 80}]";
    vec![
        service("http", &[("x-forwarded-for", "true"), ("timeout-client-data", "60000")], two),
        service("proxy", &[("proxy-protocol", "v2"), ("connection-limit", "500")], web),
        service("tls", &[("default-tls-container-ref", certificate)], "ports: [{port: 443, targetPort: 80}]"),
        service("method", &[("lb-method", "SOURCE_IP")], ranges),
        service("local", &[], local),
        service("quiet", &[("enable-health-monitor", "false")], local),
        service("first", &[], both),
    ]
}

#[test]
fn services_of_amphora_go_from_occm_to_seaway_and_back_as_they_are() {
    let prepare = |stage: &mut Stage| {
        stage.join("a");
        stage.land.provider = "lb-provider=amphora\nlb-method=LEAST_CONNECTIONS\n";
    };
    let Some(mut all) = Migration::set("amphora", prepare) else { return };
    let certificate = kept_by_hand(&all.stage.land);
    all.serve(&kinds(&certificate));
    all.serve_on("first", "second", "ports: [{port: 81, targetPort: 80}]");

    let came = all.come_to_seaway();
    let went = all.back_to_occm();
    assert_eq!(beyond_tags(&came.seen), [""; 0]);
    assert_eq!(came.written_beyond(&[]), [""; 0], "nothing is written once more as it is, such as members");
    assert_eq!(went.seen, [""; 0]);
    assert_eq!(went.deletions(), [""; 0]);
    all.delete_all();
}
