//! Objects of all kinds, against the fake: walks that a real cloud survives too, and what only a fake lets happen.

mod expiry;
mod lists;
mod lost;
mod operators;
mod stage;
mod surveyed;
mod waits;
#[path = "../objects/walks.rs"]
#[macro_use]
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

each_walk!(walk);
