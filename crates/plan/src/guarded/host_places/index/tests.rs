use std::cell::Cell;

use proptest::prelude::*;
use seaway_model::load_balancer::HostPattern;
use seaway_testkit::properties::cases;

use super::{
    super::{PlaceGroup, key::by_labels},
    *,
};

thread_local! {
    /// How many entries searches of this thread have looked at.
    pub(super) static LOOKS: Cell<usize> = const { Cell::new(0) };
}

fn exact(name: &str) -> HostPattern {
    HostPattern::Exact(name.into())
}

fn under(name: &str) -> HostPattern {
    HostPattern::Under(name.into())
}

fn main_entrance() -> EntranceNames {
    entrances(&[], &FrontDoor::default())
}

fn group(hosts: &[HostPattern], paths: &[String], services: &[&str]) -> PlaceGroup {
    PlaceGroup {
        hosts: Arc::new(hosts.iter().map(by_labels).collect()),
        paths: paths.iter().map(|it| path(it, true, false)).collect(),
        services: Arc::new(services.iter().map(|it| Name::from(*it)).collect()),
    }
}

fn path(text: &str, is_whole: bool, is_expression: bool) -> PlacePath {
    PlacePath { path: slashed(text), is_whole, is_expression }
}

fn places(protects: bool, groups: Vec<PlaceGroup>) -> HostPlaces {
    HostPlaces { groups, protects, protects_paths: false, entrances: main_entrance() }
}

fn protecting_paths() -> HostPlaces {
    HostPlaces { protects_paths: true, ..places(true, Vec::new()) }
}

fn object(kind: Kind, name: &str) -> ObjectRef {
    ObjectRef::new(kind, "default", name)
}

fn key(name: &str) -> ServiceKey {
    ServiceKey::new("default", name)
}

fn numbered(count: usize, of: impl Fn(usize) -> String) -> Vec<String> {
    (0..count).map(of).collect()
}

fn guard(index: &HostPlaceIndex, service: &str) -> Option<HostGuard> {
    index.guard(&key(service), &[], &FrontDoor::default())
}

/// All that searches of them look at, for each entry.
fn looks_for_each(
    objects: &[(Kind, &str, HostPlaces)],
    search: impl FnOnce(&mut HostPlaceIndex) -> bool,
) -> usize {
    let mut index = HostPlaceIndex { most: usize::MAX, ..HostPlaceIndex::default() };
    for (kind, name, its) in objects {
        index.set(&object(*kind, name), its.clone());
    }
    let weight: usize = objects.iter().map(|(.., its)| its.weight()).sum();
    LOOKS.set(0);
    assert!(!search(&mut index), "the search ends early");
    LOOKS.get() / weight
}

