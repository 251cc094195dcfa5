//! One error for all services: what class it is of, whose fault, when to try again, and what to do about it.

mod class;
mod reply;

use std::{error, fmt, sync::Arc, time::Duration};

use crate::call::{Call, Service};

pub use class::{Class, Responsibility, Retry};
pub use reply::ErrorReply;
pub(crate) use reply::is_of_a_service;

/// Cheap to clone: a hundred callers may wait for one sign-in, and all are told why it failed.
#[derive(Clone)]
pub struct Error(Arc<ErrorInner>);

struct ErrorInner {
    class: Class,
    /// What was being done: `list load balancers`. Empty where there was no call yet.
    doing: String,
    message: String,
    fix: Option<String>,
    service: Option<Service>,
    status: Option<u16>,
    is_of_service: bool,
    request_id: Option<String>,
    retry_after: Option<Duration>,
    source: Option<Box<dyn error::Error + Send + Sync>>,
}

impl Error {
    /// `message` is one line without a full stop, and does not repeat its source.
    pub fn new(class: Class, message: impl Into<String>) -> Error {
        Error(Arc::new(ErrorInner {
            class,
            doing: String::new(),
            message: message.into(),
            fix: None,
            service: None,
            status: None,
            is_of_service: false,
            request_id: None,
            retry_after: None,
            source: None,
        }))
    }

    /// What a call was refused with.
    pub fn from_reply(call: &Call, refusal: &ErrorReply<'_>) -> Error {
        reply::read(call, refusal)
    }

    pub fn class(&self) -> &Class {
        &self.0.class
    }

    /// Who can mend it.
    pub fn fault(&self) -> Responsibility {
        self.0.class.fault()
    }

    /// When trying again makes sense.
    pub fn retry(&self) -> Retry {
        match (self.0.class.retry(), self.0.retry_after) {
            (Retry::Later, Some(after)) => Retry::After(after),
            (retry, _) => retry,
        }
    }

    /// What the service said, or what is wrong, without the rest of the line.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    pub fn fix(&self) -> Option<&str> {
        self.0.fix.as_deref()
    }

    /// What was being done and what is wrong: the same as long as that is the same, for whoever tells it with the fix
    /// beside it and not anew for every request.
    pub fn summary(&self) -> String {
        let ErrorInner { doing, message, .. } = &*self.0;
        if doing.is_empty() { message.clone() } else { format!("{doing}: {message}") }
    }

    pub fn service(&self) -> Option<Service> {
        self.0.service
    }

    pub fn status(&self) -> Option<u16> {
        self.0.status
    }

    /// What the operator of the cloud greps the logs for.
    pub fn request_id(&self) -> Option<&str> {
        self.0.request_id.as_deref()
    }

    pub fn is_not_found(&self) -> bool {
        self.0.class == Class::NotFound
    }

    /// Whether the service itself said so, in its own form; what stands in between has others.
    pub fn is_of_service(&self) -> bool {
        self.0.is_of_service
    }

    /// What to do about it, as a sentence's second half: `set \`region: RegionOne\``.
    #[must_use]
    pub fn with_fix(self, fix: impl Into<String>) -> Error {
        self.with(|what| what.fix = Some(fix.into()))
    }

    #[must_use]
    pub fn with_source(self, source: impl Into<Box<dyn error::Error + Send + Sync>>) -> Error {
        self.with(|what| what.source = Some(source.into()))
    }

    /// Says what was being done, unless it says so already.
    #[must_use]
    pub fn with_operation(self, doing: impl Into<String>) -> Error {
        if !self.0.doing.is_empty() {
            return self;
        }
        self.with(|what| what.doing = doing.into())
    }

    #[must_use]
    pub(crate) fn during(self, call: &Call) -> Error {
        self.with_operation(call.operation).with(|what| what.service = Some(call.service))
    }

    #[must_use]
    pub(crate) fn with_status(self, status: u16) -> Error {
        self.with(|what| what.status = Some(status))
    }

    #[must_use]
    pub(crate) fn said_by_service(self, is_of_service: bool) -> Error {
        self.with(|what| what.is_of_service = is_of_service)
    }

    #[must_use]
    pub(crate) fn with_request_id(self, id: Option<impl Into<String>>) -> Error {
        self.with(|what| what.request_id = id.map(Into::into))
    }

    #[must_use]
    pub(crate) fn with_retry_after(self, after: Option<Duration>) -> Error {
        self.with(|what| what.retry_after = after)
    }

    #[must_use]
    pub(crate) fn with_class(self, class: Class) -> Error {
        self.with(|what| what.class = class)
    }

    /// Changes what nobody shares yet; what is shared stays as it was told.
    fn with(mut self, change: impl FnOnce(&mut ErrorInner)) -> Error {
        match Arc::get_mut(&mut self.0) {
            Some(what) => change(what),
            None => {
                let shared = self.clone();
                let mut what = ErrorInner {
                    class: self.0.class.clone(),
                    doing: self.0.doing.clone(),
                    message: self.0.message.clone(),
                    fix: self.0.fix.clone(),
                    service: self.0.service,
                    status: self.0.status,
                    is_of_service: self.0.is_of_service,
                    request_id: self.0.request_id.clone(),
                    retry_after: self.0.retry_after,
                    source: error::Error::source(&self).is_some().then(|| Box::new(Cause(shared)) as _),
                };
                change(&mut what);
                self = Error(Arc::new(what));
            }
        }
        self
    }
}

/// One line: what was being done, what is wrong, what to do, and whom to quote.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = &*self.0;
        f.write_str(&self.summary())?;
        if let Some(fix) = &what.fix {
            write!(f, "; {fix}")?;
        }
        if let Some(id) = &what.request_id {
            write!(f, " ({id})")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = &*self.0;
        f.debug_struct("Error")
            .field("class", &what.class)
            .field("doing", &what.doing)
            .field("message", &what.message)
            .field("service", &what.service)
            .field("status", &what.status)
            .field("request_id", &what.request_id)
            .finish_non_exhaustive()
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

/// The causes of an error that is shared, for a copy of it.
#[derive(Debug)]
struct Cause(Error);

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match error::Error::source(&self.0) {
            Some(source) => fmt::Display::fmt(source, f),
            None => Ok(()),
        }
    }
}

impl error::Error for Cause {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        error::Error::source(&self.0).and_then(error::Error::source)
    }
}
