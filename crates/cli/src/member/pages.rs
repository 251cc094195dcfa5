//! Pages that cannot be shown, for another process has their port.

use seaway_admin::Closed;
use seaway_model::{Change, Kind, ObjectRef, Problem, Reason};
use tokio::sync::{mpsc, watch};
use tracing::warn;

/// Tells where it is not listened, for as long as that is so.
pub(super) async fn tell(mut closed: watch::Receiver<Vec<Closed>>, changes: mpsc::Sender<Change>) {
    let mut told = false;
    loop {
        let now = closed.borrow_and_update().clone();
        if told || !now.is_empty() {
            told = !now.is_empty();
            let problems: Vec<Problem> = now.iter().map(problem).collect();
            problems.iter().for_each(|it| warn!("{it}"));
            if changes.send(Change::Reported(object(), problems)).await.is_err() {
                return;
            }
        }
        if closed.changed().await.is_err() {
            return;
        }
    }
}

fn object() -> ObjectRef {
    ObjectRef::new(Kind::Config, "", "admin")
}

fn problem(closed: &Closed) -> Problem {
    let Closed { address, why, probes, metrics } = closed;
    let (what, fix) = match probes {
        true => (
            "probes are not answered",
            "Stop that process, or name another port: --probe-port PORT, and the same in the probes of the pod.",
        ),
        false if *metrics => (
            "metrics are not shown",
            "Stop that process, or name another port in the configuration: admin: {metrics: {listen: [\"[::]:PORT\"]}}. \
             Services are served all the same.",
        ),
        false => (
            "the status page is not shown",
            "Stop that process, or name another port in the configuration: admin: {listen: [\"127.0.0.1:PORT\"]}. \
             Services are served all the same.",
        ),
    };
    Problem::new(object(), Reason::PortInUse, format!("{what} at {address}: {why}")).fix(fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_that_is_taken_is_a_problem_until_it_is_free() {
        let at = "127.0.0.1:1936".parse().unwrap();
        let why = "another process listens there".to_owned();
        let taken = Closed { address: at, why, probes: false, metrics: false };
        let (say, heard) = watch::channel(vec![taken]);
        let (changes, mut told) = mpsc::channel(4);
        let telling = tokio::spawn(tell(heard, changes));
        let Some(Change::Reported(object, problems)) = told.recv().await else { panic!("it is told") };
        assert_eq!(object.to_string(), "Config admin");
        assert!(problems[0].message.contains("127.0.0.1:1936: another process"), "{}", problems[0]);
        say.send_replace(Vec::new());
        let Some(Change::Reported(_, problems)) = told.recv().await else { panic!("it is taken back") };
        assert_eq!(problems, []);
        drop(say);
        telling.await.unwrap();
    }
}
