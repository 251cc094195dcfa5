//! What a process cannot go on without.

use seaway_plan::World;
use tokio::task::{JoinError, JoinHandle};

/// Returns when one ends without which the rest goes on by what was known: none does by itself.
pub(super) async fn died(
    engine: &mut JoinHandle<World>,
    watch_ends: impl Future<Output = ()>,
    hearing: &mut JoinHandle<()>,
) -> String {
    fn told<T>(what: &str, ended: Result<T, JoinError>) -> String {
        match ended {
            Ok(_) => format!("{what} has ended"),
            Err(error) => format!("{what} failed ({error})"),
        }
    }
    tokio::select! {
        ended = engine => told("the engine", ended),
        () = watch_ends => "a watch of the API server ended".to_owned(),
        ended = hearing => told("the forwarder of watch events", ended),
    }
}
