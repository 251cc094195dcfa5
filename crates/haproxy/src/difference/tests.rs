//! Pairs of documents, and a HAProxy that refuses what the real one refuses.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use proptest::{collection::vec, option, prelude::*};

use super::*;
use crate::{
    Version,
    document::*,
    runtime::commands::{Command, ServerName, ServerState},
    words::{Folder, Key, Label, Text},
};

fn label(text: &str) -> Label {
    Label::new(text).expect("of the alphabet")
}

fn key(text: &str) -> Key {
    Key::new(text).expect("of the alphabet")
}

fn empty() -> Document {
    Document {
        version: Version::V2_6,
        global: Global { folder: Folder::new("/run/hap").expect("of the alphabet"), ..Global::default() },
        frontends: BTreeMap::new(),
        backends: BTreeMap::new(),
        maps: BTreeMap::new(),
        crt_lists: BTreeMap::new(),
        certificates: BTreeMap::new(),
        authorities: BTreeMap::new(),
        pages: BTreeMap::new(),
        origins: Origins::default(),
    }
}

fn frontend(strict: bool) -> Frontend {
    let zero = Duration::ZERO;
    Frontend {
        about: Text::new("").expect("of the alphabet"),
        binds: Vec::new(),
        floating: BTreeSet::new(),
        tls: Some(BindTls { crt_list: label("list"), strict, terms: TlsOptions::default(), http2: false }),
        sources: Vec::new(),
        denied: Vec::new(),
        proxy_from: Vec::new(),
        connections: None,
        new_per_second: None,
        timeouts: ClientTimeouts { request: zero, keep_alive: zero, idle: zero, half_closed: zero },
        routing: Routing::Everything(label("b0")),
    }
}

fn check() -> Check {
    let (interval, timeout) = (Duration::from_secs(2), Duration::from_secs(1));
    Check { interval, timeout, rise: 2, fall: 3, port: None, http: None, observe: None }
}

fn slot_member() -> impl Strategy<Value = Option<SlotMember>> {
    let member = (1_u16..5, 0_u16..3, prop::bool::weighted(0.2), prop::bool::weighted(0.01));
    option::of(member.prop_map(|(port, weight, drains, backup)| SlotMember {
        at: SocketAddr::from(([10, 0, 0, 1], port)),
        weight,
        state: if drains { SlotState::Drain } else { SlotState::Ready },
        backup,
        tls_name: None,
    }))
}

fn backend() -> impl Strategy<Value = Backend> {
    let cookie = || Stickiness::Cookie { name: label("c"), insert: true };
    let settings =
        (prop::bool::weighted(0.03), prop::bool::weighted(0.03)).prop_map(move |(checked, sticks)| {
            Settings {
                is_http: true,
                check: (!checked).then(check),
                stick: sticks.then(cookie),
                ..Settings::default()
            }
        });
    (settings, vec(slot_member(), 1..5)).prop_map(|(settings, members)| Backend {
        serves: "something".into(),
        about: Text::new("").expect("of the alphabet"),
        settings,
        slots: (1..)
            .zip(members)
            .map(|(number, member)| Slot { name: label(&format!("s{number}")), member })
            .collect(),
    })
}

