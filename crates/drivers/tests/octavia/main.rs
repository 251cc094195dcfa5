//! The driver for Octavia against the fake cloud, which one suite holds against a real one.
#![allow(clippy::unwrap_used)]

mod adopted;
mod changes;
mod floating;
mod scene;

#[path = "../../../openstack/tests/client/hurried.rs"]
#[allow(dead_code)]
mod hurried;
