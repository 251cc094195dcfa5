//! Folders of manifests, on a real disk.

mod folder;
mod fuzz_seeds;
mod large;
