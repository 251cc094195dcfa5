//! Objects of all kinds, against the fake: walks that a real cloud survives too, and what only a fake lets happen.

mod expiry;
#[path = "../client/hurried.rs"]
#[allow(dead_code, reason = "tests of calls ask it for more")]
mod hurried;
mod lists;
mod lost;
mod operators;
mod stage;
mod surveyed;
mod waits;
#[path = "../objects/walks.rs"]
mod walks;

use stage::Stage;

macro_rules! walk {
    ($($name:ident: $walk:path;)*) => {
        $(#[tokio::test]
        async fn $name() {
            $walk(&Stage::set().await.cloud).await;
        })*
    };
}

walk! {
    every_kind_of_octavia_is_made_read_changed_and_deleted: walks::one_by_one;
    what_octavia_refuses_is_told_apart: walks::refusals;
    networks_and_routers_are_made_changed_and_deleted: walks::networks_and_routers;
    addresses_and_groups_are_made_changed_and_deleted: walks::addresses_and_groups;
    servers_and_their_interfaces_come_and_go: walks::servers_and_interfaces;
    secrets_are_kept_and_told_to_their_owner: walks::secrets_and_containers;
    lists_are_whole_in_pages_of_any_size: walks::whole_lists;
    nothing_is_missed_when_the_end_of_a_page_is_deleted: walks::what_goes_between_two_pages;
}
