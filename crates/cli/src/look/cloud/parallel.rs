//! Many looks at a cloud, some at once: each waits for answers most of the time. What takes long says how far it is.

use std::{pin::Pin, time::Duration};

use anyhow::{Context, Result};
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

/// As many as a controller looks at together; the client has its own limit of requests at a time.
const WIDTH: usize = 32;
/// Whoever waits hears of it this often.
const TELL: Duration = Duration::from_secs(5);

pub(super) type Job<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Their results, in the order of the jobs. `tell`: how many are done.
pub(super) async fn run_all<T: Send + 'static>(jobs: Vec<Job<T>>, tell: impl Fn(usize)) -> Result<Vec<T>> {
    let mut done: Vec<Option<T>> = jobs.iter().map(|_| None).collect();
    let mut waiting = jobs.into_iter().enumerate();
    let mut running = JoinSet::new();
    let mut ticks = interval(TELL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        while running.len() < WIDTH
            && let Some((at, job)) = waiting.next()
        {
            running.spawn(async move { (at, job.await) });
        }
        tokio::select! {
            ended = running.join_next() => {
                let Some(ended) = ended else { break };
                let (at, result) = ended.context("reading the cloud ended early")?;
                done[at] = Some(result);
            }
            _ = ticks.tick() => tell(done.iter().flatten().count()),
        }
    }
    Ok(done.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    };

    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_looks_go_on_at_once_within_a_bound_and_what_takes_long_says_how_far_it_is() {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let job = |at: usize| -> Job<usize> {
            let (now, most) = (now.clone(), most.clone());
            Box::pin(async move {
                most.fetch_max(1 + now.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
                // The later ones are faster.
                sleep(Duration::from_millis(4_000 - 10 * at as u64)).await;
                now.fetch_sub(1, Ordering::Relaxed);
                at
            })
        };
        let (told, begin) = (Mutex::new(Vec::new()), Instant::now());
        let all = run_all((0..100).map(job).collect(), |done| told.lock().unwrap().push(done)).await.unwrap();
        assert_eq!(all, (0..100).collect::<Vec<_>>(), "in their order");
        assert_eq!(most.load(Ordering::Relaxed), WIDTH);
        assert!(begin.elapsed() < Duration::from_secs(16), "{:?}", begin.elapsed());
        let told = told.into_inner().unwrap();
        assert!(told.len() >= 2 && told.is_sorted() && told[0] > 0, "{told:?}");
    }
}
