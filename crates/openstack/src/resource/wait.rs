//! Waiting for what a service does in its own time.

use std::time::Duration;

use super::{Collection, Id, Resource};
use crate::{Class, Error, error::Retry};

/// How an object is, apart from the words of its service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceState {
    Ready,
    /// Something is under way; its word for it.
    Pending(String),
    /// It will not be ready by waiting; in its own words.
    Failed(String),
    Gone,
}

/// Each pause is half as long again as the one before: a quick service is not waited for, a slow one not asked often.
const FIRST_PAUSE: Duration = Duration::from_millis(300);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

impl<R: Resource> Collection<R> {
    /// The object as soon as it is ready. One that failed is an error at once, one that is gone is `NotFound`.
    pub async fn until_ready(&self, id: &Id<R>, patience: Duration) -> Result<R, Error> {
        let mut waiting = StateWaiter::new(self, id, patience);
        loop {
            match self.read::<R>(id).await {
                Ok(it) => match it.standing() {
                    ResourceState::Ready => return Ok(it),
                    ResourceState::Pending(word) => waiting.told = word,
                    ResourceState::Failed(why) => return Err(failed::<R>(id, &why)),
                    ResourceState::Gone => {
                        let gone = format!("the {} {id} is gone", R::NAMES.one);
                        return Err(Error::new(Class::NotFound, gone).with_operation(R::NAMES.read));
                    }
                },
                Err(error) => waiting.bear(error)?,
            }
            waiting.pause().await?;
        }
    }

    /// Until it cannot be read any more. Nothing else says that it is gone: while `ovn` deletes a load balancer with
    /// its children, it is ACTIVE for a moment.
    pub async fn until_gone(&self, id: &Id<R>, patience: Duration) -> Result<(), Error> {
        let mut waiting = StateWaiter::new(self, id, patience);
        let mut was_going = false;
        loop {
            match self.read::<R>(id).await {
                Ok(it) => match it.standing() {
                    ResourceState::Gone => return Ok(()),
                    // One that was in error before it was deleted says so until its deletion is noticed.
                    ResourceState::Failed(why) if was_going => return Err(failed::<R>(id, &why)),
                    ResourceState::Failed(why) => waiting.told = why,
                    ResourceState::Pending(word) => {
                        was_going = true;
                        waiting.told = word;
                    }
                    ResourceState::Ready => waiting.told = "as if it had not been deleted".to_owned(),
                },
                Err(error) if error.is_not_found() => return Ok(()),
                Err(error) => waiting.bear(error)?,
            }
            waiting.pause().await?;
        }
    }
}

fn failed<R: Resource>(id: &Id<R>, why: &str) -> Error {
    Error::new(Class::Failed, format!("the {} {id} has failed: {why}", R::NAMES.one))
        .with_operation(R::NAMES.read)
}

struct StateWaiter<'a, R> {
    of: &'a Collection<R>,
    id: &'a Id<R>,
    patience: Duration,
    waited: Duration,
    since: std::time::Instant,
    pause: Duration,
    told: String,
}

impl<'a, R: Resource> StateWaiter<'a, R> {
    fn new(of: &'a Collection<R>, id: &'a Id<R>, patience: Duration) -> StateWaiter<'a, R> {
        let since = of.cloud.clock().now();
        StateWaiter {
            of,
            id,
            patience,
            waited: Duration::ZERO,
            since,
            pause: FIRST_PAUSE,
            told: String::new(),
        }
    }

    /// A read that failed and may succeed next time does not end the waiting.
    fn bear(&mut self, error: Error) -> Result<(), Error> {
        match error.retry() {
            Retry::Later | Retry::After(_) => {
                self.told = error.to_string();
                Ok(())
            }
            Retry::AfterLooking | Retry::WhenChanged => Err(error),
        }
    }

    async fn pause(&mut self) -> Result<(), Error> {
        let clock = self.of.cloud.clock();
        self.waited = clock.now().saturating_duration_since(self.since);
        let Some(left) = self.patience.checked_sub(self.waited).filter(|it| !it.is_zero()) else {
            let message = format!(
                "the {} {} is not done after {} s: {}",
                R::NAMES.one,
                self.id,
                self.patience.as_secs(),
                self.told
            );
            return Err(Error::new(Class::Timeout, message).with_operation(R::NAMES.read));
        };
        clock.sleep(self.pause.min(left)).await;
        self.pause = self.pause.saturating_mul(3).checked_div(2).unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE);
        Ok(())
    }
}
