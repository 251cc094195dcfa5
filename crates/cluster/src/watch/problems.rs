//! What stands between us and the API server, told as Problems of one object: each once, however many watches have it.

use std::collections::BTreeMap;

use seaway_model::{Change, Kind, Problem};
use tokio::sync::mpsc;

use crate::api_error;

/// What one watch has to complain of; nothing, if it goes on well.
pub(crate) type WatchProblem = (Kind, Option<Problem>);

/// Runs until all watches have ended.
pub(crate) async fn report_problems(
    mut troubles: mpsc::Receiver<WatchProblem>,
    changes: mpsc::Sender<Change>,
) {
    let mut by_kind = BTreeMap::new();
    let mut before = Vec::new();
    while let Some((kind, problem)) = troubles.recv().await {
        match problem {
            Some(problem) => by_kind.insert(kind, problem),
            None => by_kind.remove(&kind),
        };
        let mut now: Vec<Problem> = by_kind.values().cloned().collect();
        now.sort();
        now.dedup();
        if now == before {
            continue;
        }
        before.clone_from(&now);
        if changes.send(Change::Reported(api_error::api_server(), now)).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use seaway_model::Reason;

    use super::*;

    #[tokio::test]
    async fn what_all_watches_have_is_told_once_and_taken_back_with_the_last() {
        let (changes, mut told) = mpsc::channel(16);
        let (tell, troubles) = mpsc::channel(16);
        let problem = Problem::new(api_error::api_server(), Reason::Unreachable, "nobody answers");
        for (kind, trouble) in [
            (Kind::Service, Some(problem.clone())),
            (Kind::Node, Some(problem.clone())),
            (Kind::Service, None),
            (Kind::Service, None),
            (Kind::Node, None),
        ] {
            tell.send((kind, trouble)).await.expect("is heard");
        }
        drop(tell);
        report_problems(troubles, changes).await;
        let mut all = Vec::new();
        while let Some(Change::Reported(_, problems)) = told.recv().await {
            all.push(problems);
        }
        assert_eq!(all, [vec![problem], vec![]]);
    }
}