fn documents() -> impl Strategy<Value = Document> {
    let entries = || vec((0_usize..100, 0_usize..3), 0..100);
    let crt_entry = (0_usize..3, vec(0_usize..6, 1..3), prop::bool::weighted(0.1));
    let tls = (prop::bool::weighted(0.95), vec(crt_entry, 1..4), vec(0_usize..2, 3));
    (vec(backend(), 3), entries(), entries(), tls).prop_map(
        |(backends, prefixes, suffixes, (strict, list, pems))| {
            let mut document = empty();
            document.frontends.insert(label("f"), frontend(strict));
            for (number, it) in (0..).zip(backends) {
                document.backends.insert(label(&format!("b{number}")), it);
            }
            for (name, find, entries) in
                [("prefix", MapMatch::Prefix, prefixes), ("suffix", MapMatch::Suffix, suffixes)]
            {
                let mut known = BTreeMap::new();
                // In the order in which they came, without a second of any key.
                let fresh = entries.into_iter().filter(|it| known.insert(it.0, ()).is_none());
                let entries = fresh.map(|(k, b)| (key(&format!("k{k}")), key(&format!("b{b}")))).collect();
                document.maps.insert(label(name), Map { find, entries });
            }
            let mut listed: Vec<CrtEntry> = Vec::new();
            for (certificate, names, modern) in list {
                let entry = CrtEntry {
                    certificate: label(&format!("c{certificate}")),
                    tls: TlsOptions { modern, clients: None },
                    names: names.iter().map(|it| key(&format!("n{it}"))).collect(),
                };
                if !listed.contains(&entry) {
                    document.certificates.insert(
                        entry.certificate.clone(),
                        Pem::new("chain", &format!("key {}", pems[certificate])),
                    );
                    listed.push(entry);
                }
            }
            document.crt_lists.insert(label("list"), CrtList { entries: listed });
            document
        },
    )
}

/// HAProxy, as far as commands go.
struct Model {
    backends: Vec<Label>,
    servers: BTreeMap<String, (Option<SocketAddr>, Option<u16>, ServerState)>,
    maps: BTreeMap<String, Vec<(Key, Key)>>,
    lists: BTreeMap<String, Vec<CrtEntry>>,
    pems: BTreeMap<String, String>,
    strict: bool,
}

impl Model {
    fn load(document: &Document) -> Model {
        let slots =
            document.backends.iter().flat_map(|(name, it)| it.slots.iter().map(move |slot| (name, slot)));
        let server = |(backend, slot): (&Label, &Slot)| {
            let now = match &slot.member {
                None => (None, None, ServerState::Maintenance),
                Some(it) => (Some(it.at), Some(weight(it)), ServerState::Ready),
            };
            (format!("{backend}/{}", slot.name), now)
        };
        Model {
            backends: document.backends.keys().cloned().collect(),
            servers: slots.map(server).collect(),
            maps: document
                .maps
                .iter()
                .map(|(name, it)| (format!("/run/hap/maps/{name}"), it.entries.clone()))
                .collect(),
            lists: (document.crt_lists.iter())
                .map(|(name, it)| (format!("/run/hap/crt-lists/{name}"), it.entries.clone()))
                .collect(),
            pems: (document.certificates.iter())
                .map(|(name, it)| (format!("/run/hap/certificates/{name}"), it.expose().to_owned()))
                .collect(),
            strict: document.frontends.values().all(|it| it.tls.as_ref().is_none_or(|it| it.strict)),
        }
    }

