//! A folder on a real disk, watched by a real kernel.

mod scene;

mod changes;
mod mistakes;
mod places;
mod restarts;
mod unused_routes;
