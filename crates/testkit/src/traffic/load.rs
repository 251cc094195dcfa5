//! Who asks steadily, and notes what became of each request.

use std::{
    collections::BTreeMap,
    fmt, io,
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc as blocking,
    },
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{
    Response, Target,
    connection::{Connection, within},
};
use crate::topology::until;

/// A request that begins so much after its time was held up by the machine.
const LATE: Duration = Duration::from_millis(100);

/// Requests are made until it ends or is dropped.
#[derive(Debug)]
pub struct Load {
    ended: Arc<AtomicBool>,
    heard: Arc<Mutex<LoadResults>>,
    over: blocking::Receiver<()>,
}

/// What became of the requests to each target, by its name.
#[derive(Clone, Debug, Default)]
pub struct LoadResults(pub BTreeMap<&'static str, TargetResults>);

#[derive(Clone, Debug, Default)]
pub struct TargetResults {
    /// Requests whose time has come.
    pub due: usize,
    /// How often each name answered.
    pub answers: BTreeMap<String, usize>,
    pub failures: Vec<Failure>,
    /// The longest that a request which was answered took, since it was due.
    pub slowest: Duration,
    /// The longest that a request was begun after its time.
    pub latest: Duration,
    /// From when they were due until they were begun: the requests that were begun a tenth of a second too late, or later.
    late: Vec<Range<Duration>>,
}

/// A request that was not answered.
#[derive(Clone, Debug)]
pub struct Failure {
    /// When it was due, after the start.
    pub due: Duration,
    /// How long after that it had failed.
    pub after: Duration,
    pub kind: io::ErrorKind,
    pub error: String,
}

impl LoadResults {
    pub fn answered(&self) -> usize {
        self.0.values().map(TargetResults::answered).sum()
    }

    pub fn due(&self) -> usize {
        self.0.values().map(|it| it.due).sum()
    }

    pub fn failures(&self) -> impl Iterator<Item = (&'static str, &Failure)> {
        self.0.iter().flat_map(|(name, it)| it.failures.iter().map(move |failure| (*name, failure)))
    }

    /// Each request that was due was answered, and there were some to each target.
    #[track_caller]
    pub fn was_always_answered(&self) {
        self.lost_at_most(0, "none may be");
    }

    /// How much later than due a request began at most: for so long the machine stood still, and what was due meanwhile was under way at once.
    pub fn latest(&self) -> Duration {
        self.0.values().map(|it| it.latest).max().unwrap_or_default()
    }

    /// Requests were due to each target, and no more than so many of all have no answer; `reason`: why any may.
    #[track_caller]
    pub fn lost_at_most(&self, most: usize, reason: &str) {
        let lost = self.due() - self.answered();
        assert!(lost <= most, "{lost} are lost where at most {most} may be ({reason}):\n{self}");
        for (name, tally) in &self.0 {
            assert!(tally.answered() > 0, "nothing was asked of {name}:\n{self}");
        }
    }
}

impl TargetResults {
    pub fn answered(&self) -> usize {
        self.answers.values().sum()
    }

    /// Failures of requests that were under way while this machine did not stand still. When it does, what is due meanwhile
    /// begins at once afterwards, so that more requests than the rate says meet what was to be tested.
    pub fn failures_at_the_rate(&self) -> usize {
        let is_late = |it: &Failure| {
            let ended = it.due + it.after;
            self.late.iter().any(|late| late.start < ended && it.due < late.end)
        };
        self.failures.iter().filter(|it| !is_late(it)).count()
    }
}

impl fmt::Display for LoadResults {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, it) in &self.0 {
            let (answered, lost) = (it.answered(), it.failures.len());
            writeln!(
                out,
                "  {name}: {} due, {answered} answered, {lost} failed; the slowest {:?}, the latest begun {:?} late",
                it.due, it.slowest, it.latest
            )?;
            for failure in it.failures.iter().take(10) {
                writeln!(
                    out,
                    "    due after {:.3?}, failed {:.3?} later: {}",
                    failure.due, failure.after, failure.error
                )?;
            }
        }
        Ok(())
    }
}

impl Load {
    pub(super) fn start(runtime: &Handle, targets: Vec<Target>) -> Load {
        let heard = LoadResults(targets.iter().map(|it| (it.name, TargetResults::default())).collect());
        assert_eq!(heard.0.len(), targets.len(), "each target has a name of its own");
        let (ended, heard) = (Arc::<AtomicBool>::default(), Arc::new(Mutex::new(heard)));
        let (tell, over) = blocking::channel();
        let job = run(targets, ended.clone(), heard.clone());
        runtime.spawn(async move {
            job.await;
            let _ = tell.send(());
        });
        Load { ended, heard, over }
    }

    pub fn results(&self) -> LoadResults {
        lock(&self.heard).clone()
    }

