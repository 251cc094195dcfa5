//! The parsers from outside: what peers really wrote, whatever way it is cut, and mutations of it.

mod fuzz_seeds;
mod haproxy;
mod hello;
mod http_chunks;
mod http_heads;
