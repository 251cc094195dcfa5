//! Names that are recorded as somebody's: whoever is older may claim them, and does not get them.

use std::sync::Arc;

use seaway_model::{
    Change, Config, Fact, Kind,
    config::{FrontDoor, UnlistedHosts},
    fact::{FactRef, NameOwner},
};

use super::{
    owners::{claims, everywhere, first, kept, leads, pattern, refused, route},
    scene::*,
};
use crate::World;

fn owner(namespace: &str, hosts: &[&str], paths: &[&str]) -> NameOwner {
    NameOwner {
        namespace: namespace.into(),
        hosts: hosts.iter().map(|it| pattern(it)).collect(),
        paths: paths.iter().map(|it| (*it).into()).collect(),
    }
}

fn recorded(namespace: &str, hosts: &[&str], paths: &[&str]) -> Change {
    Change::Put(Fact::NameOwner(Arc::new(owner(namespace, hosts, paths))))
}

fn lost(namespace: &str) -> Change {
    Change::Gone(FactRef::Object(owner(namespace, &[], &[]).object()))
}

fn message(world: &World) -> String {
    problems(world).join("\n")
}

#[test]
fn an_old_object_that_begins_to_claim_a_recorded_name_does_not_get_it() {
    let shop = claims("shop/web", 5, "shop.example");
    let evil = claims("evil/old", 1, "shop.example");
    let record = recorded("shop", &["shop.example"], &[]);
    for told in [
        vec![put(&shop), record.clone(), put(&evil)],
        vec![put(&evil), put(&shop), record.clone()],
        vec![record.clone(), put(&evil), put(&shop)],
    ] {
        let mut world = world(first(), told);
        assert_eq!(leads(&world, "shop.example"), ["shop", "-"]);
        assert_eq!(refused(&world), ["evil"]);
        let told = message(&world);
        assert!(told.contains("shop.example belongs to another namespace, which claimed it first"), "{told}");
        // Other names below it are not evil's by a wildcard either.
        world.apply(put(&claims("evil/old", 1, "*.example")));
        assert_eq!(leads(&world, "shop.example"), ["shop", "-"]);
    }
    // By age alone it would be evil's.
    let world = world(first(), [put(&shop), put(&evil)]);
    assert_eq!(leads(&world, "shop.example"), ["evil", "-"]);
}

#[test]
fn an_old_object_that_begins_to_claim_a_recorded_path_does_not_get_it() {
    let shop = route("shop/web", 5, None, "/shop");
    let evil = route("evil/web", 1, None, "/shop/login");
    let told = [put_route(&shop), recorded("shop", &[], &["/shop"]), put_route(&evil)];
    let mut world = world(first(), told);
    assert_eq!((everywhere(&world), refused(&world)), (vec!["shop".to_owned()], vec!["evil".to_owned()]));
    assert!(
        message(&world).contains("path /shop/login belongs to another namespace, which claimed it first")
    );
    // Lost, it is as it was for as long as shop claims it.
    world.apply(lost("shop"));
    assert_eq!(everywhere(&world), ["shop"]);
    world.apply(Change::Gone(FactRef::Object(shop.object())));
    assert_eq!(everywhere(&world), ["evil"]);
    world.apply(put_route(&shop));
    assert_eq!(everywhere(&world), ["evil", "shop"], "shop has what evil has nothing of");
}

#[test]
fn a_record_that_is_lost_moves_no_name_that_its_namespace_claims() {
    let shop = claims("shop/web", 5, "shop.example");
    let evil = claims("evil/old", 1, "shop.example");
    let mut world = world(first(), [put(&shop), recorded("shop", &["shop.example"], &[]), put(&evil)]);
    world.apply(lost("shop"));
    assert_eq!(leads(&world, "shop.example"), ["shop", "-"]);
    // Another Service of shop claims it, too: there is no break.
    world.apply(put(&claims("shop/more", 9, "shop.example")));
    world.apply(gone(&shop));
    assert_eq!(leads(&world, "shop.example"), ["shop", "-"]);
    // It is written down again, and lost again in part.
    world.apply(recorded("shop", &["shop.example", "b.example"], &[]));
    world.apply(recorded("shop", &["b.example"], &[]));
    assert_eq!(leads(&world, "shop.example"), ["shop", "-"]);
    // What nobody of shop claims any more is the next one's, and stays so.
    world.apply(gone(&claims("shop/more", 9, "shop.example")));
    assert_eq!(leads(&world, "shop.example"), ["evil", "-"]);
    world.apply(put(&shop));
    assert_eq!(leads(&world, "shop.example"), ["evil", "-"]);
}

