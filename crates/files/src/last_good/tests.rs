//! What is kept of files, how much of it waits for a disk, and how much is written.

use super::*;

/// What was good before an upgrade is so after it.
#[test]
fn the_form_of_what_was_good_is_the_golden_one() {
    seaway_testkit::golden::round_trips(include_str!("../../golden/last-good.jsonl"), |line| {
        serde_json::from_str::<LastGoodFile>(line).and_then(|it| serde_json::to_string(&it))
    });
}

/// One state folder may serve one folder of manifests after the other, and files of both may have one name.
#[test]
fn what_was_good_in_another_folder_or_in_an_unknown_one_is_not_recalled() {
    let root = tempfile::tempdir().expect("a folder");
    let (one, other, state) = (root.path().join("one"), root.path().join("other"), root.path().join("state"));
    fs::create_dir(&one).and_then(|()| fs::create_dir(&other)).expect("folders");
    let open =
        |dir: &Path| LastGoodStore::open(dir, &state, None, Arc::new(Wakeup::new().expect("a wakeup")));
    let text = "apiVersion: v1\nkind: Service\nmetadata: {name: shop}\nspec: {ports: [{port: 80}]}\n";
    let document = Arc::new(Document::read(text, None));
    let job = || SaveJob {
        file: "shop.yaml".into(),
        text: text.into(),
        documents: vec![GoodDocument::of(text, text, &document)],
        kept: Vec::new(),
        routes: RouteServices::default(),
    };
    open(&one).save(job());
    let recalled = |dir: &Path| open(dir).load(&"shop.yaml".into()).len();
    assert_eq!((recalled(&one), recalled(&other)), (1, 0));
    assert_eq!(recalled(&other.join("../one")), 1, "it is the same folder");
    open(&other).save(job());
    assert_eq!((recalled(&one), recalled(&other)), (0, 1));
    // As versions before this one wrote it.
    let path = path_of(&state.join("last-good"), &"shop.yaml".into());
    let written = fs::read_to_string(&path).expect("it is there");
    let mut old: serde_json::Value = serde_json::from_str(&written).expect("it is JSON");
    old.as_object_mut().expect("it is a map").remove("folder").expect("it is bound");
    fs::write(&path, old.to_string()).expect("is written");
    assert_eq!((recalled(&one), recalled(&other)), (0, 0));
    open(&one).save(job());
    assert_eq!(recalled(&one), 1, "it is written again");
}

/// Every state folder would leave one for good.
#[test]
fn a_folder_for_secrets_that_keeps_nothing_is_removed_and_made_again() {
    let root = tempfile::tempdir().expect("a folder");
    let open = || {
        LastGoodStore::open(
            root.path(),
            root.path(),
            Some(root.path()),
            Arc::new(Wakeup::new().expect("a wakeup")),
        )
    };
    let folder = open().folders.secret.clone().expect("it is writable");
    assert!(!folder.exists(), "nothing was kept there");
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: shop}\n";
    let document = Arc::new(Document::read(secret, None));
    let documents = vec![GoodDocument::of(secret, secret, &document)];
    let again = open();
    // Another process that ends removes it below this one's feet.
    fs::remove_dir(&folder).expect("it is there, and empty");
    let (kept, routes) = (Vec::new(), RouteServices::default());
    again.save(SaveJob { file: "shop.yaml".into(), text: secret.into(), documents, kept, routes });
    drop(again);
    assert_eq!(fs::read_dir(&folder).expect("it is there").count(), 1);
    assert_eq!(open().load(&"shop.yaml".into()).len(), 1);
}

fn job(file: &str, text: String, kept: bool) -> SaveJob {
    let kept = kept.then(|| ObjectRef::new(Kind::Service, "default", "shop"));
    SaveJob {
        file: file.into(),
        text: text.into(),
        documents: Vec::new(),
        kept: kept.into_iter().collect(),
        routes: RouteServices::default(),
    }
}

#[test]
fn what_waits_for_a_disk_that_hangs_is_bounded_for_each_file_and_the_last_is_kept() {
    let mut waiting = WriterBacklog::default();
    for round in 0..10_000 {
        waiting.jobs.add(job("broken.yaml", format!("broken {round}"), true));
        waiting.jobs.add(job("whole.yaml", format!("whole {round}"), false));
    }
    let of = |waiting: &WriterBacklog, file: &str| {
        waiting.jobs.0.get(file).map(|jobs| (jobs.len(), jobs.last().map(|it| it.text.to_string())))
    };
    assert_eq!(of(&waiting, "broken.yaml"), Some((MOST_WAITING, Some("broken 9999".to_owned()))));
    assert_eq!(of(&waiting, "whole.yaml"), Some((1, Some("whole 9999".to_owned()))));
    let wanted: BTreeSet<String> = [format!("{}.json", short_hash("whole.yaml"))].into();
    waiting.forget_all_but(wanted.clone());
    assert_eq!((of(&waiting, "broken.yaml"), of(&waiting, "whole.yaml").is_some()), (None, true));
    assert_eq!(waiting.wanted, Some(wanted));
}

fn service(host: &str, comment: usize) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: shop\n  annotations:\n    seaway.dev/host: {host}\n    \
         seaway.dev/source-ranges: 10.0.0.0/8\nspec: {{ports: [{{port: 80}}]}}\n# {comment}\n"
    )
}

/// As a program that writes the file every few seconds would have it.
#[test]
fn a_hundred_edits_of_a_slip_of_the_pen_leave_one_document() {
    let root = tempfile::tempdir().expect("a folder");
    let store =
        LastGoodStore::open(root.path(), root.path(), None, Arc::new(Wakeup::new().expect("a wakeup")));
    let shop = ObjectRef::new(Kind::Service, "default", "shop");
    let save = |text: &str, kept: &[&ObjectRef]| {
        let document = Arc::new(Document::read(text, None));
        let job = SaveJob {
            file: "shop.yaml".into(),
            text: text.into(),
            documents: vec![GoodDocument::of(text, text, &document)],
            kept: kept.iter().map(|it| (*it).clone()).collect(),
            routes: RouteServices::default(),
        };
        write(&store.folders, &job).expect("is written");
    };
    let documents =
        || store.folders.read(&store.folders.plain, &"shop.yaml".into()).expect("is read").documents;
    save(&service("shop.example/admin", 0), &[]);
    let good = documents();
    for edit in 0..100 {
        save(&service("http://shop.example/admin", edit), &[&shop]);
        assert!(documents() == good, "{edit}: {}", documents().len());
    }
    // What else is written beside it is saved, once.
    for edit in 0..100 {
        save(&format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: web}}\n# {edit}\n"), &[&shop]);
        assert_eq!(documents().len(), 2, "{edit}");
        assert!(documents().last() == good.last());
    }
    // As versions before this one wrote it: the last one is good.
    let slipped =
        |edit| LastGoodDocument { text: service("http://shop.example/admin", edit), ..good[0].clone() };
    let grown: Vec<LastGoodDocument> = (0..9).map(slipped).chain(good.iter().cloned()).collect();
    assert!(still_good(&grown, &[&shop].into()) == good);
}
