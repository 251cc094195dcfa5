//! What HAProxy may do: to listen at ports below 1024, and at addresses that are not on this machine yet. Seaway has seen to it
//! that what it starts inherits no rights, so another user than root gives these two to HAProxy alone.

use std::{io, thread};

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, configure_capability_in_ambient_set, set_capabilities,
};
use tokio::{
    process::{Child, Command},
    runtime::Handle,
};

/// On a thread of its own: rights are a thread's, and are gone with it.
pub(super) fn spawn(mut command: Command) -> io::Result<Child> {
    let runtime = Handle::current();
    let start = move || {
        if let Err(error) = pass_on() {
            tracing::warn!(
                %error,
                "HAProxy is started without the capabilities of Seaway: as another user than root it cannot open ports below 1024, or \
                 addresses of pools"
            );
        }
        let _runtime = runtime.enter();
        command.spawn()
    };
    let thread = thread::Builder::new().name("start-haproxy".to_owned()).spawn(start)?;
    thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that starts it panicked")))
}

/// What is executed by this thread has them. (Ambient capabilities are kept where no privileges can be gained.)
fn pass_on() -> io::Result<()> {
    let own = capabilities(None)?;
    // Each of the two is enough to bind such an address, and this is the lesser.
    let foreign = match own.permitted.contains(CapabilitySet::NET_RAW) {
        true => CapabilitySet::NET_RAW,
        false => CapabilitySet::NET_ADMIN,
    };
    let passed = own.permitted & (foreign | CapabilitySet::NET_BIND_SERVICE);
    if passed.is_empty() {
        return Ok(());
    }
    set_capabilities(None, CapabilitySets { inheritable: own.inheritable | passed, ..own })?;
    for one in passed.iter() {
        configure_capability_in_ambient_set(one, true)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
