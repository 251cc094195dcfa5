//! What only a cluster has: several processes with one plan, and Nodes. Facts in, plans out; no cluster is there.

mod addresses;
mod adoption;
mod announced;
mod cloud_defaults;
mod clouds;
mod draining;
mod explained;
mod following;
mod groups;
mod holds;
mod late;
mod living;
mod mistakes;
mod nodes;
mod orphans;
mod pairs;
mod pools;
mod readiness;
mod released;
pub(crate) mod scene;
mod selected;
mod set_back;
mod several;
mod silent;
mod single_ports;
mod takeover;
mod vanished;
