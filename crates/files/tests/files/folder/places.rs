//! Problems that others find get their file and line.

use seaway_model::{Kind, ObjectRef, Problem, Reason};

use super::scene::{Scene, service};

fn problem(name: &str, field: &str) -> Problem {
    Problem::new(ObjectRef::new(Kind::Service, "default", name), Reason::NoSuchPort, "no").at(field)
}

fn located(scene: &Scene, mut problems: Vec<Problem>) -> Vec<(String, u32, u32)> {
    scene.places().locate(&mut problems);
    let places = problems.into_iter().map(|problem| {
        problem.place.map_or(("".into(), 0, 0), |it| (it.file.to_string(), it.line, it.column))
    });
    places
        .map(|(file, line, column)| (file.rsplit('/').next().unwrap_or_default().to_owned(), line, column))
        .collect()
}

#[test]
fn a_field_is_found_in_its_document_even_after_lines_above_it_moved() {
    let mut scene = Scene::with(&[("s.yaml", &format!("{}---\n{}", service("a", 80), service("b", 80)))]);
    let asked = || vec![problem("b", "spec.ports[0].port"), problem("b", ""), problem("nobody", "x")];
    assert_eq!(
        located(&scene, asked()),
        [("s.yaml".to_owned(), 15, 5), ("s.yaml".to_owned(), 9, 1), (String::new(), 0, 0)]
    );
    scene.write("s.yaml", &format!("# one\n# more\n{}---\n{}", service("a", 81), service("b", 80)));
    scene.until("a changed", |world| world.port("a") == Some(81));
    assert_eq!(located(&scene, asked())[0], ("s.yaml".to_owned(), 17, 5));
}

#[test]
fn a_field_is_found_in_a_list() {
    let list = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Service\n  metadata: {name: a}\n  spec: {ports: [{port: 80}]}\n\
                - apiVersion: v1\n  kind: Service\n  metadata: {name: b, annotations: {seaway.dev/x: y z}}\n  spec:\n    ports:\n    - port: 80\n";
    let scene = Scene::with(&[("l.yaml", list)]);
    assert_eq!(
        located(
            &scene,
            vec![
                problem("b", "spec.ports[0]"),
                problem("b", "metadata.annotations[seaway.dev/x]"),
                problem("a", "spec.nothing")
            ]
        ),
        [("l.yaml".to_owned(), 13, 7), ("l.yaml".to_owned(), 10, 37), ("l.yaml".to_owned(), 7, 3)]
    );
}

#[test]
fn a_kept_object_is_located_by_its_file() {
    let mut scene = Scene::with(&[("s.yaml", &service("a", 80))]);
    scene.write("s.yaml", "x: [\n");
    scene.until("it is told", |world| !world.problems.is_empty());
    assert_eq!(located(&scene, vec![problem("a", "spec")]), [("s.yaml".to_owned(), 0, 0)]);
}
