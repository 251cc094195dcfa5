use seaway_model::{Kind, L4, Owner, announced::AnnouncedReason, outcome::ServingSocket};

use super::*;
use crate::object_cache::{ServiceFinalizers, Version};

fn object() -> ObjectRef {
    ObjectRef::new(Kind::Service, "default", "shop")
}

fn status(addresses: &[&str], serving: &[&str], problems: &[&str]) -> Status {
    let ip = |text: &&str| text.parse().expect("an address");
    Status {
        owner: Owner::Object { object: object(), uid: "u".into() },
        addresses: addresses.iter().map(ip).collect(),
        serving: serving.iter().map(|it| ServingSocket { ip: ip(it), protocol: L4::Tcp, port: 80 }).collect(),
        members: 2,
        ready: addresses.len() == serving.len() && !addresses.is_empty(),
        problems: problems
            .iter()
            .map(|it| Problem::new(object(), Reason::NoEndpoints, *it).fix("mend\nit"))
            .collect(),
        pool: None,
        announced: None,
        shown: PublishedAs::default(),
        waits: None,
        takes_over: true,
        unreported: false,
        replaced: None,
        ports: Vec::new(),
        left: false,
    }
}

/// As it reads once `output` was written.
fn written(output: &StatusContent, before: &PublishedService) -> PublishedService {
    let body = output.body(&object(), "u", before, "now");
    let node = serde_json::json!({
        "metadata": {
            "name": "shop", "namespace": "default", "uid": "u", "resourceVersion": "2",
            "managedFields": [{"manager": "seaway", "fieldsV1": {"f:status": {}}}],
        },
        "status": body["status"],
    });
    crate::decode::published(&crate::decode::tests::told(&node.to_string()))
}

#[test]
fn an_address_is_published_once_it_is_served_and_stays_when_hosts_vanish() {
    let nothing = PublishedService { uid: "u".into(), ..PublishedService::default() };
    let waiting = StatusContent::of(&status(&["192.0.2.1"], &[], &[]), &nothing);
    assert_eq!(waiting.ingress, Some(vec![]));
    let said = written(&waiting, &nothing);
    assert!(waiting.is_published(&said));
    let served = StatusContent::of(&status(&["192.0.2.1"], &["192.0.2.1"], &[]), &said);
    assert!(!served.is_published(&said));
    let notes: Vec<String> = served.events(&said).iter().map(ToString::to_string).collect();
    assert_eq!(notes, ["AddressPublished: reachable at 192.0.2.1"]);
    let said = written(&served, &said);
    assert_eq!(
        said.ingress,
        [Ingress { at: "192.0.2.1".into(), mode: Some("Proxy".into()), ..Ingress::default() }]
    );
    assert!(served.is_published(&said) && served.events(&said).is_empty());
    let vanished = StatusContent::of(&status(&["192.0.2.1"], &[], &[]), &said);
    assert_eq!(vanished.ingress.map(|it| it[0].at.clone()), Some("192.0.2.1".into()));
    assert_eq!(
        (vanished.conditions[0].status, &*vanished.conditions[0].reason),
        (ConditionStatus::False, "NotServed")
    );
    let gone = StatusContent::none(&said);
    assert!(!gone.is_published(&said));
    assert_eq!(gone.events(&said).len(), 1);
    assert!(gone.is_published(&written(&gone, &said)));
}

#[test]
fn who_is_released_keeps_its_addresses_and_loses_our_conditions() {
    let nothing = PublishedService { uid: "u".into(), ..PublishedService::default() };
    let served = StatusContent::of(&status(&["192.0.2.1"], &["192.0.2.1"], &["it is released"]), &nothing);
    let said = written(&served, &nothing);
    let left = Status { left: true, ..status(&[], &[], &[]) };
    let output = StatusContent::of(&left, &said);
    assert!(!output.is_published(&said), "conditions are there");
    assert!(output.events(&said).is_empty(), "no address is withdrawn");
    let after = written(&output, &said);
    assert_eq!((&after.ingress, after.conditions.len()), (&said.ingress, 0));
    assert!(output.is_published(&after));
    // What another wrote since is its own.
    let others = PublishedService { other: Some("another".into()), ..said };
    assert_eq!(StatusContent::of(&left, &others).ingress, None);
    assert!(StatusContent::of(&left, &nothing).is_published(&nothing), "nothing of ours is there");
}

