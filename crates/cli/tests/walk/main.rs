//! Walks through the whole program as a user would: a real `seaway`, real sockets on loopback, real files.

// What was skipped, and the log of a process whose test failed.
#![allow(clippy::print_stderr)]

mod acme;
mod addresses;
mod alerts;
mod backends;
mod balance;
mod balancing;
mod bgp;
mod both_families;
mod client_certificates;
mod clock;
mod commands;
mod compression;
mod demo;
mod disk;
mod dns_names;
mod endpoints;
mod entrances;
mod examples;
mod failing;
mod folder;
mod forward_auth;
mod front_door;
mod fuzz_seeds;
mod haproxy;
mod harness;
mod health;
mod helm;
mod holding_up;
mod http_options;
mod http_routes;
mod image;
mod imports;
mod in_namespace;
mod layer2;
mod lifecycle;
mod limits;
mod loops;
mod manifests;
mod mistakes;
mod names;
mod namespace;
mod old_bank;
mod openstack;
mod operating;
mod package;
mod pages;
mod passwords;
mod pressure;
mod proxy_protocol;
mod release;
mod rights;
mod seeing;
#[path = "../shared/image.rs"]
mod shared_image;
mod succession;
#[path = "../shared/thousand_changes.rs"]
mod thousand_changes;
mod tls;
mod transparent;
#[path = "../openstack_octavia/tree.rs"]
#[allow(dead_code, reason = "here only its own tests are run, which need no cloud")]
mod tree;
mod units;
