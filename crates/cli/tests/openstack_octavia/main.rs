//! A real Kubernetes on a real OpenStack: nodes that are ports of Neutron, and Services that Octavia serves.

// Logs of processes whose test failed.
#![allow(clippy::print_stderr)]

mod affinity;
mod certificates;
mod crashes;
mod credentials;
mod drift;
mod failing;
mod failover;
mod families;
mod foreign;
mod ground;
mod heartbeats;
mod leavings;
mod node_ports;
mod nodes;
mod operator;
mod pods;
mod protocols;
mod quotas;
mod rebuilt;
mod routes;
#[path = "../kubernetes_native/scene.rs"]
#[allow(dead_code, reason = "what it has for hosts of ours is for others")]
mod scene;
mod stage;
mod tree;
mod walk;
