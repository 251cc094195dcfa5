//! Services of a real cluster, served by hosts that are its nodes: from `kubectl create` to an answer outside.

// Logs of processes whose test failed.
#![allow(clippy::print_stderr)]

mod bgp;
mod changing;
mod claims;
mod cloud_config;
mod cloud_crashes;
mod copies;
mod crashes;
mod credentials;
mod daemon_set;
mod deaths;
mod dns_names;
mod draining;
mod fence;
mod giving_away;
mod half_open;
mod handing_over;
mod haproxy;
mod hears;
mod helm;
mod honoured;
mod host_addresses;
mod installing;
mod kustomize;
mod layer2;
mod leaders;
mod leavings;
mod looking;
mod lost_settings;
mod making;
mod mending;
mod metrics;
mod mistakes;
mod node_writes;
mod occm;
mod octavia;
mod openstack_nodes;
mod openstack_routes;
mod planning;
mod pods;
mod policies;
mod ready;
mod refusals;
mod restarts;
mod rolling;
mod scene;
mod set_back;
#[path = "../shared/image.rs"]
mod shared_image;
mod sharing;
mod silent;
mod snapshot;
mod tenants;
#[path = "../shared/thousand_changes.rs"]
mod thousand_changes;
mod walks;
mod witness;
