//! A folder on a real disk, watched by a real kernel.

mod scene;

mod changes;
mod closed_places;
mod mistakes;
mod places;
mod restarts;
mod unused_routes;
