//! This checkout: what it locks and pins, the advisories on that, and its bill of materials.

mod advisories;
mod pins;
mod sbom;
