//! Changes that need no reload.

use std::{net::TcpListener, time::Duration};

use seaway_haproxy::document::{FileKind as Files, *};
use seaway_testkit::traffic::{Clients, Kind, Target, trusting};

use crate::place::{BACKENDS, Place, certificate, key, label, place, slots};

/// One change of each kind in turn; what `shop.example` needs stays there.
fn change(place: &Place, document: &mut Document, number: usize, spare: &Pem, renewed: &[Pem; 2]) {
    let backend = format!("b{}", number / 5 % BACKENDS);
    match number % 5 {
        // A member joins, and later leaves.
        0 => {
            let slot = &mut slots(document, &backend)[1 + number / 50 % 3];
            slot.member = slot.member.is_none().then(|| place.member(number));
        }
        1 => {
            for slot in slots(document, &backend) {
                slot.member.iter_mut().for_each(|it| it.weight = 1 + (number % 100) as u16);
            }
        }
        2 => {
            let entries = &mut document.maps.get_mut(&label("prefix.map")).expect("a map").entries;
            let host = key(&format!("host-{}.example/", number / 5 % 20));
            let known = entries.len();
            entries.retain(|it| it.0 != host);
            if entries.len() == known {
                entries.push((host, key(&backend)));
            }
        }
        3 => {
            let entries = &mut document.maps.get_mut(&label("suffix.map")).expect("a map").entries;
            entries[0].1 = key(&backend);
        }
        _ if number.is_multiple_of(2) => {
            document.certificates.insert(label("shop.pem"), renewed[number / 10 % 2].clone());
        }
        _ => {
            let name = label(&format!("extra-{}.pem", number / 10 % 7));
            let list = &mut document.crt_lists.get_mut(&label("https.list")).expect("a list").entries;
            if document.certificates.remove(&name).is_some() {
                list.retain(|it| it.certificate != name);
            } else {
                document.certificates.insert(name.clone(), spare.clone());
                let names = vec![key(&format!("{name}.example"))];
                list.push(CrtEntry { certificate: name, tls: TlsOptions::default(), names });
            }
        }
    }
}

#[test]
fn a_thousand_changes_of_members_weights_maps_and_certificates_need_no_reload_and_lose_no_request() {
    let Some(place) = place() else { return };
    let mut document = place.document();
    let renewed = [document.certificates[&label("shop.pem")].clone(), certificate("shop.example")];
    let spare = certificate("extra.example");
    let haproxy = place.start(&document);
    let clients = Clients::here();
    let trusted: Vec<_> = renewed.iter().map(der).collect();
    let load = clients.load(vec![
        Target::new("short", Kind::Http, place.http).times(100),
        Target::new("kept", Kind::Http, place.http).times(50).keep_alive(),
        Target::new("tls", Kind::Tls(trusting(&trusted)), place.tls).times(30),
    ]);
    load.goes_on(5);
    let before = haproxy.report().borrow().clone();
    for number in 0..1000 {
        change(&place, &mut document, number, &spare, &renewed);
        place.serve(&haproxy, &document).unwrap_or_else(|error| panic!("change {number}: {error}"));
    }
    load.goes_on(20);
    load.end().was_always_answered();
    let after = haproxy.report().borrow().clone();
    assert_eq!(after.reloads_done, 0, "{after:?}");
    assert_eq!((after.master, after.worker, after.restarts), (before.master, before.worker, 0));
    assert!(after.commands >= 1000, "{after:?}");
    is_as_wanted(&place, &document);
    place.runtime.block_on(haproxy.stop());
}

/// HAProxy itself says so.
#[track_caller]
pub(crate) fn is_as_wanted(place: &Place, document: &Document) {
    let mut socket = place.socket();
    let servers = place.runtime.block_on(socket.servers()).expect("servers");
    for (backend, it) in &document.backends {
        for slot in &it.slots {
            let Some(seen) = servers.get(&(backend.to_string(), slot.name.to_string())) else {
                assert!(slot.member.is_none(), "{backend}/{} is missing", slot.name);
                continue;
            };
            let serves = !seen.is_maintained && !seen.is_drained;
            match &slot.member {
                None => assert!(!serves, "{backend}/{}: {seen:?}", slot.name),
                Some(member) => {
                    let is = (seen.at, seen.weight, serves);
                    assert_eq!(is, (Some(member.at), member.weight, true), "{backend}/{}", slot.name);
                }
            }
        }
    }
    for (name, map) in &document.maps {
        let path = Files::Maps.path(&document.global.folder, name);
        let mut seen = place.runtime.block_on(socket.map(&path)).expect("a map");
        let mut wanted: Vec<_> = map.entries.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        seen.sort();
        wanted.sort();
        assert_eq!(seen, wanted, "{name}");
    }
    for (name, list) in &document.crt_lists {
        let path = Files::CrtLists.path(&document.global.folder, name);
        let seen = place.runtime.block_on(socket.crt_list(&path)).expect("a list");
        let mut seen: Vec<_> = seen.into_iter().flat_map(|it| it.names).collect();
        let mut wanted: Vec<_> =
            list.entries.iter().flat_map(|it| it.names.iter().map(|it| it.to_string())).collect();
        seen.sort();
        wanted.sort();
        assert_eq!(seen, wanted, "{name}");
    }
}