#[test]
fn ready_is_not_taken_back_before_a_driver_has_reported() {
    let nothing = PublishedService { uid: "u".into(), ..PublishedService::default() };
    let served = StatusContent::of(&status(&["192.0.2.1"], &["192.0.2.1"], &[]), &nothing);
    let said = written(&served, &nothing);
    let unknown = Status { unreported: true, ..status(&["192.0.2.1"], &[], &["503"]) };
    let started = StatusContent::of(&unknown, &said);
    assert_eq!(started.conditions[0].status, ConditionStatus::True);
    assert_eq!(started.conditions.len(), 2, "what is wrong is said all the same");
    let known = StatusContent::of(&Status { unreported: false, ..unknown.clone() }, &said);
    assert_eq!(known.conditions[0].status, ConditionStatus::False);
    let never = StatusContent::of(&unknown, &nothing);
    assert_eq!(never.conditions[0].status, ConditionStatus::False, "it was never said");
}

#[test]
fn members_that_come_and_go_are_no_reason_to_write() {
    let nothing = PublishedService { uid: "u".into(), ..PublishedService::default() };
    let mut served = status(&["192.0.2.1"], &["192.0.2.1"], &[]);
    let said = written(&StatusContent::of(&served, &nothing), &nothing);
    served.members += 1;
    assert!(StatusContent::of(&served, &said).is_published(&said));
}

#[test]
fn each_problem_is_told_once_and_not_again_after_a_restart() {
    let nothing = PublishedService { uid: "u".into(), ..PublishedService::default() };
    let one = StatusContent::of(&status(&[], &[], &["first"]), &nothing);
    assert_eq!(
        one.events(&nothing).iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["NoEndpoints: Service default/shop: first. mend it"]
    );
    let said = written(&one, &nothing);
    assert!(one.is_published(&said), "{said:?}");
    let two = StatusContent::of(&status(&[], &[], &["first", "second"]), &said);
    assert_eq!(two.events(&said).len(), 1);
    let none = StatusContent::of(&status(&[], &[], &[]), &written(&two, &said));
    assert_eq!(none.conditions.len(), 1);
    assert_eq!(none.events(&written(&two, &said)), []);
}

#[test]
fn what_others_wrote_first_is_taken_over_and_what_they_write_after_us_is_left_to_them() {
    let metallb = PublishedService {
        address: None,
        uid: "u".into(),
        version: Version("1".into()),
        ingress: vec![Ingress { at: "192.0.2.1".into(), mode: Some("VIP".into()), ..Ingress::default() }],
        conditions: Vec::new(),
        ours: false,
        held: ServiceFinalizers::default(),
        balancer: None,
        other: Some("metallb".into()),
        shared: false,
    };
    let wanted = status(&["192.0.2.1"], &["192.0.2.1"], &[]);
    let taken = StatusContent::of(&wanted, &metallb);
    assert!(!taken.is_published(&metallb), "a VIP is made a Proxy");
    assert_eq!(taken.ingress.as_ref().map(Vec::len), Some(1));
    assert!(StatusContent::none(&metallb).is_published(&metallb), "what we never wrote is not ours to clear");
    let asked = Status { takes_over: false, ..wanted.clone() };
    assert_eq!(StatusContent::of(&asked, &metallb).ingress, None, "not without a word");
    let fought = PublishedService { ours: true, ..metallb };
    assert_eq!(fought.rival().map(|it| &**it), Some("metallb"));
    assert_eq!(StatusContent::of(&wanted, &fought).ingress, None);
}