    fn execute(&mut self, command: &Command) {
        for line in command.lines() {
            assert!(line.bytes().is_some(), "{command} is one command");
        }
        let at = |at: &ServerName| {
            assert!(self.servers.contains_key(&at.to_string()), "No such server.");
            at.to_string()
        };
        match command {
            Command::SetAddress(server, to) => {
                drop(self.servers.entry(at(server)).and_modify(|it| it.0 = Some(*to)))
            }
            Command::SetWeight(server, to) => {
                drop(self.servers.entry(at(server)).and_modify(|it| it.1 = Some(*to)))
            }
            Command::SetState(server, to) => drop(self.servers.entry(at(server)).and_modify(|it| it.2 = *to)),
            Command::ForgetChecks(server) => drop(at(server)),
            Command::AddServer(server, new) => {
                assert!(self.backends.contains(&server.backend), "No such backend.");
                let now = (Some(new.at), Some(new.weight), ServerState::Maintenance);
                assert!(
                    self.servers.insert(server.to_string(), now).is_none(),
                    "Already exists a server with the same name"
                );
            }
            Command::AddKey { map, key, value } => {
                let map = self.maps.get_mut(map).expect("Unknown map identifier.");
                assert!(map.iter().all(|it| it.0 != *key), "there would be two");
                map.push((key.clone(), value.clone()));
            }
            Command::SetKey { map, key, value } => {
                let map = self.maps.get_mut(map).expect("Unknown map identifier.");
                map.iter_mut().find(|it| it.0 == *key).expect("entry not found").1 = value.clone();
            }
            Command::RemoveKey { map, key } => {
                self.maps.get_mut(map).expect("Unknown map identifier.").retain(|it| it.0 != *key);
            }
            Command::ReplaceMap { map, entries } => {
                assert!(Command::version(map, entries, 1).iter().all(|it| it.bytes().is_some()));
                *self.maps.get_mut(map).expect("Unknown map identifier.") = entries.clone();
            }
            Command::SetCertificate { file, pem, is_new } => {
                assert_eq!(self.pems.contains_key(file), !is_new, "{file}");
                self.pems.insert(file.clone(), pem.expose().to_owned());
            }
            Command::RemoveCertificate { file } => {
                let in_use =
                    self.lists.values().flatten().any(|it| file.ends_with(&format!("/{}", it.certificate)));
                assert!(!in_use, "certificate '{file}' in use, can't be deleted!");
                self.pems.remove(file).expect("it is there");
            }
            Command::AddToList { list, entry } => {
                assert!(self.pems.contains_key(&entry.file), "no such certificate");
                self.lists.get_mut(list).expect("crtlist does not exist").push(entry.entry.clone());
            }
            Command::RemoveFromList { list, entry } => {
                let list = self.lists.get_mut(list).expect("crtlist does not exist");
                let place =
                    list.iter().position(|it| *it == entry.entry).expect("Can't delete a non-existing entry");
                assert!(
                    place > 0 || self.strict,
                    "certificate cannot be deleted, it is used as default certificate"
                );
                list.remove(place);
            }
        }
    }

    /// Names that have a certificate, and backends that have a member.
    fn names(&self) -> BTreeSet<String> {
        let names = self.lists.values().flatten().flat_map(|it| &it.names).map(Key::to_string);
        let members = self.servers.iter().filter(|it| it.1.2 == ServerState::Ready);
        names.chain(members.filter_map(|it| it.0.split('/').next()).map(str::to_owned)).collect()
    }

    fn serves(&self, wanted: &Document) {
        let loaded = Model::load(wanted);
        for (name, now) in &self.servers {
            match loaded.servers.get(name).filter(|it| it.0.is_some()) {
                Some(wanted) => assert_eq!(now, wanted, "{name}"),
                None => assert_ne!(now.2, ServerState::Ready, "{name} left"),
            }
        }
        for (name, it) in loaded.servers {
            assert!(it.0.is_none() || self.servers.contains_key(&name), "{name} is missing");
        }
        for (name, wanted) in &loaded.maps {
            let mut now = self.maps[name].clone();
            let mut wanted = wanted.clone();
            if name.ends_with("prefix") {
                now.sort();
                wanted.sort();
            }
            assert_eq!(now, wanted, "{name}");
        }
        for (name, wanted) in &loaded.lists {
            let now = &self.lists[name];
            assert_eq!(order(now), order(wanted), "{name}");
            assert!(self.strict || now.first() == wanted.first(), "{name}");
            assert_eq!(now.len(), wanted.len(), "{name}");
        }
        assert_eq!(self.pems, loaded.pems);
    }
}

fn weight(member: &SlotMember) -> u16 {
    if member.state == SlotState::Drain { 0 } else { member.weight }
}

