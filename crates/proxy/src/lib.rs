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
//! ```
//!
//! Every worker has its own listening socket for every (address, port), joined by SO_REUSEPORT: the kernel spreads
//! newcomers, workers share nothing but counters and pools. Counted per process: connections and rates that limits
//! are about, open connections of members, health, ejections, affinity. Per worker: the turn of round robin.
//!
//! What the crate does not know: Kubernetes, plans, who gave an address, whether an address is on this host (it
//! binds freely), HTTP and TLS (yet), files, the configuration.
//!
//! # Another kind of source in a worker
//!
//! A worker (`worker.rs`) owns an epoll and a field for every kind of source, all of which implement
//! `worker::Source`: `event`, `command`, `tick`, `patience`. To plug one in (UDP, for example):
//!
//! 1. `mod udp;` here; in `Worker` a field `udp: Udp`, made in `Worker::new`.
//! 2. Register descriptors at `turn.epoll` (`watch_edges`, `watch_readable`) with a `Token::new(Kind::Datagrams,
//!    index, generation)`. Index and generation are the source's own; a `worker::Slab` makes both. In `Worker::run`
//!    events of that kind go to `self.udp.event(token, event, &mut self.turn)`: replace the empty arm.
//! 3. In `Worker::obey`, pass each command on: `self.udp.command(&command, &mut self.turn)`. `Command::Open` carries
//!    the listener and a bound socket of this worker: each source takes those of its `listener.id.l4`.
//!    `Command::Close` names the listener by its `Arc` (`Arc::ptr_eq`), `SweepAt` announces when drains end.
//! 4. In `Worker::run`, after the events: `self.udp.tick(&mut self.turn)`; `patience` becomes the smaller of both
//!    (`None` is "for ever"). For deadlines use `worker::Wheel` (links live in the entries), for the time `turn.now`.
//! 5. A member for a newcomer: `listener.tuned().pool(|| number)` gives the `Arc<RunningPool>`; `pool.live()` one
//!    generation of it; `pool.choose(&live, client_ip, &mut cursor, &[], turn.now)` the `Arc<RunningMember>`. Keep a
//!    `seaway_snapshot::Cursor` per pool and worker. `member.engage()`/`disengage()` count what is open on it;
//!    `pool.failed(&member, now)` and `member.served()` feed passive ejection; `listener.enter`/`leave`/`refuse`
//!    the limits. Connected or not, a flow ends when `member.leaving_since()` lies `timeouts.drain` back, and when
//!    `listener.closed_at()` does.
//! 6. System calls that are missing go to `sys/datagram.rs` (`unsafe` is allowed below `sys` only). `open.rs` binds
//!    the sockets of both transports.
//!
//! The prober thread is no source: it is told of every pool that is put, and tells what it found by
//! `pool.set_health(&member, Health::Down, now)`, which answers whether that is news. A successor's sockets go into
//! `shared.adopted` before `open` is called; the sockets to hand over are `listener.sockets()`.

mod health;
mod open;
mod proxy;
mod running;
mod shared;
mod statistics;
mod sys;
mod takeover;
mod tcp;
mod udp;
mod worker;

pub use health::{HealthChange, HealthChanges};
pub use open::OpenError;
pub use proxy::{Drained, Proxy, Running, Settings, StartError};
pub use running::{Health, Refusal, Story};
pub use seaway_snapshot::Standing;
pub use statistics::{ListenerStatistics, MemberStatistics, PoolStatistics, Statistics, Traffic};
pub use sys::{give_memory_back, raise_descriptor_limit};
pub use takeover::{HandOver, TakeOverError, TakenOver, Turn, take};