    /// Waits until so many more of each target were answered.
    #[track_caller]
    pub fn goes_on(&self, answers: usize) {
        let answered = || lock(&self.heard).0.values().map(TargetResults::answered).collect::<Vec<_>>();
        let before = answered();
        until("the load goes on", || {
            answered().iter().zip(&before).all(|(now, before)| *now >= before + answers)
        });
    }

    /// Nothing more is due; what was is waited for.
    pub fn end(self) -> LoadResults {
        self.ended.store(true, Ordering::Relaxed);
        self.over.recv().expect("whoever asks does not panic");
        self.results()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

fn lock(heard: &Mutex<LoadResults>) -> std::sync::MutexGuard<'_, LoadResults> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One target, with what it takes to ask it.
struct TargetClient {
    target: Arc<Target>,
    /// Of one connection for all.
    queue: Option<mpsc::UnboundedSender<Instant>>,
    next: Instant,
}

async fn run(targets: Vec<Target>, ended: Arc<AtomicBool>, heard: Arc<Mutex<LoadResults>>) {
    let (began, mut under_way) = (Instant::now(), JoinSet::new());
    let count = targets.len() as u32;
    let mut all: Vec<TargetClient> = Vec::new();
    for (number, target) in (0..).zip(targets) {
        // Not all at once.
        let next = began + apart(&target) * number / count;
        let target = Arc::new(target);
        let queue = target.kept.then(|| {
            let (queue, due) = mpsc::unbounded_channel();
            under_way.spawn(ask_in_turn(target.clone(), due, began, heard.clone()));
            queue
        });
        all.push(TargetClient { target, queue, next });
    }
    while !ended.load(Ordering::Relaxed) {
        let Some(next) = all.iter_mut().min_by_key(|it| it.next) else { break };
        sleep_until(next.next).await;
        let due = next.next;
        next.next += apart(&next.target);
        lock(&heard).0.entry(next.target.name).or_default().due += 1;
        match &next.queue {
            Some(queue) => drop(queue.send(due)),
            None => {
                let (target, heard) = (next.target.clone(), heard.clone());
                under_way.spawn(async move {
                    let latest = due.elapsed();
                    note(&heard, &target, began, due, latest, Connection::ask_once(&target).await);
                });
            }
        }
        while under_way.try_join_next().is_some() {}
    }
    drop(all);
    while under_way.join_next().await.is_some() {}
}

fn apart(target: &Target) -> Duration {
    Duration::from_secs(1) / target.per_second
}

async fn ask_in_turn(
    target: Arc<Target>,
    mut queue: mpsc::UnboundedReceiver<Instant>,
    began: Instant,
    heard: Arc<Mutex<LoadResults>>,
) {
    let mut open: Option<Connection> = None;
    while let Some(due) = queue.recv().await {
        let latest = due.elapsed();
        if let Some(connection) = &open
            && !connection.goes_on().await
        {
            open = None;
        }
        let answer = within(&target, async {
            if open.is_none() {
                open = Some(Connection::open(&target).await?);
            }
            open.as_mut().expect("it was just opened").ask(&target).await
        })
        .await;
        if answer.as_ref().is_ok_and(|it| it.is_last) || answer.is_err() {
            open = None;
        }
        note(&heard, &target, began, due, latest, answer);
    }
}

fn note(
    heard: &Mutex<LoadResults>,
    target: &Target,
    began: Instant,
    due: Instant,
    latest: Duration,
    answer: io::Result<Response>,
) {
    let mut heard = lock(heard);
    let tally = heard.0.entry(target.name).or_default();
    tally.latest = tally.latest.max(latest);
    let at = due - began;
    if latest >= LATE {
        tally.late.push(at..at + latest);
    }
    match answer {
        Ok(answer) => {
            tally.slowest = tally.slowest.max(due.elapsed());
            *tally.answers.entry(answer.from).or_default() += 1;
        }
        Err(error) => tally.failures.push(Failure {
            due: at,
            after: due.elapsed(),
            kind: error.kind(),
            error: error.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_while_the_machine_stood_still_does_not_count_at_the_rate() {
        let failed = |due: f64, after: f64| Failure {
            due: Duration::from_secs_f64(due),
            after: Duration::from_secs_f64(after),
            kind: io::ErrorKind::ConnectionReset,
            error: String::new(),
        };
        let of = |failures: Vec<Failure>| {
            let late = vec![Duration::from_secs(1)..Duration::from_secs(3)];
            TargetResults { failures, late, ..TargetResults::default() }.failures_at_the_rate()
        };
        assert_eq!(of(vec![failed(0.5, 0.2), failed(3.1, 1.0)]), 2);
        assert_eq!(of(vec![failed(0.5, 0.6), failed(2.0, 0.1), failed(2.9, 1.0)]), 0);
    }
}