#[test]
fn no_search_is_a_product_of_what_two_objects_have() {
    const MANY: usize = 2_000;
    let hosts: Vec<HostPattern> =
        numbered(MANY, |it| format!("h{it}.example")).iter().map(|it| exact(it)).collect();
    let wildcards: Vec<HostPattern> =
        numbered(MANY, |it| format!("w{it}.example")).iter().map(|it| under(it)).collect();
    let below: Vec<HostPattern> =
        numbered(MANY, |it| format!("a.w{it}.example")).iter().map(|it| exact(it)).collect();
    let root = ["/".to_owned()];
    let at = |of: &str| numbered(MANY, |it| format!("/{of}/{it}"));
    let few = |hosts: &[HostPattern]| hosts.iter().take(16).cloned().collect::<Vec<_>>();
    let many = |of: &str| numbered(128, |it| format!("/{of}{it}"));
    let leads = |hosts: &[HostPattern], paths: &[String]| places(false, vec![group(hosts, paths, &["shop"])]);
    let protects =
        |hosts: &[HostPattern], paths: &[String]| places(true, vec![group(hosts, paths, &["admin"])]);
    let route = Kind::HTTPRoute;
    let is_guarded = |index: &mut HostPlaceIndex| guard(index, "shop").is_some();
    for (case, objects) in [
        ("paths", vec![leads(&few(&hosts), &many("u")), protects(&few(&hosts), &many("p"))]),
        ("hosts", vec![leads(&hosts, &root), protects(&below, &root)]),
        ("wildcards", vec![leads(&wildcards, &["/u".to_owned()]), protects(&below, &root)]),
        ("one wildcard", vec![leads(&[under("example")], &at("u")), protects(&hosts, &["/p/u".to_owned()])]),
        ("its own", vec![leads(&hosts, &root), places(false, vec![group(&hosts, &at("x")[..2], &["shop"])])]),
    ] {
        let objects: Vec<_> =
            objects.into_iter().zip(["open", "adm"]).map(|(it, name)| (route, name, it)).collect();
        let each = looks_for_each(&objects, is_guarded);
        assert!(each <= 8, "{case}: {each} looks for each entry");
    }
    // The same guarded places again and again, at another entrance.
    let mut elsewhere = protects(&[exact("h1.example")], &at("u"));
    elsewhere.entrances = Some(["internal".into()].into());
    let nested: Vec<String> = (1..60).map(|it| "/u".repeat(it)).collect();
    let objects = [(route, "open", leads(&[exact("h1.example")], &nested)), (route, "adm", elsewhere)];
    assert!(looks_for_each(&objects, is_guarded) <= 8);
    // Paths of all host names, and host names.
    let is_open = |paths: Vec<String>| {
        move |index: &mut HostPlaceIndex| {
            let paths: Vec<Name> = paths.iter().map(|it| it.as_str().into()).collect();
            index.open_place(&key("p"), &paths).is_some()
        }
    };
    let shop = places(false, vec![group(&hosts, &root, &["shop"])]);
    let all_below = places(true, vec![group(&hosts, &["/a".to_owned()], &["admin"])]);
    let p = (Kind::Service, "p", protecting_paths());
    for objects in [
        vec![p.clone(), (Kind::Service, "h", protects(&hosts, &root))],
        vec![p, (Kind::Service, "shop", shop), (Kind::Service, "admin", all_below)],
    ] {
        assert!(looks_for_each(&objects, is_open(at("a"))) <= 8);
    }
    // Whom a change concerns.
    let (open, now) = (leads(&few(&hosts), &many("u")), protects(&few(&hosts), &many("p")));
    let concerns = |index: &mut HostPlaceIndex| index.set(&object(route, "adm"), now).contains(&key("shop"));
    assert!(looks_for_each(&[(route, "open", open)], concerns) <= 8);
}

#[test]
fn beyond_its_limit_a_namespace_keeps_no_entries_and_its_services_count_as_guarded() {
    let limits = |rules| TenantLimits { rules, ..TenantLimits::default() };
    let mut index = HostPlaceIndex::with_limits(&limits(Some(100)));
    assert!(index.has_limits(&limits(Some(100))) && !index.has_limits(&limits(None)));
    let shop = places(false, vec![group(&[exact("shop.example")], &["/".to_owned()], &["shop"])]);
    let adm = places(true, vec![group(&[exact("adm.example")], &["/".to_owned()], &["admin"])]);
    let paths = numbered(300, |it| format!("/{it}"));
    let big = places(false, vec![group(&[exact("a.example"), exact("b.example")], &paths, &["x", "y"])]);
    let (shop_object, adm_object) = (object(Kind::Service, "shop"), object(Kind::HTTPRoute, "adm"));
    index.set(&shop_object, shop.clone());
    index.set(&adm_object, adm);
    assert_eq!(guard(&index, "shop"), None);
    let big_object = object(Kind::HTTPRoute, "big");
    let concerned = index.set(&big_object, big.clone());
    assert_eq!(concerned, ["admin", "shop", "x", "y"].map(key).into());
    let found = guard(&index, "shop").expect("too many to search");
    assert!(found.by == adm_object && found.at.contains("more than 1000"), "{found:?}");
    assert_eq!(guard(&index, "cart"), None, "it has no host name");
    assert!(index.namespaces.values().all(|it| it.entries.at.is_empty() && it.entries.leading.is_empty()));
    // Without anything that protects, nothing is guarded.
    assert_eq!(index.set(&adm_object, HostPlaces::default()), ["admin", "shop", "x", "y"].map(key).into());
    assert_eq!(guard(&index, "shop"), None);
    // What protects all that the Service itself has is no other.
    index.set(&shop_object, HostPlaces { protects: true, ..shop });
    assert_eq!(
        (guard(&index, "shop"), guard(&index, "x").map(|it| it.by)),
        (None, Some(shop_object.clone()))
    );
    // Below the limit all is searched as before.
    let concerned = index.set(&big_object, HostPlaces::default());
    assert_eq!(concerned, ["shop", "x", "y"].map(key).into());
    assert!(index.namespaces.values().all(|it| it.entries.leading.contains_key("shop") && it.weight == 3));
    index.set(&shop_object, HostPlaces::default());
    assert!(index.namespaces.is_empty());
}

