//! The folder without a watch: time is handed in.

use super::*;

const SERVICE: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 80}]}\n";

struct Scene {
    dir: PathBuf,
    folder: Folder,
    now: Instant,
    _root: tempfile::TempDir,
}

impl Scene {
    fn new() -> Scene {
        let root = tempfile::tempdir().expect("a folder");
        let dir = root.path().join("manifests");
        fs::create_dir(&dir).expect("is made");
        fs::write(dir.join("a.yaml"), SERVICE).expect("is written");
        let (folder, _) = Folder::open(&dir, None).expect("is read");
        Scene { _root: root, dir, folder, now: Instant::now() }
    }

    fn rescan(&mut self) -> Vec<Change> {
        self.folder.rescan(self.now, &HashSet::new(), &mut |_| {})
    }

    fn refresh(&mut self) -> Vec<Change> {
        self.folder.refresh_files([Name::from("a.yaml")], self.now)
    }
}

fn goes(changes: &[Change]) -> bool {
    changes.iter().any(|change| matches!(change, Change::Gone(_)))
}

#[test]
fn a_file_that_went_with_its_folder_is_not_taken_for_removed() {
    let mut scene = Scene::new();
    fs::remove_dir_all(&scene.dir).expect("is removed");
    assert!(scene.refresh().is_empty(), "before the folder's absence is known");
    assert!(matches!(scene.rescan().as_slice(), [Change::Reported(_, problems)] if problems.len() == 1));
    assert!(scene.refresh().is_empty(), "and after");
    assert!(scene.rescan().is_empty(), "it is told once");
}

#[test]
fn a_folder_that_comes_back_without_its_files_is_given_time() {
    let mut scene = Scene::new();
    fs::remove_dir_all(&scene.dir).expect("is removed");
    scene.rescan();
    fs::create_dir(&scene.dir).expect("is made");
    assert!(matches!(scene.rescan().as_slice(), [Change::Reported(_, problems)] if problems.is_empty()));
    assert!(!goes(&scene.refresh()));
    assert!(!goes(&scene.rescan()));
    assert!(!scene.folder.tick(scene.now + PATIENCE / 2));
    scene.now += PATIENCE * 2;
    assert!(scene.folder.tick(scene.now));
    assert!(goes(&scene.rescan()));
}

#[test]
fn an_emptied_file_is_given_time_to_be_filled() {
    let mut scene = Scene::new();
    fs::write(scene.dir.join("a.yaml"), "").expect("is written");
    assert!(scene.refresh().is_empty() && scene.rescan().is_empty());
    let deadline = scene.folder.deadline().expect("it is looked at again");
    scene.now = deadline;
    assert!(scene.folder.tick(scene.now));
    let changes = scene.rescan();
    assert!(
        !goes(&changes) && format!("{changes:?}").contains("is empty"),
        "a full disk takes no objects away"
    );
    fs::remove_file(scene.dir.join("a.yaml")).expect("is removed");
    assert!(goes(&scene.rescan()));
}

#[test]
fn a_file_as_it_was_is_not_read_again() {
    let mut scene = Scene::new();
    let text = fs::read(scene.dir.join("a.yaml")).expect("is read");
    assert!(scene.rescan().is_empty() && scene.refresh().is_empty());
    fs::write(scene.dir.join("a.yaml"), [&text[..], b"# c\n"].concat()).expect("is written");
    let document = |scene: &Scene| Arc::as_ptr(&scene.folder.files["a.yaml"].documents[0].document);
    let before = document(&scene);
    assert!(scene.refresh().is_empty(), "a comment says nothing");
    assert_ne!(document(&scene), before, "but was read");
}

#[test]
fn only_documents_that_changed_are_parsed_again() {
    let mut scene = Scene::new();
    let file = scene.dir.join("a.yaml");
    let other = SERVICE.replace("name: a", "name: b");
    fs::write(&file, format!("{SERVICE}---\n{other}")).expect("is written");
    scene.refresh();
    let documents = |scene: &Scene| -> Vec<_> {
        scene.folder.files["a.yaml"].documents.iter().map(|placed| placed.document.clone()).collect()
    };
    let before = documents(&scene);
    fs::write(&file, format!("{}# longer\n---\n{other}", SERVICE.replace("80", "81"))).expect("is written");
    assert!(matches!(scene.refresh().as_slice(), [Change::Put(_)]));
    let after = documents(&scene);
    assert!(Arc::ptr_eq(&before[1], &after[1]) && !Arc::ptr_eq(&before[0], &after[0]));
}