/// Of each name, the certificates in their order.
fn order(entries: &[CrtEntry]) -> BTreeMap<String, Vec<&CrtEntry>> {
    let mut order: BTreeMap<String, Vec<&CrtEntry>> = BTreeMap::new();
    for entry in entries {
        entry.names.iter().for_each(|it| order.entry(it.to_string()).or_default().push(entry));
    }
    order
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(seaway_testkit::properties::cases(500)))]

    #[test]
    fn commands_bring_what_is_wanted_or_a_reload_is_asked_for(first in documents(), others in vec(documents(), 1..4)) {
        let mut model = Model::load(&first);
        let mut running = RunningConfig::loaded(Arc::new(first));
        for wanted in others {
            let difference = Difference::between(&running, &wanted);
            let always = difference.reloads.is_empty().then(|| &model.names() & &Model::load(&wanted).names());
            for command in &difference.commands {
                model.execute(command);
                running.apply(command);
                if let Some(always) = &always {
                    prop_assert!(model.names().is_superset(always), "{}: {:?}", command, always);
                }
            }
            if difference.reloads.is_empty() {
                model.serves(&wanted);
                prop_assert_eq!(Difference::between(&running, &wanted), Difference::default());
                running.brought = Some(Arc::new(wanted));
            } else {
                // What is left to do is not forgotten meanwhile, and a reload does all of it.
                prop_assert_eq!(&Difference::between(&running, &wanted).reloads, &difference.reloads);
                prop_assert_eq!(Difference::between(&running, &wanted).commands, Vec::new());
                model = Model::load(&wanted);
                running = RunningConfig::loaded(Arc::new(wanted));
            }
        }
    }

    #[test]
    fn the_same_document_needs_nothing(document in documents()) {
        let running = RunningConfig::loaded(Arc::new(document.clone()));
        prop_assert_eq!(Difference::between(&running, &document), Difference::default());
    }
}

proptest! {
    /// Looking at the backends that have other members says the same as looking at all.
    #[test]
    fn of_members_alone_the_same_is_told(one in documents(), other in documents()) {
        let running = RunningConfig::loaded(Arc::new(one.clone()));
        let mut wanted = one.clone();
        let mut changed = BTreeMap::new();
        for (name, backend) in &mut wanted.backends {
            backend.slots.clone_from(&other.backends[name].slots);
            changed.insert(name.clone(), backend.slots.clone());
        }
        let (of_members, whole) =
            (Difference::of_members(&running, &one, &changed), Difference::between(&running, &wanted));
        prop_assert_eq!(of_members, whole);
    }
}

/// A document, changed, and why that needs a reload.
fn reloads(change: impl Fn(&mut Document)) -> Vec<ReloadReason> {
    let mut document = empty();
    document.frontends.insert(label("f"), frontend(false));
    let slot = |number| Slot { name: label(&format!("s{number}")), member: None };
    let backend = Backend {
        serves: "it".into(),
        about: Text::new("").expect("of the alphabet"),
        settings: Settings {
            stick: Some(Stickiness::Cookie { name: label("c"), insert: true }),
            ..Settings::default()
        },
        slots: vec![slot(1), slot(2)],
    };
    document.backends.insert(label("b0"), backend);
    document.maps.insert(label("m"), Map { find: MapMatch::Exact, entries: Vec::new() });
    let entry =
        |name: &str| CrtEntry { certificate: label("c"), tls: TlsOptions::default(), names: vec![key(name)] };
    document.crt_lists.insert(label("list"), CrtList { entries: vec![entry("one"), entry("two")] });
    document.certificates.insert(label("c"), Pem::new("chain", "key"));
    let running = RunningConfig::loaded(Arc::new(document.clone()));
    change(&mut document);
    Difference::between(&running, &document).reloads.into_keys().collect()
}

fn member(port: u16) -> Option<SlotMember> {
    let at = SocketAddr::from(([10, 0, 0, 1], port));
    Some(SlotMember { at, weight: 1, state: SlotState::Ready, backup: false, tls_name: None })
}

fn slots_of(document: &mut Document) -> &mut Vec<Slot> {
    &mut document.backends.get_mut(&label("b0")).expect("it is there").slots
}