/// What a search finds, by looking at each pair.
struct Pairs<'i>(&'i BTreeMap<ObjectRef, HostPlaces>);

impl Pairs<'_> {
    fn is_guarded(&self, service: &str) -> bool {
        let own = object(Kind::Service, service);
        let leading = self.0.values().flat_map(HostPlaces::at);
        let mut leading = leading.filter(|(.., group)| group.services.contains(service));
        leading.any(|(host, path, _)| {
            let mut others = self
                .0
                .iter()
                .filter(|(by, its)| **by != own && its.protects && meet(&its.entrances, &main_entrance()));
            others.any(|(_, its)| {
                its.at().any(|(guarded, below, _)| {
                    let is_above = path.path.starts_with(below.path.as_str()) && below.is_expression;
                    covering(guarded).any(|it| *it == **host)
                        && (below.path.starts_with(path.path.as_str()) || is_above)
                })
            })
        })
    }

    fn is_open(&self, service: &str, paths: &[Name]) -> bool {
        let Some(own) = self.0.get(&object(Kind::Service, service)).filter(|it| it.protects_paths) else {
            return false;
        };
        let mut hosts: BTreeSet<&Name> = self.0.values().flat_map(HostPlaces::at).map(|it| it.0).collect();
        hosts.retain(|it| it.as_str() != ALL_HOSTS);
        hosts.into_iter().any(|host| {
            paths.iter().any(|path| {
                let asked = slashed(path);
                let near = self.0.values().filter(|it| meet(&it.entrances, &own.entrances));
                let near: Vec<_> = near
                    .flat_map(|its| its.at().map(move |at| (its, at)))
                    .filter(|(_, (at, path, _))| {
                        *at == host && path.is_whole && asked.starts_with(path.path.as_str())
                    })
                    .collect();
                let most = near.iter().map(|(_, (_, path, _))| path.path.len()).max();
                let mut nearest = near.iter().filter(|(_, (_, path, _))| Some(path.path.len()) == most);
                most != Some(asked.len())
                    && nearest.any(|(its, (.., group))| {
                        !its.protects && group.services.iter().any(|it| **it != *service)
                    })
            })
        })
    }
}

const SERVICES: [&str; 3] = ["a", "b", "c"];
const OBJECTS: [(Kind, &str); 5] = [
    (Kind::Service, "a"),
    (Kind::Service, "b"),
    (Kind::Service, "c"),
    (Kind::HTTPRoute, "r"),
    (Kind::HTTPRoute, "s"),
];

