//! Seaway beside and after the real openstack-cloud-controller-manager (OCCM): its Services come to Seaway and go back, on a
//! real Kubernetes and a real OpenStack. Of the tier `peers`: building OCCM takes minutes.

// What was seen, for results/peers.md, and logs of processes whose test failed.
#![allow(clippy::print_stderr)]

mod amphora;
mod beside;
#[path = "../openstack_octavia/certificates.rs"]
#[allow(dead_code, reason = "what it has for Secrets is for others")]
mod certificates;
#[path = "../openstack_octavia/ground.rs"]
#[allow(dead_code, reason = "what it has for Seaway alone is for others")]
mod ground;
mod groups;
mod migration;
mod occm;
mod ovn;
mod release;
mod report;
mod requests;
#[path = "../kubernetes_native/scene.rs"]
#[allow(dead_code, reason = "what it has for hosts of ours is for others")]
mod scene;
#[path = "../openstack_octavia/stage.rs"]
#[allow(dead_code, reason = "what it has for Seaway alone is for others")]
mod stage;
mod times;
#[path = "../openstack_octavia/tree.rs"]
mod tree;
#[path = "../kubernetes_native/witness.rs"]
#[allow(dead_code, reason = "what it has for Addresses is for others")]
mod witness;