fn der(pem: &Pem) -> rustls::pki_types::CertificateDer<'static> {
    use rustls::pki_types::pem::PemObject as _;
    rustls::pki_types::CertificateDer::from_pem_slice(pem.expose().as_bytes()).expect("a certificate")
}

#[test]
fn a_member_is_added_where_no_slot_is_left_and_one_that_leaves_drains_first() {
    let Some(place) = place() else { return };
    let mut document = place.document();
    // Health checks have to be turned on for one that is added.
    let (interval, timeout) = (Duration::from_millis(100), Duration::from_secs(5));
    let check = Check { interval, timeout, rise: 255, fall: 2, port: None, http: None, observe: None };
    document.backends.get_mut(&label("b0")).expect("a backend").settings.check = Some(check);
    let haproxy = place.start(&document);
    let all = slots(&mut document, "b0");
    all.iter_mut().for_each(|it| it.member = Some(place.member(0)));
    all.push(Slot { name: label("s7"), member: Some(place.member(1)) });
    all.push(Slot { name: label("s8"), member: Some(SlotMember { backup: true, ..place.member(2) }) });
    place.serve(&haproxy, &document).expect("served");
    is_as_wanted(&place, &document);
    let mut socket = place.socket();
    let mut servers = || place.runtime.block_on(socket.servers()).expect("servers");
    // One that is down, and then is another member's, is up at once.
    let dead = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port");
    slots(&mut document, "b0")[6].member = Some(SlotMember { at: dead, ..place.member(1) });
    place.serve(&haproxy, &document).expect("served");
    let added = ("b0".to_owned(), "s7".to_owned());
    seaway_testkit::topology::until("its checks find that nothing listens", || !servers()[&added].is_up);
    slots(&mut document, "b0")[6].member = Some(place.member(1));
    place.serve(&haproxy, &document).expect("served");
    assert!(servers()[&added].is_up, "long before 255 checks");
    slots(&mut document, "b0").iter_mut().skip(1).for_each(|it| it.member = None);
    place.serve(&haproxy, &document).expect("served");
    is_as_wanted(&place, &document);
    seaway_testkit::topology::until("who left is in maintenance", || {
        servers().iter().filter(|(name, it)| name.0 == "b0" && it.is_maintained).count() == 7
    });
    // It would be waited for.
    drop(socket);
    assert_eq!(haproxy.report().borrow().reloads_done, 0);
    place.runtime.block_on(haproxy.stop());
}

#[test]
fn another_name_for_a_certificate_that_has_names_already_needs_no_reload() {
    let Some(place) = place() else { return };
    let mut document = place.document();
    let haproxy = place.start(&document);
    let pem = certificate("shop.example");
    for names in
        [&["one.example"][..], &["one.example", "two.example"], &["two.example", "three.example"], &[]]
    {
        document.certificates.insert(label("more.pem"), pem.clone());
        let list = &mut document.crt_lists.get_mut(&label("https.list")).expect("a list").entries;
        list.truncate(1);
        // As one line, and as a line for each.
        let entry = |names| CrtEntry { certificate: label("more.pem"), tls: TlsOptions::default(), names };
        list.extend(names.iter().map(|it| entry(vec![key(it)])));
        list.extend(
            (!names.is_empty()).then(|| entry(names.iter().map(|it| key(&format!("all-{it}"))).collect())),
        );
        if names.is_empty() {
            document.certificates.remove(&label("more.pem"));
        }
        place.serve(&haproxy, &document).expect("served");
        is_as_wanted(&place, &document);
    }
    assert_eq!(haproxy.report().borrow().reloads_done, 0);
    place.runtime.block_on(haproxy.stop());
}