#[test]
fn in_a_cluster_that_was_set_back_names_belong_to_whom_its_records_say() {
    let shop = claims("shop/web", 5, "shop.example");
    let evil = claims("evil/old", 1, "shop.example");
    // Since the backup was made, the one let the name go, and the other claimed it: now both claim it.
    for (then, now) in [("shop", "evil"), ("evil", "shop")] {
        let restored = || vec![recorded(now, &["shop.example"], &[]), lost(then)];
        for told in [restored(), restored().into_iter().rev().collect()] {
            let since = [put(&shop), put(&evil), recorded(then, &["shop.example"], &[])];
            let mut world = world(first(), since.into_iter().chain(told_of_routes()));
            assert_eq!((leads(&world, "shop.example"), refused(&world)), (words([then, "-"]), words([now])));
            told.into_iter().for_each(|change| _ = world.apply(change));
            assert_eq!((leads(&world, "shop.example"), refused(&world)), (words([now, "-"]), words([then])));
            assert_eq!(first_claims(&world), Some(vec![format!("{now}: shop.example")]), "and so it is kept");
        }
    }
    // Where the backup has no record, the name goes by age, as where nothing was ever recorded.
    let since = [put(&shop), put(&evil), recorded("shop", &["shop.example"], &[]), lost("shop")];
    let world = world(first(), since.into_iter().chain(told_of_routes()));
    assert_eq!(first_claims(&world), Some(words(["evil: shop.example"])));
}

/// Everything is told again, of a cluster as it was before.
fn set_back(world: &mut World, told: impl IntoIterator<Item = Change>) {
    let all = [Change::SourceRestored]
        .into_iter()
        .chain(told)
        .chain(told_of_routes())
        .chain(seaway_testkit::facts::synced());
    all.for_each(|change| _ = world.apply(change));
}

#[test]
fn a_name_that_was_claimed_after_the_backup_is_nobody_else_s_until_it_was_let_go_in_order() {
    let (shop, evil) = (claims("shop/web", 5, "shop.example"), claims("evil/old", 1, "shop.example"));
    let path = route("shop/path", 5, None, "/shop");
    let since = [put(&shop), put_route(&path), recorded("shop", &["shop.example"], &["/shop"])];
    let mut world = world(first(), since.into_iter().chain(told_of_routes()));
    // The backup has neither the claims nor the record; and another claims the name in it, or right afterwards.
    let gone_since = || [gone(&shop), Change::Gone(FactRef::Object(path.object())), lost("shop")];
    set_back(&mut world, gone_since().into_iter().chain([put(&evil)]));
    assert_eq!((leads(&world, "shop.example"), refused(&world)), (words(["-"]), words(["evil"])));
    assert!(message(&world).contains("shop.example belongs to another namespace, which claimed it first"));
    assert_eq!(first_claims(&world), Some(words(["shop: shop.example /shop"])), "it is written down again");
    // As it is; and then it goes as any other that nobody claims.
    world.apply(recorded("shop", &["shop.example"], &["/shop"]));
    assert_eq!(first_claims(&world), Some(Vec::new()));
    world.apply(lost("shop"));
    assert_eq!(leads(&world, "shop.example"), ["evil", "-"]);
}

#[test]
fn what_a_backup_says_of_a_name_counts_and_nothing_of_the_time_since() {
    let (shop, evil) = (claims("shop/web", 5, "shop.example"), claims("evil/old", 1, "shop.example"));
    let record = |of| recorded(of, &["shop.example"], &[]);
    let since = || [put(&shop), put(&evil), record("shop")].into_iter().chain(told_of_routes());
    let mut world = world(first(), since());
    // In the backup it is the other's, whose object goes later on: nothing of before comes back then.
    set_back(&mut world, [put(&evil), gone(&shop), record("evil"), lost("shop")]);
    assert_eq!(leads(&world, "shop.example"), ["evil", "-"]);
    world.apply(gone(&evil));
    world.apply(lost("evil"));
    world.apply(put(&claims("cart/web", 9, "shop.example")));
    assert_eq!(leads(&world, "shop.example"), ["cart", "-"]);
    // And where both times say the same, it ends when its record does.
    world.apply(record("cart"));
    set_back(&mut world, [put(&claims("cart/web", 9, "shop.example")), record("cart")]);
    world.apply(gone(&claims("cart/web", 9, "shop.example")));
    world.apply(lost("cart"));
    world.apply(put(&evil));
    assert_eq!(leads(&world, "shop.example"), ["evil", "-"]);
}

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

#[test]
fn what_is_recorded_and_not_claimed_is_nobody_else_s() {
    let evil = claims("evil/old", 1, "shop.example");
    let everywhere = route("evil/all", 2, None, "/login");
    let record = recorded("shop", &["shop.example"], &[]);
    let mut world = world(first(), [put(&evil), put_route(&everywhere), record.clone()]);
    // No rule for all names, nor for a wildcard of others, applies to it.
    assert_eq!(
        (leads(&world, "shop.example"), refused(&world)),
        (vec!["-".to_owned()], vec!["evil".to_owned()])
    );
    // Its own namespace may serve it by a wildcard.
    world.apply(recorded("shop", &["a.shop.example", "*.shop.example"], &[]));
    world.apply(put(&claims("shop/wide", 9, "*.shop.example")));
    assert_eq!(leads(&world, "a.shop.example"), Vec::<String>::new());
    assert_eq!(leads(&world, "*.shop.example"), ["shop", "-"]);
    assert_eq!(leads(&world, "shop.example"), ["evil", "-"], "it is recorded no more");
    world.apply(record);
    assert_eq!(leads(&world, "shop.example"), ["-"]);
}

