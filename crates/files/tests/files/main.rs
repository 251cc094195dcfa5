//! Folders of manifests, on a real disk.

mod failing;
mod folder;
mod fuzz_seeds;
mod large;
