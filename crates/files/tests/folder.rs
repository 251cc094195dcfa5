//! A folder on a real disk, watched by a real kernel.

#[path = "folder/scene.rs"]
mod scene;

#[path = "folder/changes.rs"]
mod changes;
#[path = "folder/mistakes.rs"]
mod mistakes;
#[path = "folder/places.rs"]
mod places;
#[path = "folder/restarts.rs"]
mod restarts;