fn any_group() -> impl Strategy<Value = PlaceGroup> {
    let hosts = [exact("x.y.z"), exact("y.z"), exact("xy.z"), under("y.z"), under("z")];
    let paths = ["/", "/p", "/p/q", "/p-q", "/p/q/r"].map(|it| path(it, true, false));
    let parts = [path("/p", false, false), path("/p", false, true), path("/", false, true)];
    let paths: Vec<PlacePath> = paths.into_iter().chain(parts).collect();
    (
        // Some have none.
        prop::sample::subsequence(hosts.to_vec(), 0..3),
        prop::sample::subsequence(paths, 1..3),
        prop::sample::subsequence(SERVICES.to_vec(), 0..3),
    )
        .prop_map(|(hosts, paths, services)| PlaceGroup {
            hosts: match hosts.as_slice() {
                [] => Arc::new([Name::from(ALL_HOSTS)].into()),
                all => Arc::new(all.iter().map(by_labels).collect()),
            },
            paths: paths.into_iter().collect(),
            ..group(&hosts, &[], &services)
        })
}

fn any_places() -> impl Strategy<Value = HostPlaces> {
    let entrances = prop_oneof![
        4 => Just(main_entrance()),
        1 => Just(Some(["internal".into()].into())),
        1 => Just(None),
    ];
    let groups = prop::collection::vec(any_group(), 0..3);
    (groups, any::<bool>(), any::<bool>(), entrances).prop_map(
        |(groups, protects, protects_paths, entrances)| {
            let protects_paths = protects_paths && groups.is_empty();
            HostPlaces { groups, protects: protects || protects_paths, protects_paths, entrances }
                .or_nothing()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(300), ..ProptestConfig::default() })]

    /// Each pair is looked at, in effect; whom a change concerns is said; and nothing is left of what was there before. Some have a
    /// limit that they pass now and then.
    #[test]
    fn a_search_finds_what_is_there_and_says_whom_a_change_concerns(
        changes in prop::collection::vec((0..OBJECTS.len(), any_places()), 1..20), is_limited in any::<bool>(),
    ) {
        let most = if is_limited { 40 } else { usize::MAX };
        let empty = || HostPlaceIndex { most, ..HostPlaceIndex::default() };
        let (mut index, mut objects) = (empty(), BTreeMap::new());
        let paths: Vec<Name> = ["/p/q", "/p-q/x"].map(Name::from).into();
        let answers = |index: &HostPlaceIndex| {
            SERVICES.map(|it| (guard(index, it), index.open_place(&key(it), &paths)))
        };
        for (number, now) in changes {
            let (kind, name) = OBJECTS[number];
            // A Service leads to itself.
            let now = match kind {
                Kind::Service => {
                    let services = Arc::new(BTreeSet::from([Name::from(name)]));
                    let groups = now.groups.iter().cloned();
                    let groups = groups.map(|it| PlaceGroup { services: services.clone(), ..it }).collect();
                    HostPlaces { groups, ..now }
                }
                _ => HostPlaces { protects_paths: false, ..now }.or_nothing(),
            };
            let (changed, before) = (object(kind, name), answers(&index));
            objects.insert(changed.clone(), now.clone());
            let concerned = index.set(&changed, now);
            let after = answers(&index);
            for ((service, before), after) in SERVICES.iter().zip(&before).zip(&after) {
                let is_said = concerned.contains(&key(service)) || changed == object(Kind::Service, service);
                prop_assert!(before == after || is_said, "{service}: {before:?} {after:?}");
            }
            let is_full = index.namespaces.values().any(|it| it.is_full);
            for (service, (guard, open)) in SERVICES.iter().zip(&after) {
                let pairs = Pairs(&objects);
                if is_full {
                    prop_assert!(guard.is_some() || !pairs.is_guarded(service), "{service}");
                } else {
                    prop_assert_eq!(guard.is_some(), pairs.is_guarded(service), "{} {:?}", service, guard);
                    prop_assert_eq!(open.is_some(), pairs.is_open(service, &paths), "{} {:?}", service, open);
                }
            }
            let mut fresh = empty();
            objects.iter().rev().for_each(|(object, its)| drop(fresh.set(object, its.clone())));
            prop_assert_eq!(format!("{:?}", fresh.namespaces), format!("{:?}", index.namespaces));
        }
    }
}
