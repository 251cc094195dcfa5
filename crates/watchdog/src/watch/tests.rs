use std::sync::{
    atomic::{AtomicBool, Ordering::Relaxed},
    mpsc::{Receiver, Sender, channel},
};

use super::*;
use crate::Heartbeat;

/// Looks often; how long anything takes is not asserted.
const OFTEN: WatchdogTimings =
    WatchdogTimings { look: Duration::from_millis(20), limit: Duration::from_millis(200) };
const PATIENCE: Duration = Duration::from_secs(120);

fn watchdog() -> (Watchdog, Receiver<PartFailure>) {
    watchdog_at(OFTEN)
}

fn watchdog_at(pace: WatchdogTimings) -> (Watchdog, Receiver<PartFailure>) {
    let (tell, told) = channel();
    let watchdog = Watchdog::start(pace, move |fault| drop(tell.send(fault.clone()))).expect("a thread");
    (watchdog, told)
}

/// A thread that has a turn whenever it is woken, and does in it what the test sends.
struct Thread {
    part: WatchedPart,
    orders: Sender<Order>,
}

enum Order {
    Turn,
    Do(Box<dyn FnOnce() + Send>),
}

fn thread(name: &str) -> Thread {
    let (heartbeat, part) = Heartbeat::new(name);
    let (orders, taken) = channel();
    let wake = orders.clone();
    thread::spawn(move || {
        heartbeat.enter_thread();
        while let Ok(order) = taken.recv() {
            heartbeat.beat();
            if let Order::Do(it) = order {
                it();
            }
        }
    });
    Thread { part: part.woken_by(move || drop(wake.send(Order::Turn))), orders }
}

impl Thread {
    fn order(&self, order: impl FnOnce() + Send + 'static) {
        self.orders.send(Order::Do(Box::new(order))).expect("the thread takes it");
    }
}

fn fault(part: &str, hangs: bool) -> PartFailure {
    PartFailure { part: part.into(), hangs }
}

#[test]
fn a_thread_that_blocks_is_found_among_those_that_do_not() {
    let (watchdog, told) = watchdog();
    let (well, hung) = (thread("well"), thread("hung"));
    let _watching = watchdog.watch([well.part.clone(), hung.part.clone()]);
    assert_eq!(watchdog.failure(), None);
    let (release, wait) = channel::<()>();
    hung.order(move || _ = wait.recv());
    assert_eq!(told.recv_timeout(PATIENCE), Ok(fault("hung", true)));
    assert_eq!(watchdog.failure(), Some(fault("hung", true)));
    drop(release);
}

#[test]
fn a_thread_that_spins_is_found() {
    let (watchdog, told) = watchdog();
    let spins = thread("spins");
    let _watching = watchdog.watch([spins.part.clone()]);
    let over = Arc::new(AtomicBool::new(false));
    let end = over.clone();
    spins.order(move || {
        while !end.load(Relaxed) {
            std::hint::spin_loop();
        }
    });
    // It counts what the thread ran, so a busy machine takes longer.
    assert_eq!(told.recv_timeout(PATIENCE), Ok(fault("spins", true)));
    over.store(true, Relaxed);
}

#[test]
fn a_thread_that_panics_has_ended() {
    // What a panic prints may take a while.
    let (watchdog, told) = watchdog_at(WatchdogTimings { limit: PATIENCE, ..OFTEN });
    let dies = thread("dies");
    let _watching = watchdog.watch([dies.part.clone()]);
    dies.order(|| panic!("a test has this thread die"));
    assert_eq!(told.recv_timeout(PATIENCE), Ok(fault("dies", false)));
}

#[test]
fn parts_that_are_idle_or_wait_for_others_are_well_and_those_that_are_not_watched_may_end() {
    let (watchdog, told) = watchdog();
    let (idle, ended) = (thread("idle"), thread("ended"));
    let (heartbeat, waits) = Heartbeat::new("waits");
    let (release, wait) = channel::<()>();
    let waiting = thread::spawn(move || {
        heartbeat.enter_thread();
        heartbeat.while_waiting(|| _ = wait.recv());
        // Its end is no fault once it is not watched any more.
    });
    let watching = watchdog.watch([idle.part.clone(), waits]);
    drop(watchdog.watch([ended.part.clone()]));
    drop(ended.orders);
    // As many looks as a part that hangs survives, and many more.
    let before = idle.part.beats();
    while idle.part.beats() < before + 30 {
        thread::sleep(OFTEN.look);
    }
    assert_eq!(watchdog.failure(), None);
    drop(watching);
    drop(release);
    waiting.join().expect("it ends");
    assert!(told.try_recv().is_err());
}

#[test]
fn a_task_hangs_in_its_poll_and_not_while_it_waits() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    let (watchdog, told) = watchdog();
    let (heartbeat, waits) = Heartbeat::new("waits");
    let endless = runtime.spawn(heartbeat.watch(std::future::pending::<()>()));
    let (heartbeat, hangs) = Heartbeat::new("hangs");
    let _watching = watchdog.watch([waits, hangs]);
    let (release, wait) = channel::<()>();
    runtime.spawn(heartbeat.watch(async move { _ = wait.recv() }));
    assert_eq!(told.recv_timeout(PATIENCE), Ok(fault("hangs", true)));
    drop(release);
    endless.abort();
}

#[test]
fn a_runtime_hangs_when_all_its_threads_do() {
    const NAME: &str = "its-threads";
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).thread_name(NAME).enable_time().build().expect("a runtime");
    let (watchdog, told) = watchdog();
    let (heartbeat, part) = Heartbeat::new("the runtime");
    let _watching = watchdog.watch([part.of_threads(NAME)]);
    runtime.spawn(async move {
        loop {
            heartbeat.beat();
            tokio::time::sleep(OFTEN.look / 2).await;
        }
    });
    let (releases, blocked): (Vec<_>, Vec<_>) = (0..2).map(|_| channel::<()>()).unzip();
    for wait in blocked {
        runtime.spawn(async move { _ = wait.recv() });
    }
    assert_eq!(told.recv_timeout(PATIENCE), Ok(fault("the runtime", true)));
    drop(releases);
}

#[test]
fn a_task_with_timers_that_waits_for_ever_is_found() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let runtime = runtime.expect("a runtime");
    let (watchdog, told) = watchdog();
    let (heartbeat, ticks) = Heartbeat::new("ticks");
    // Much longer than its timer: a busy machine may delay it.
    let _ticks = watchdog.watch([ticks.with_allowed_silence(PATIENCE)]);
    let ticking = runtime.spawn(heartbeat.watch(async {
        loop {
            tokio::time::sleep(OFTEN.look).await;
        }
    }));
    let (heartbeat, waits) = Heartbeat::new("waits for ever");
    let _waits = watchdog.watch([waits.with_allowed_silence(OFTEN.limit)]);
    let waiting = runtime.spawn(heartbeat.watch(std::future::pending::<()>()));
    assert_eq!(told.recv_timeout(PATIENCE), Ok(fault("waits for ever", true)));
    ticking.abort();
    waiting.abort();
}
