//! The plan of `examples/`, byte by byte: what is changed for clusters changes nothing in a folder.

use std::path::Path;

use crate::harness::{Folder, path, run, stderr, stdout};

#[test]
fn the_plan_of_the_examples_stays_what_it_is() {
    let folder = Folder::new();
    folder.write("seaway.yaml", "host: {name: edge-1, addresses: [192.0.2.5, '2001:db8::5']}\n");
    let config = folder.manifests().join("seaway.yaml");
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for (name, table, json) in [
        ("web", include_str!("plans/web.txt"), include_str!("plans/web.json")),
        ("pools", include_str!("plans/pools.txt"), include_str!("plans/pools.json")),
        ("front-door", include_str!("plans/front-door.txt"), include_str!("plans/front-door.json")),
    ] {
        let manifests = examples.join(name);
        for (form, wanted) in [("table", table), ("json", json)] {
            let planned =
                run(&["plan", "--manifests", path(&manifests), "--config", path(&config), "-o", form]);
            assert!(planned.status.success(), "{}", stderr(&planned));
            assert_eq!(stdout(&planned), wanted, "{name}");
        }
    }
}
