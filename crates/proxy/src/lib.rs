//! The data plane: sockets, workers, connections, drain.
//!
//! ```text
//!                 put_pool, open, retune, close          (drivers::native, from any thread)
//!                               │
//!                        Proxy ─┴─ registry: listeners, pools, members, counters      running/
//!                               │          ▲ ArcSwap and relaxed atomics, no locks on the way of bytes
//!            commands + eventfd │          │
//!                 ┌─────────────┴──────────┴────┐
//!                 │ worker 0   worker 1   …     │   one thread and one epoll each        worker.rs
//!                 │  ├─ Tcp    listeners, connections, splice pipes, deadlines           tcp/
//!                 │  └─ Udp    listeners, flows                                          udp/
//!                 └─────────────────────────────┘
//!                        one prober thread: checks                                       health/
//!                        one writer thread, where requests and connections are logged    access/
//! ```
//!
//! Every worker has its own listening socket for every (address, port), joined by SO_REUSEPORT: the kernel spreads
//! newcomers, workers share nothing but counters and pools. Counted per process: connections and rates that limits
//! are about, open connections of members, health, ejections, affinity. Per worker: the turn of round robin.
//!
//! What this process sends may come back to it, by mistake or by malice: `own_sockets`, `hops` and `http/marks` count how
//! often it has come through, and `descriptors` bounds what one load balancer takes, however it does that.
//!
//! What the crate does not know: Kubernetes, plans, who gave an address, whether an address is on this host (it
//! binds freely), where certificates come from, files, the configuration.
//!
//! # Another kind of source in a worker
//!
//! A worker (`worker.rs`) has a field for every kind of source; each implements `worker::EventSource`, as `tcp` and `udp`
//! do. What a further one has to know:
//!
//! - Descriptors go into `turn.epoll` under a `Token` of its own `Kind`, with an index and a generation (from a
//!   `worker::Slab`), and `Worker::run` passes events of that kind on. A token may be stale.
//! - `Command::Open` carries a listener and a bound socket for this worker; each source takes those that are its own.
//!   `Close` names the listener by its `Arc`, `SweepAt` says when a drain ends: then whatever is on a member with
//!   `draining_since()`, or came through a listener with `closed_at()`, longer ago than `timeouts.drain`, is ended.
//! - `tick` comes after the events of a turn, and at the latest after `patience`. The time is `turn.now`; deadlines go
//!   into a `worker::TimerWheel`.
//! - `listener.config().pool(…)` gives the pool for a newcomer, `pool.choose(…)` the member, with a
//!   `seaway_snapshot::Cursor` per pool and worker. `begin_connection`/`end_connection` count what is open on it, `pool.failed` and
//!   `member.served` feed passive ejection, `listener.enter`/`leave`/`refuse` the limits.
//! - System calls live below `sys`, and `unsafe` nowhere else.
//!
//! The prober thread is no source: it is told of every pool that is put, and tells what it found by
//! `pool.set_health(&member, Health::Down, now)`, which answers whether that is news. A successor's sockets go into
//! `shared.inherited` before `open` is called; the sockets to hand over are `listener.sockets()`.

mod access;
mod by_address;
mod client_rates;
mod descriptors;
#[cfg(test)]
mod failing;
pub mod fuzz;
mod health;
mod hops;
mod http;
mod latency;
mod listening_sockets;
mod memory;
mod new_connections;
mod open;
mod own_sockets;
mod passwords;
mod pipes;
mod proxy;
mod proxy_state;
mod reach;
mod running;
mod statistics;
mod sys;
mod takeover;
mod tcp;
mod tls;
mod udp;
mod worker;

pub use access::{AccessLog, AccessLogError, AccessLogFormat, AccessLogTarget};
pub use memory::MemoryLimits;
pub use open::{OWN_PROCESS, OpenError, SteerError};
pub use proxy::{DrainResult, Proxy, RunningLoadBalancer, Settings, StartError};
pub use running::{Health, HealthHistory, RefusalReason};
pub use seaway_snapshot::MemberAvailability;
pub use statistics::{
    ListenerStatistics, MemberStatistics, MemoryStatistics, PoolStatistics, Statistics, Traffic,
};
pub use sys::{give_memory_back, raise_descriptor_limit};
pub use takeover::{
    ANSWERS_WITHIN, HandoverListener, HandoverPhase, Introduction, Predecessor, STOPS_WITHIN, Takeover,
    TakeoverError, take, take_as,
};
pub use tls::{KeyError, look_at, look_at_authorities, shows_validation};
