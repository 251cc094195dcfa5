//! A real HAProxy, on this machine's own address, with clients that ask all the while.

#[path = "runtime/changes.rs"]
mod changes;
#[path = "runtime/faults.rs"]
mod faults;
#[path = "runtime/place.rs"]
mod place;
#[path = "runtime/recovery.rs"]
mod recovery;
#[path = "runtime/reloads.rs"]
mod reloads;
