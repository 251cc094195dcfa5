//! What Seaway is made of, for those who must know: the SBOM of the binary, and the advisories on what it is built with.
//!
//! ```text
//!   Cargo.lock, fuzz/Cargo.lock ─► lock ─┐
//!   advisories.toml ─► database ─────────┼─► audit ─► Report    (program `advisories`)
//!   a RustSec database ─► rustsec ───────┘
//!   cargo tree, cargo metadata, Cargo.lock ─► bom ─► CycloneDX  (program `sbom`)
//! ```
//!
//! It deliberately knows no network: the advisories are a file of the checkout with a date in it, and a full database is
//! read from a folder that the operator names. Which licences and which duplicate versions are allowed is a house rule
//! (`crates/testkit/tests/house`).

pub mod audit;
pub mod bom;
pub mod checkout;
pub mod database;
pub mod lock;
pub mod rustsec;
mod toml;

pub use toml::TomlError;
