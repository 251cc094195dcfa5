//! Wakes the thread that watches: to stop, or to tell what another thread found out.

use std::{
    collections::HashMap,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use nix::sys::eventfd::{EfdFlags, EventFd};
use seaway_model::{Change, ObjectRef, Problem};
use seaway_watchdog::HeartbeatHandle;

pub(crate) struct Wakeup {
    event: EventFd,
    stopping: AtomicBool,
    reports: Mutex<HashMap<ObjectRef, Vec<Problem>>>,
    pulse: OnceLock<HeartbeatHandle>,
}

impl Wakeup {
    pub(crate) fn new() -> nix::Result<Wakeup> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Wakeup {
            event,
            stopping: AtomicBool::new(false),
            reports: Mutex::default(),
            pulse: OnceLock::new(),
        })
    }

    /// Sets the pulse by which the watching thread beats.
    pub(crate) fn set_pulse(&self, pulse: HeartbeatHandle) {
        // There is one such thread.
        let _ = self.pulse.set(pulse);
    }

    pub(crate) fn beat(&self) {
        self.pulse.get().into_iter().for_each(HeartbeatHandle::beat);
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake();
    }

    pub(crate) fn queue_problems(&self, object: ObjectRef, problems: Vec<Problem>) {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner).insert(object, problems);
        self.wake();
    }

    /// What was reported since the last time.
    pub(crate) fn take_problems(&self) -> Vec<Change> {
        let _ = self.event.read();
        let reports = std::mem::take(&mut *self.reports.lock().unwrap_or_else(PoisonError::into_inner));
        reports.into_iter().map(|(object, problems)| Change::Reported(object, problems)).collect()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub(crate) fn event(&self) -> &EventFd {
        &self.event
    }

    pub(crate) fn wake(&self) {
        // Full means that it rings already.
        let _ = self.event.write(1);
    }
}
