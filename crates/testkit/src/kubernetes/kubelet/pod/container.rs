use std::{os::unix::process::ExitStatusExt, process::ExitStatus, rc::Rc, time::Duration};

use k8s_openapi::{api::core::v1::Probe, jiff::Timestamp};
use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use tokio::{
    process::Child,
    time::{sleep, timeout},
};

use super::{PodContainer, PodContext};
use crate::kubernetes::kubelet::{probes, program::Program};

/// How a container does.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) running: Option<Timestamp>,
    pub(super) ready: bool,
    /// Its startup probe has passed.
    pub(super) started: bool,
    pub(super) restarts: u32,
    pub(super) last: Option<End>,
    /// It does not run and will, or cannot: why.
    pub(super) waiting: Option<(&'static str, String)>,
}

#[derive(Debug, Clone)]
pub(super) struct End {
    pub(super) code: i32,
    pub(super) started: Timestamp,
    pub(super) at: Timestamp,
}

impl State {
    pub(super) fn succeeded(&self) -> bool {
        self.running.is_none() && self.last.as_ref().is_some_and(|it| it.code == 0)
    }
}

/// Starts it, and again for as long as `restarts` says so; to its end.
pub(super) async fn supervise(life: Rc<PodContext>, kept: Rc<PodContainer>, restarts: String) {
    let mut ending = life.ending.subscribe();
    let program = Program {
        place: &life.place,
        pod: &life.pod,
        sandbox: &life.sandbox,
        container: &kept.container,
        process: None,
    };
    // Slower each time, though sooner than a kubelet, which begins with ten seconds.
    let mut pause = Duration::ZERO;
    while ending.borrow().is_none() {
        let end = match program.start() {
            Ok(child) => {
                let program = Program { process: child.id(), ..program };
                Some(run(&life, &kept, program, child).await)
            }
            Err(why) => {
                kept.state.borrow_mut().waiting = Some(("ErrImagePull", why));
                None
            }
        };
        {
            let mut state = kept.state.borrow_mut();
            (state.running, state.ready, state.started) = (None, false, false);
            state.last = end.or(state.last.take());
            let again = match &*restarts {
                "Always" => true,
                "OnFailure" => !state.succeeded(),
                _ => state.last.is_none(),
            };
            if !again || ending.borrow().is_some() {
                break;
            }
            if pause > Duration::ZERO && state.last.is_some() {
                let why = "back-off restarting failed container".to_owned();
                state.waiting = Some(("CrashLoopBackOff", why));
            }
        }
        life.changed.notify_one();
        let _ = timeout(pause, ending.wait_for(Option::is_some)).await;
        pause = (pause * 2).clamp(Duration::from_millis(500), Duration::from_secs(8));
        kept.state.borrow_mut().restarts += 1;
    }
    life.changed.notify_one();
}

/// From its start to its end, by itself or because it is to.
async fn run(life: &PodContext, kept: &PodContainer, program: Program<'_>, mut child: Child) -> End {
    let started = Timestamp::now();
    {
        let mut state = kept.state.borrow_mut();
        (state.running, state.waiting) = (Some(started), None);
        state.started = kept.container.startup_probe.is_none();
        state.ready = state.started && kept.container.readiness_probe.is_none();
    }
    life.changed.notify_one();
    let mut ending = life.ending.subscribe();
    let status = tokio::select! {
        status = child.wait() => status.ok(),
        () = unwell(life, kept, program) => end(&mut child, Duration::from_secs(30)).await,
        grace = ending.wait_for(Option::is_some) => {
            let grace = grace.ok().and_then(|it| *it).unwrap_or_default();
            before_end(program, &mut child, grace).await
        }
    };
    // Whatever it started goes with it.
    if let Some(id) = child.id().and_then(|it| i32::try_from(it).ok()) {
        let _ = killpg(Pid::from_raw(id), Signal::SIGKILL);
    }
    let code = |it: ExitStatus| it.code().or(it.signal().map(|signal| 128 + signal));
    End { code: status.and_then(code).unwrap_or(255), started, at: Timestamp::now() }
}

/// Runs its probes; ends when it should be started anew.
async fn unwell(life: &PodContext, kept: &PodContainer, program: Program<'_>) {
    let container = &kept.container;
    if let Some(probe) = &container.startup_probe {
        let started = tokio::sync::Notify::new();
        let failed = tokio::sync::Notify::new();
        tokio::select! {
            () = probes::watch(program, probe, |good| if good { started.notify_one() } else { failed.notify_one() }) => {}
            () = started.notified() => {}
            () = failed.notified() => return,
        }
        let mut state = kept.state.borrow_mut();
        state.started = true;
        state.ready = container.readiness_probe.is_none();
        drop(state);
        life.changed.notify_one();
    }
    let ready = |good| {
        kept.state.borrow_mut().ready = good;
        life.changed.notify_one();
    };
    let failed = tokio::sync::Notify::new();
    tokio::select! {
        () = always(program, container.readiness_probe.as_ref(), ready) => {}
        () = always(program, container.liveness_probe.as_ref(), |good| if !good { failed.notify_one() }) => {}
        () = failed.notified() => {}
    }
}

async fn always(program: Program<'_>, probe: Option<&Probe>, settled: impl FnMut(bool)) {
    match probe {
        Some(probe) => probes::watch(program, probe, settled).await,
        None => std::future::pending().await,
    }
}

/// What it wants done first counts as part of its grace.
async fn before_end(program: Program<'_>, child: &mut Child, grace: Duration) -> Option<ExitStatus> {
    let began = Timestamp::now();
    let hook = program.container.lifecycle.as_ref().and_then(|it| it.pre_stop.as_ref());
    if let Some(hook) = hook {
        let work = async {
            if let Some(pause) = &hook.sleep {
                sleep(Duration::from_secs(u64::try_from(pause.seconds).unwrap_or(0))).await;
            }
            if let Some(line) = hook.exec.as_ref().and_then(|it| it.command.as_ref()) {
                probes::exec(program, line).await;
            }
        };
        let _ = timeout(grace, work).await;
    }
    let taken = Duration::try_from(Timestamp::now().duration_since(began)).unwrap_or_default();
    end(child, grace.saturating_sub(taken)).await
}

/// Asks it to end, and when its time is over asks no more.
async fn end(child: &mut Child, grace: Duration) -> Option<ExitStatus> {
    let id = child.id().and_then(|it| i32::try_from(it).ok()).map(Pid::from_raw);
    if let Some(id) = id {
        let _ = kill(id, Signal::SIGTERM);
    }
    if let Ok(status) = timeout(grace, child.wait()).await {
        return status.ok();
    }
    if let Some(id) = id {
        let _ = killpg(id, Signal::SIGKILL);
    }
    child.wait().await.ok()
}
