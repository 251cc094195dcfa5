//! Walks through the whole program as a user would: a real `seaway`, real sockets on loopback, real files.

mod addresses;
mod backends;
mod balancing;
mod commands;
mod demo;
mod folder;
mod harness;
mod holding_up;
mod lifecycle;
mod names;
