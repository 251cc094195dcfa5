//! The driver for Octavia against the fake cloud, which one suite holds against a real one.
#![allow(clippy::unwrap_used)]

mod admission;
mod adopted;
mod affinity;
mod ages;
mod audits;
mod belongings;
mod by_default;
mod called;
mod cascade;
mod changes;
mod clients;
mod crash;
mod crash_shared;
mod defects;
mod families;
mod floating;
mod former;
mod fuzz_seeds;
mod give_away;
mod gone;
mod group_kept;
mod group_release;
mod groups;
mod headers;
mod heeded;
mod living;
mod local;
mod meeting;
mod member_tls;
mod moved;
mod numbers;
mod obstacles;
mod occm;
mod opened;
mod options;
mod pairs;
mod partial;
mod pending;
mod preview;
mod probes;
mod queued;
mod refused;
mod restraint;
mod retag;
mod scene;
mod serial;
mod shared;
mod shares;
mod tags;
mod their_groups;
mod tls;
mod tls_terms;
mod troubles;
mod vip;
mod waiting;
mod walks;
mod wishes;
mod written;

#[path = "../../../openstack/tests/client/hurried.rs"]
#[allow(dead_code)]
mod hurried;