#[test]
fn each_reason_for_a_reload_has_its_name_and_nothing_else_has_one() {
    use ReloadReason::*;
    let none = Vec::<ReloadReason>::new();
    assert_eq!(reloads(|_| {}), none);
    assert_eq!(reloads(|it| slots_of(it)[0].member = member(1)), none);
    let about = |it: &mut Document| {
        it.frontends.values_mut().for_each(|it| it.about = Text::new("else").expect("of it"))
    };
    assert_eq!(reloads(about), none);
    let pem = |it: &mut Document, key: &str| drop(it.certificates.insert(label("c"), Pem::new("chain", key)));
    assert_eq!(reloads(|it| pem(it, "another")), none);
    assert_eq!(reloads(|it| pem(it, &"long".repeat(4000))), [CertificateSize]);
    assert_eq!(reloads(|it| it.version = crate::Version::V3_0), [Version]);
    assert_eq!(reloads(|it| it.global.threads = Some(2)), [Global]);
    assert_eq!(reloads(|it| it.frontends.clear()), [Frontend]);
    assert_eq!(reloads(|it| drop(it.frontends.insert(label("g"), frontend(true)))), [Frontend]);
    let copy = |it: &mut Document, spare: bool| {
        let mut backend = it.backends[&label("b0")].clone();
        backend.serves = if spare { "".into() } else { "more".into() };
        it.backends.insert(label("b1"), backend);
    };
    assert_eq!(reloads(|it| copy(it, false)), [NewBackend]);
    assert_eq!(reloads(|it| copy(it, true)), none);
    assert_eq!(reloads(|it| it.backends.clear()), none);
    let settings = |it: &mut Document| it.backends.values_mut().for_each(|it| it.settings.retries = Some(1));
    assert_eq!(reloads(settings), [BackendSettings]);
    // A server that is added has no cookie.
    assert_eq!(reloads(|it| slots_of(it).push(Slot { name: label("s3"), member: member(1) })), [Slots]);
    let backup = |it: &mut Document| {
        slots_of(it)[0].member = member(1).map(|it| SlotMember { backup: true, ..it });
    };
    assert_eq!(reloads(backup), [ServerOptions]);
    assert_eq!(reloads(|it| drop(it.maps.insert(label("n"), it.maps[&label("m")].clone()))), [Map]);
    assert_eq!(
        reloads(|it| drop(it.crt_lists.insert(label("n"), crate::document::CrtList::default()))),
        [CrtList]
    );
    let list = |it: &mut Document| {
        std::mem::take(&mut it.crt_lists.get_mut(&label("list")).expect("a list").entries)
    };
    assert_eq!(reloads(|it| drop(list(it))), [DefaultCertificate]);
    let twice = |it: &mut Document| {
        let mut entries = list(it);
        let second = crate::document::CrtEntry { certificate: label("d"), ..entries[1].clone() };
        it.certificates.insert(label("d"), Pem::new("chain", "key"));
        entries.insert(1, second);
        it.crt_lists.insert(label("list"), crate::document::CrtList { entries });
    };
    assert_eq!(reloads(twice), [CertificateOrder]);
    assert_eq!(reloads(|it| drop(it.authorities.insert(label("a"), "pem".into()))), [Authorities]);
    assert_eq!(reloads(|it| drop(it.pages.insert(label("a"), "page".into()))), [Pages]);
}

#[test]
fn a_key_of_a_certificate_is_in_no_text_that_is_shown() {
    let pem = Pem::new("-----BEGIN CHAIN-----\n\nx\n-----END CHAIN-----", "secret");
    let command = Command::SetCertificate { file: "/c.pem".into(), pem, is_new: true };
    let shown = format!("{command} {command:?} {:?}", command.lines());
    assert!(!shown.contains("secret"), "{shown}");
    let sent: Vec<u8> = command.lines().iter().filter_map(|it| it.bytes()).flatten().collect();
    let sent = String::from_utf8(sent).expect("text");
    assert!(
        sent.contains("secret\n\ncommit ssl cert /c.pem\n") && sent.matches("\n\n").count() == 1,
        "{sent}"
    );
}
