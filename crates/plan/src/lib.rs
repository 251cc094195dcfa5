//! World: facts in, Units with what should be there out. Pure, synchronous, total.
//!
//! ```text
//!     Change ─► World ─┬─ index    facts, trimmed and joined
//!                      ├─ ledger   who has which address of our pools
//!                      ├─ certificates what Secrets and files hold, by name
//!                      ├─ owners   what each asks (demand) and gets (service, members, annotations)
//!                      └─ outcomes what came of each Unit
//!                           │
//!                           └─► Dirt ─► desire(unit) ─► Desired
//! ```
//!
//! Planning never fails and never panics: what cannot be planned is a Problem, and the rest goes on. The crate knows
//! no clock, no I/O, no randomness, and no driver: each driver's mapping from owners to Units (a [`Placement`]) is
//! handed in.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

mod access_rules;
mod address_map;
pub mod annotations;
mod announcing;
mod asked;
pub mod base64;
mod basic_auth;
mod certificates;
mod closed;
mod cloud;
pub mod demand;
pub mod explain;
mod forbidden_members;
mod forward_auth;
mod front_door;
pub mod fuzz;
mod guarded;
mod http;
pub mod index;
mod internal;
pub mod ledger;
mod members;
mod own_listeners;
pub mod quantity;
mod service;
mod slices;
mod sources;
pub mod spelling;
mod tenant_limits;
mod tenant_shares;
mod unheeded;
mod unit_rules;
mod unlikely_values;
mod unserved;
mod world;

pub use certificates::{
    CertificateCounts, CertificateDates, dates as certificate_dates, identity as certificate_identity,
};
pub use cloud::{GIVEN_AWAY, RELEASED};
pub use demand::Demand;
pub use front_door::{AttachedRouteView, FRONT_DOOR, FirstClaims, FrontDoorView, LostClaims, PathView};
pub use guarded::{guarded_references, misplaced_protection};
pub use http::{ascii_host, host as host_pattern, is_token, meant_place};
pub use index::ServiceKey;
pub use slices::without_service as slices_without_service;
pub use sources::contains_every_address;
pub use unit_rules::UnitRules;
pub use unserved::{serves_nothing, unserved_problems};
pub use world::{
    Adoption, AskedFor, CompetingController, DnsNameView, DnsZoneCounts, Layer2Wanted, NotAdopted,
    OtherControllerEvidence, Overview, Placement, Roles, Waiting, World, dry_run,
};