#[test]
fn who_wrote_the_same_addresses_before_us_is_no_rival_and_keeps_them_until_we_have_others() {
    let read = |ours: &str, at: &str| {
        let theirs = serde_json::json!({"f:status": {"f:loadBalancer": {"f:ingress": {}}}});
        let ours: serde_json::Value = serde_json::from_str(ours).expect("is JSON");
        let node = serde_json::json!({
            "metadata": {"name": "shop", "namespace": "default", "uid": "u", "resourceVersion": "2", "managedFields": [
                {"manager": "seaway", "fieldsV1": ours},
                {"manager": "openstack-cloud-controller-manager", "fieldsV1": theirs},
            ]},
            "status": {"loadBalancer": {"ingress": [{"ip": at, "ipMode": "VIP"}]}},
        });
        crate::decode::published(&crate::decode::tests::told(&node.to_string()))
    };
    // It has an address of OCCM's, and what is there was not looked at yet.
    let theirs = read("{}", "192.0.2.1");
    let pending = status(&[], &[], &[]);
    let first = StatusContent::of(&pending, &theirs);
    assert_eq!(first.ingress, Some(theirs.ingress.clone()), "the first status says the same");
    let both = read(r#"{"f:status": {"f:loadBalancer": {"f:ingress": {}}}}"#, "192.0.2.1");
    assert_eq!(both.rival(), None);
    assert_eq!(StatusContent::of(&pending, &both).ingress, Some(theirs.ingress), "and so does the next");
    let moved = StatusContent::of(&status(&["192.0.2.9"], &["192.0.2.9"], &[]), &both).ingress;
    assert_eq!(moved.map(|it| it[0].at.clone()), Some("192.0.2.9".into()), "another address is told");
    // Whoever wrote another one after us has taken it from us.
    let fought = read(r#"{"f:status": {"f:conditions": {}}}"#, "192.0.2.3");
    assert_eq!(fought.rival().map(|it| &**it), Some("openstack-cloud-controller-manager"));
    assert_eq!(StatusContent::of(&pending, &fought).ingress, None);
}

#[test]
fn a_cluster_that_knows_no_mode_is_not_written_to_for_ever_and_is_told() {
    let nothing = PublishedService { uid: "u".into(), ..PublishedService::default() };
    let wanted = StatusContent::of(&status(&["192.0.2.1"], &["192.0.2.1"], &[]), &nothing);
    let mut said = written(&wanted, &nothing);
    assert!(!lacks_ip_mode(&status(&[], &[], &[]), &said));
    // As an API server before 1.29 reads back what it was sent.
    said.ingress[0].mode = None;
    assert!(lacks_ip_mode(&status(&[], &[], &[]), &said));
    assert!(wanted.is_published(&said), "it would be dropped again");
    let others = PublishedService { ours: false, ..said };
    assert!(
        !lacks_ip_mode(&status(&[], &[], &[]), &others),
        "what somebody else wrote is no complaint of ours"
    );
}

#[test]
fn an_address_is_told_as_the_service_wants_it_and_stays_so_while_nobody_has_asked() {
    let nothing = PublishedService { uid: "u".into(), ..PublishedService::default() };
    let suffix = || PublishedAs::Suffixed("nip.io".into());
    for (how, told) in [
        (PublishedAs::Proxy, r#"[{"ip":"192.0.2.1","ipMode":"Proxy"}]"#),
        (PublishedAs::Vip, r#"[{"ip":"192.0.2.1","ipMode":"VIP"}]"#),
        (PublishedAs::Name("shop.example".into()), r#"[{"hostname":"shop.example"}]"#),
        (suffix(), r#"[{"hostname":"192.0.2.1.nip.io"}]"#),
    ] {
        let mut wanted = status(&["192.0.2.1"], &["192.0.2.1"], &[]);
        wanted.shown = how.clone();
        let output = StatusContent::of(&wanted, &nothing);
        let body = output.body(&object(), "u", &nothing, "now");
        assert_eq!(body["status"]["loadBalancer"]["ingress"].to_string(), told);
        let said = written(&output, &nothing);
        assert!(output.is_published(&said), "{how:?}");
        if !matches!(how, PublishedAs::Proxy | PublishedAs::Vip) {
            let restarted = Status { addresses: Vec::new(), serving: Vec::new(), ..wanted.clone() };
            let kept = StatusContent::of(&restarted, &said).ingress;
            assert_eq!(kept.map(|it| it.len()), Some(1), "{how:?}");
        }
        // And from one to another.
        let other = Status { shown: PublishedAs::Name("other.example".into()), ..wanted };
        assert!(!StatusContent::of(&other, &said).is_published(&said));
    }
    let mut vip = status(&["192.0.2.1"], &["192.0.2.1"], &[]);
    vip.shown = PublishedAs::Vip;
    let mut said = written(&StatusContent::of(&vip, &nothing), &nothing);
    said.ingress[0].mode = None;
    assert!(!lacks_ip_mode(&vip, &said), "it is the API's default");
}

#[test]
fn whether_it_is_announced_is_a_condition_of_its_own_and_is_written_once() {
    let nothing = PublishedService { uid: "u".into(), ..PublishedService::default() };
    let mut served = status(&["192.0.2.1"], &["192.0.2.1"], &["first"]);
    let before = written(&StatusContent::of(&served, &nothing), &nothing);
    served.announced = Some(AnnouncedCondition::new(AnnouncedReason::NotAnnounced, "nothing announces it"));
    let output = StatusContent::of(&served, &before);
    assert!(!output.is_published(&before), "an older version said nothing of it");
    let said = written(&output, &before);
    assert!(output.is_published(&said), "{said:?}");
    let sight = said.inspection("default".into(), "shop".into());
    assert_eq!(sight.ready.map(|it| it.0), Some(true), "a host serves it");
    let announced = sight.announced.map(|(status, reason, _)| (status, reason.to_string()));
    assert_eq!(announced, Some((ConditionStatus::False, "NotAnnounced".to_owned())));
    assert_eq!(sight.problems.len(), 1, "it is no Problem of the Service");
    let events = |output: &StatusContent, before: &PublishedService| {
        let notes = output.events(before).into_iter().filter(|it| *it.reason == *"NotAnnounced");
        notes.map(|it| (it.warning, it.text)).collect::<Vec<_>>()
    };
    assert_eq!(events(&output, &before), [(true, "nothing announces it".to_owned())]);
    served.announced = Some(AnnouncedCondition::new(AnnouncedReason::NotAnnounced, "nothing announces them"));
    assert_eq!(events(&StatusContent::of(&served, &said), &said), [], "in other words it is no news");

    served.announced = Some(AnnouncedCondition::new(AnnouncedReason::Metallb, "it may be"));
    let unknown = written(&StatusContent::of(&served, &said), &said);
    assert_eq!(events(&StatusContent::of(&served, &said), &said), []);
    assert_eq!(events(&output, &unknown).len(), 1, "it is so again");
    let body = StatusContent::of(&served, &unknown).body(&object(), "u", &unknown, "later");
    let conditions = body["status"]["conditions"].as_array().expect("a list").iter();
    let of = |it: &Value| (it["type"].to_string(), it["status"].to_string(), it["reason"].to_string());
    let told: Vec<_> = conditions.map(of).collect();
    let wanted = ("\"seaway.dev/Announced\"", "\"Unknown\"", "\"MetalLB\"");
    assert!(told.contains(&(wanted.0.into(), wanted.1.into(), wanted.2.into())), "{told:?}");
    assert!(
        StatusContent::of(&served, &unknown).is_published(&unknown),
        "what is unknown is read as unknown"
    );
}

#[test]
fn a_condition_that_stays_keeps_its_moment() {
    let nothing = PublishedService { uid: "u".into(), ..PublishedService::default() };
    let first = StatusContent::of(&status(&["192.0.2.1"], &[], &[]), &nothing);
    let said = written(&first, &nothing);
    let body = first.body(&object(), "u", &said, "later");
    assert_eq!(body["status"]["conditions"][0]["lastTransitionTime"], "now");
    let served = StatusContent::of(&status(&["192.0.2.1"], &["192.0.2.1"], &[]), &said);
    let body = served.body(&object(), "u", &said, "later");
    assert_eq!(body["status"]["conditions"][0]["lastTransitionTime"], "later");
}

/// Who starts next gives each Service the ports that it had.
#[test]
fn ports_at_hosts_addresses_are_told_with_who_lacks_which_and_written_once() {
    let nothing = PublishedService { uid: "u".into(), ..PublishedService::default() };
    let of_version_before = status(&["192.0.2.1"], &["192.0.2.1"], &[]);
    let before = written(&StatusContent::of(&of_version_before, &nothing), &nothing);
    let at = |ip: [u8; 4], port| ServingSocket { ip: ip.into(), protocol: L4::Tcp, port };
    let ports = vec![
        PortStatus { at: at([192, 0, 2, 1], 80), lacks: None },
        PortStatus { at: at([192, 0, 2, 1], 443), lacks: Some(Reason::PortConflict) },
        PortStatus { at: at([192, 0, 2, 2], 80), lacks: None },
    ];
    let told = StatusContent::of(&Status { ports, ..of_version_before }, &before);
    assert!(!told.is_published(&before), "a status of the version before has no ports");
    assert!(told.events(&before).is_empty(), "nothing came or went");
    let body = told.body(&object(), "u", &before, "now");
    let expected = json!([
        {"port": 80, "protocol": "TCP"},
        {"port": 443, "protocol": "TCP", "error": "seaway.dev/PortConflict"},
    ]);
    assert_eq!(body["status"]["loadBalancer"]["ingress"][0]["ports"], expected);
    let said = written(&told, &before);
    assert!(told.is_published(&said), "{said:?}");
    let left = StatusContent::of(&Status { left: true, ..status(&[], &[], &[]) }, &said);
    assert_eq!(left.ingress.as_ref(), Some(&said.ingress), "what stays published stays as it is");
}