#[test]
fn what_the_configuration_says_comes_before_what_is_recorded() {
    let (shop, evil) = (claims("shop/web", 5, "shop.example"), claims("evil/old", 1, "shop.example"));
    let told = || [put(&shop), put(&evil), recorded("evil", &["shop.example", "a.shop.example"], &[])];
    let list: &[(&str, &[&str])] = &[("shop.example", &["shop"]), ("*.shop.example", &["shop"])];
    for others in [UnlistedHosts::First, UnlistedHosts::Refused, UnlistedHosts::Shared] {
        let mut world = world(kept(list, others), told());
        assert_eq!(leads(&world, "shop.example"), ["shop", "-"], "{others:?}");
        world.apply(put(&claims("evil/more", 1, "a.shop.example")));
        assert_eq!(leads(&world, "a.shop.example"), Vec::<String>::new(), "{others:?}");
    }
    // Where names are nobody's, as in a folder, nothing that is recorded counts.
    let world = world(Config::default(), told());
    assert_eq!(leads(&world, "shop.example"), ["evil", "shop"]);
}

/// What is to be recorded: `"shop: shop.example /shop"`, a line for each namespace. Of paths only those below `/shop`, for each
/// Service claims some by its own name.
fn first_claims(world: &World) -> Option<Vec<String>> {
    let owners = world.first_claims()?.claimed;
    let line = |it: &NameOwner| {
        let paths = it.paths.iter().filter(|it| ["/shop", "/shop/login"].contains(&it.as_str()));
        let names = it.hosts.iter().map(ToString::to_string).chain(paths.map(ToString::to_string));
        std::iter::once(format!("{}:", it.namespace)).chain(names).collect::<Vec<_>>().join(" ")
    };
    Some(owners.values().map(line).filter(|it| !it.ends_with(':')).collect())
}

fn told_of_routes() -> [Change; 2] {
    [Kind::HTTPRoute, Kind::NameOwner].map(Change::Synced)
}

#[test]
fn the_first_record_is_of_those_who_have_the_names_by_age() {
    let told = [
        put(&claims("shop/web", 1, "*.shop.example")),
        put(&claims("evil/old", 2, "a.shop.example")),
        put(&claims("shop/api", 3, "api.shop.example")),
        put(&claims("cart/web", 4, "cart.example")),
        put_route(&route("shop/path", 5, None, "/shop")),
        put_route(&route("evil/path", 6, None, "/shop/login")),
        put_route(&route("evil/all", 6, None, "/")),
    ];
    let mut world = world(first(), told.into_iter().chain(told_of_routes()));
    let expected = ["cart: cart.example", "shop: api.shop.example *.shop.example /shop"];
    assert_eq!(first_claims(&world).expect("it is known"), expected);
    // Recorded, it is the same; also what is below a wildcard stays when that goes.
    world.apply(recorded("shop", &["api.shop.example", "*.shop.example"], &["/shop"]));
    assert_eq!(first_claims(&world).expect("it is known"), expected);
    world.apply(gone(&claims("shop/web", 1, "*.shop.example")));
    world.apply(recorded("shop", &["api.shop.example"], &["/shop"]));
    world.apply(put(&claims("evil/more", 0, "api.shop.example")));
    assert_eq!(leads(&world, "api.shop.example"), ["shop", "-"]);
    let expected = ["cart: cart.example", "evil: a.shop.example", "shop: api.shop.example /shop"];
    assert_eq!(first_claims(&world).expect("it is known"), expected);
}

#[test]
fn nothing_is_to_be_recorded_before_all_is_known_nor_where_names_have_no_owners() {
    let shop = || put(&claims("shop/web", 1, "shop.example"));
    assert_eq!(
        first_claims(&world(first(), [shop(), Change::Synced(Kind::NameOwner)])),
        None,
        "of routes nothing was told"
    );
    for others in [UnlistedHosts::Refused, UnlistedHosts::Shared] {
        let world = world(kept(&[], others), [shop()].into_iter().chain(told_of_routes()));
        assert_eq!(first_claims(&world), None, "{others:?}");
    }
    let opens = seaway_model::config::OpenPolicy::Never;
    let mut config = first();
    config.front_door = FrontDoor { opens, ..config.front_door };
    let closed = world(config, [shop()].into_iter().chain(told_of_routes()));
    assert_eq!(first_claims(&closed), None, "what is recorded stays while it is closed");
    let list: &[(&str, &[&str])] = &[("shop.example", &["shop"])];
    let listed = world(kept(list, UnlistedHosts::First), [shop()].into_iter().chain(told_of_routes()));
    assert_eq!(first_claims(&listed), Some(Vec::new()), "the configuration says whose it is");
}
