//! Control planes that run while no test has them. One that a test gives back is emptied, and checked to be as it was when it
//! was new; one that is not is taken down, and the reason is printed.

use std::{
    sync::{Mutex, PoisonError},
    thread,
};

use super::plane::{ControlPlane, Settings};

/// They end with this process: `up --for` sees to that.
static IDLE: Mutex<Vec<ControlPlane>> = Mutex::new(Vec::new());

/// One with nothing in it.
#[track_caller]
pub(super) fn take(settings: Settings) -> ControlPlane {
    while let Some(mut plane) = idle(&settings) {
        let checked = plane.check().or_else(|why| {
            // A controller may have written something late.
            say(&plane, &format!("this control plane is emptied again: {why}"));
            plane.empty()
        });
        match checked {
            Ok(()) => return plane,
            Err(why) => discard(plane, &why),
        }
    }
    let mut plane = ControlPlane::start(settings);
    plane.remember();
    plane
}

/// For the next test, if it can be made what it was.
pub(super) fn give_back(mut plane: ControlPlane) {
    match plane.empty() {
        Ok(()) => {
            let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
            idle.push(plane);
            // More than tests run at once are of settings that are not asked for any more.
            let first = (idle.len() > at_once()).then(|| idle.remove(0));
            drop(idle);
            drop(first);
        }
        Err(why) => discard(plane, &why),
    }
}

pub(super) fn discard(plane: ControlPlane, why: &str) {
    say(&plane, &format!("this control plane is not used again: {why}"));
}

fn say(plane: &ControlPlane, what: &str) {
    crate::rig("kubernetes", &format!("{}: {what}", plane.folder.display()));
}

fn idle(settings: &Settings) -> Option<ControlPlane> {
    let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
    let at = idle.iter().rposition(|it| it.settings == *settings)?;
    Some(idle.remove(at))
}

fn at_once() -> usize {
    let said = std::env::var("RUST_TEST_THREADS").ok().and_then(|it| it.parse().ok());
    said.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from))
}
