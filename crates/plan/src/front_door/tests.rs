//! Who is at the front door, where, and who came too late: tables over small worlds.

mod auth;
mod bypassed;
mod certificate_limit;
mod certified;
mod claims;
mod clients;
mod closed;
mod cluster;
mod entrance_orders;
mod entrances;
mod forward_auth;
mod guarded;
mod internal;
mod limits;
mod names;
mod no_effect;
mod orders;
mod owners;
mod places;
mod protected;
mod recorded;
mod routes;
mod scene;
mod services;
mod tls;
mod upkeep;
