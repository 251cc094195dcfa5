//! What must hold for whatever anybody writes into names, descriptions and tags in a cloud (`fuzz/README.md`).

#![allow(clippy::expect_used, reason = "what is wrong ends the fuzz target")]

use std::collections::BTreeSet;

use seaway_model::{Kind, LbKey, ObjectRef, Owner, load_balancer::Family};
use seaway_openstack::resource::Edit;

use super::{
    names::{Cluster, LONGEST, number_in, numbered, replaced},
    tags,
};

fn cluster(uid: &str) -> Cluster {
    Cluster { uid: uid.into(), name: "kubernetes".into() }
}

/// Whose something is, is said by its own tags and descriptions alone, to one cluster at most, and for one load balancer. Lines
/// of the input: a description, the name and the UID of a Service, and tags.
pub(crate) fn names(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut lines = text.split('\n');
    let (description, service) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let uid = lines.next().unwrap_or_default();
    let there: BTreeSet<String> = lines.map(str::to_owned).collect();
    read(&there, description);
    kept(&there);
    let is_proper = |text: &str| {
        !text.is_empty() && text.bytes().all(|it| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'.'))
    };
    if let Some((namespace, name)) = service.split_once('/').filter(|(a, b)| is_proper(a) && is_proper(b))
        && is_proper(uid)
        && uid.len() <= 63
    {
        let object = ObjectRef::new(Kind::Service, namespace, name);
        written(&Owner::Object { object, uid: uid.into() });
    }
}

/// What is read of what others wrote.
fn read(there: &BTreeSet<String>, description: &str) {
    // One that begins as another.
    let clusters = ["8f14-e45f", "8f14-e45f-2", "8f14"].map(cluster);
    for it in &clusters {
        if let Some(key) = it.key_of(there, description) {
            assert!(there.contains(&it.tag()) && there.contains(&it.tag_of(&key)), "{key:?} is not tagged");
        }
    }
    let whose: Vec<&str> = clusters.iter().filter_map(|it| it.whose(description)).collect();
    assert!(whose.len() <= 1, "it is of several clusters: {whose:?}");
    assert!(whose.iter().all(|it| description.ends_with(it)));
    if let Some(now) = replaced(description) {
        assert!(now.len() <= LONGEST && now.ends_with(" replaced]"), "{now:?}");
    }
}

/// What is written of a Service reads back, as long as it is not cut; and nobody takes it for another's.
fn written(owner: &Owner) {
    let (ours, theirs) = (cluster("8f14-e45f"), cluster("8f14"));
    let second = |family| LbKey::Second(owner.clone(), family);
    let keys = [LbKey::Of(owner.clone()), second(Family::V4), second(Family::V6)];
    for key in &keys {
        let there = BTreeSet::from([ours.tag(), ours.tag_of(key)]);
        let description = ours.description(owner);
        let is_whole = description.contains(" from cluster ");
        assert_eq!(ours.key_of(&there, &description), is_whole.then(|| key.clone()));
        assert_eq!(theirs.key_of(&there, &description), None, "another cluster takes it");
        for kept in [false, true] {
            let floating = ours.floating(owner, key, kept);
            assert!(floating.len() <= LONGEST);
            assert_eq!((ours.whose(&floating).is_some(), theirs.whose(&floating)), (true, None));
            for other in &keys {
                assert_eq!(ours.made(&floating, other), other == key && !kept, "{floating:?} and {other:?}");
            }
        }
        let now = replaced(&ours.floating(owner, key, false)).expect("it has a mark");
        assert_eq!(ours.whose(&now), Some(ours.mark_of_replaced(key).as_str()));
        assert!(keys.iter().all(|it| !ours.made(&now, it)), "its place was taken");
        let name = ours.name_of(key, owner);
        assert!(name.len() <= LONGEST);
        assert_eq!(number_in(&numbered("pool", 17, &name), "pool"), Some(17));
    }
    let names: BTreeSet<String> = keys.iter().map(|key| ours.name_of(key, owner)).collect();
    assert_eq!(names.len(), keys.len(), "each has a name of its own");
}

/// Tags that are asked for come and go; all others stay.
fn kept(there: &BTreeSet<String>) {
    let asked = |tags: &[&str]| Edit::To(tags.iter().map(|it| (*it).to_owned()).collect());
    let marker = |tag: &String| format!("seaway.dev/tag={tag}");
    for wish in [asked(&[]), asked(&["blue", "seaway.dev/tag=blue"]), Edit::Leave] {
        let now = tags::merged(there, &wish);
        assert_eq!(tags::merged(&now, &wish), now, "twice is once");
        let others =
            there.iter().filter(|it| !it.starts_with("seaway.dev/tag=") && !there.contains(&marker(it)));
        for tag in others {
            assert!(now.contains(tag), "{tag:?} was not ours to take away");
        }
        let wanted = matches!(&wish, Edit::To(tags) if tags.contains("blue"));
        let had = there.contains("blue") && !there.contains("seaway.dev/tag=blue");
        assert_eq!(now.contains("blue"), wanted || had);
    }
}
