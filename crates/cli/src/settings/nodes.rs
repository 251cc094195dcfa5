//! `nodes`: which Nodes of a cloud are deleted, by a controller with cloud-node-lifecycle.

use std::time::Duration;

use seaway_drivers::nodes::Deletion;
use seaway_manifests::decode::Field;

/// Less than a cloud may take to answer rightly again.
const LEAST: Duration = Duration::from_secs(10);
const MOST: Duration = Duration::from_secs(24 * 3_600);

pub(super) fn read(field: &Field<'_>) -> Deletion {
    let section = field.object();
    let mut deletion = Deletion::default();
    let grace = section.take("deletionGrace");
    match grace.duration() {
        Some(time) if (LEAST..=MOST).contains(&time) => deletion.grace = time,
        Some(time) => grace.invalid(&*format!("{time:?}"), "must be 10s to 24h"),
        None => {}
    }
    let (states, words) = (section.take("deleteIn"), Deletion::STATES.map(|it| (it, it)));
    deletion.also_in = states.items().filter_map(|it| it.one_of(&words)).map(str::to_owned).collect();
    section.finish();
    deletion
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{super::parse, *};

    #[test]
    fn nodes_go_by_choice_alone_where_a_server_is_still_there() {
        let read = |text: &str| parse(text, Path::new("")).map(|it| it.node_deletion);
        assert_eq!(read("{}").expect("it is right"), Deletion::default());
        let chosen = read("nodes: {deletionGrace: 5m, deleteIn: [ERROR]}").expect("it is right");
        assert_eq!(chosen.grace, Duration::from_secs(300));
        assert_eq!(chosen.also_in, ["ERROR".to_owned()].into());
        for wrong in ["nodes: {deletionGrace: 1s}", "nodes: {deleteIn: [ACTIVE]}", "nodes: {deleteIn: ERROR}"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
