//! What keeps a connection of HTTP/2 to a member open.

use std::{ops::Deref, rc::Rc};

use super::super::h2_connection::H2Connection;

/// Keeps a connection open for requests. Its driver is woken when the last but one of these is dropped, and ends it.
#[derive(Clone)]
pub(super) struct H2Handle(pub(super) Rc<H2Connection>);

impl Deref for H2Handle {
    type Target = Rc<H2Connection>;

    fn deref(&self) -> &Rc<H2Connection> {
        &self.0
    }
}

impl Drop for H2Handle {
    fn drop(&mut self) {
        // This one, and that of the driver.
        if Rc::strong_count(&self.0) == 2 {
            self.0.wake();
        }
    }
}
