//! A real Kubernetes of a test's own: the control plane of `rig/kubernetes`, nodes that are network namespaces with a
//! real kube-proxy in each, and pods that are processes in namespaces behind them.
//!
//! ```text
//!   test ── loopback ── Relay ──┐
//!                               │ 10.10.0.1, fd00:10::1
//!   control: etcd, kube-apiserver, controllers, scheduler      a bridge: 10.10.0.0/16, fd00:10::/64
//!        ├── cable ── node a 10.10.0.11: kube-proxy, Kubelet ── cable ── pod 10.244.1.2: a program
//!        ├── cable ── node b 10.10.0.12: …
//!        └── cable ── outside 10.10.255.1: who asks
//! ```
//!
//! Deployments, EndpointSlices, scheduling, ClusterIPs and node ports are the work of the real thing; `kubelet` stands in
//! for the kubelet and the container runtime. All clusters have the same addresses, since each has networks of its own.
//!
//! ```no_run
//! use seaway_testkit::kubernetes::{Cluster, Options};
//!
//! let Some(cluster) = Cluster::up(&Options::default()) else { return };
//! let _nodes = ["a", "b"].map(|name| cluster.node(name));
//! cluster.kubectl(&["create", "deployment", "hello", "--image", "web", "--replicas", "3"]);
//! cluster.kubectl(&["rollout", "status", "deployment/hello", "--timeout", "20s"]);
//! ```
//!
//! A control plane takes seconds to come up and some hundred milliseconds to be emptied: one that a test gives back serves the
//! next test of the program, once it is as it was when it was new. `rig/kubernetes/README.md` says what is compared.
//!
//! A [`Gate`] is a way to its API server on which a test scripts what goes wrong.
//!
//! It needs root and what `rig/kubernetes/install` makes. Of Seaway it uses the reader of manifests, and knows nothing else.

mod access;
mod api;
mod backup;
mod cluster;
mod gate;
mod kubectl;
mod kubelet;
mod metallb;
mod node;
mod plane;
mod pool;

pub use access::{client, nodes_ready};
pub use backup::Backup;
pub use cluster::{Cluster, Options, kubectl_alone};
pub use gate::Gate;
pub use metallb::METALLB;
pub use node::{Node, NodeOptions};
