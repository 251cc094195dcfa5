//! One contender under one attack, once.

use std::net::SocketAddrV4;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::catalogue::{Attack, SharedMember};
use super::honest::{
    self, ClientSet, Datagrams, HonestClient, RequestOutcome, RequestStats, Requests, ask_until, served,
};
use super::hostile::Attackers;
use super::{HOSTILE, ports};
use crate::contender::{Contender, Programs, Role};
use crate::cores::{self, CounterSnapshot};
use crate::pace::now;
use crate::sys::Epoll;

/// How long each phase lasts.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    quiet: Duration,
    attack: Duration,
    leaving: Duration,
    is_trial: bool,
}

impl Times {
    pub fn of(is_trial: bool) -> Self {
        let of = Duration::from_millis;
        match is_trial {
            true => Self { quiet: of(100), attack: of(200), leaving: of(50), is_trial },
            false => Self { quiet: of(500), attack: of(1_000), leaving: of(200), is_trial },
        }
    }
}

/// Of one set of honest clients.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Pair {
    pub quiet: RequestStats,
    pub attacked: RequestStats,
    /// From the arrival of the attackers to the end.
    pub lost: u64,
    pub first_error: Option<&'static str>,
}

#[derive(Clone, Debug, serde::Serialize)]
pub struct Outcome {
    /// `None`: the attack leaves no honest clients there.
    pub shared: Option<Pair>,
    pub other: Pair,
    /// Of clients that ask the member itself, in floods: hostile clients share a core with clients and members, and what these wait
    /// for each other there is no work of the contender.
    pub direct: Option<Pair>,
    /// Bytes.
    pub before: u64,
    pub peak: u64,
    pub after: u64,
    /// Hostile connections that the contender ended.
    pub ended: u64,
    /// Percent of a core that clients and members ran during the attack: much more than the half, and they are what is
    /// measured.
    pub generator: f64,
    /// The same of the contender, during the attack and before it.
    pub contender: f64,
    pub contender_quiet: f64,
    /// Of the whole round, percent of the time: contender and honest clients waited for their cores, and others were on
    /// these cores.
    pub queued: f64,
    pub foreign: f64,
}

impl Outcome {
    /// Somebody else had the cores: this is no measurement.
    pub fn is_disturbed(&self) -> bool {
        self.queued > STARVED && self.foreign > STARVED
    }

    pub fn bytes_per_connection(&self) -> f64 {
        self.peak.saturating_sub(self.before) as f64 / HOSTILE as f64
    }
}

const STARVED: f64 = 30.0;
/// Of so many requests to the contender there is one to the member itself.
const DIRECT: f64 = 4.0;

pub fn measure(
    programs: &Programs,
    contender: Contender,
    attack: &Attack,
    times: Times,
    rate: f64,
) -> Result<Outcome> {
    let running = contender.start(programs, Role::Attacked)?;
    let epoll = Epoll::new().context("epoll")?;
    let to = |port| ports::listener(port);
    let mut sets = vec![ClientSet::new(Box::new(Requests::new(to(ports::OTHER), false)), rate)];
    if let Some(asks) = shared(&epoll, attack.shared, to(attack.shared.port()))? {
        sets.push(ClientSet::new(asks, rate));
    }
    let direct = attack.is_flood().then_some(sets.len());
    if direct.is_some() {
        let member = SocketAddrV4::new(ports::OTHER_MEMBER, ports::HTTP_MEMBER);
        sets.push(ClientSet::new(Box::new(Requests::new(member, false)), rate / DIRECT));
    }
    let nanos = |time: Duration| time.as_nanos() as u64;
    // Connections are opened, and everything has its place.
    ask_until(&epoll, &mut sets, now() + nanos(times.quiet) / 2, || {})?;
    // A worker may have come after its listeners.
    let processes = running.processes();

    let (all, all_own) = (CounterSnapshot::take(&processes)?, own_time());
    let first = (now(), now() + nanos(times.quiet));
    ask_until(&epoll, &mut sets, first.1, || {})?;
    let calm = CounterSnapshot::take(&processes)?.since(&all);
    let before = resident(&processes);
    ensure!(before > 0, "the contender ended:\n{}", running.last_words());
    let mut peak = before;

    let come = now();
    let ramp = attack.script.ramp(times.is_trial);
    let folder = running.folder.as_ref().map(|it| it.path());
    let at = to(attack.port(contender));
    let foes = Attackers::launch(&attack.script, at, attack.connections(), ramp, folder);
    ask_until(&epoll, &mut sets, come + nanos(ramp) * 4 / 3, || peak = peak.max(resident(&processes)))?;
    let look = CounterSnapshot::take(&processes)?;
    let own = own_time();
    let hot = (now(), now() + nanos(times.attack));
    ask_until(&epoll, &mut sets, hot.1, || peak = peak.max(resident(&processes)))?;
    let spent = CounterSnapshot::take(&processes)?.since(&look);
    let own = own_time() - own;
    let ended = foes.ended();
    drop(foes);

    ask_until(&epoll, &mut sets, now() + nanos(times.leaving.max(ramp / 3)), || {})?;
    let last = (now(), now() + nanos(times.quiet));
    ask_until(&epoll, &mut sets, last.1, || {})?;
    let (all, all_own) = (CounterSnapshot::take(&processes)?.since(&all), own_time() - all_own);
    honest::wait_for_answers(&epoll, &mut sets)?;
    let after = resident(&processes);
    ensure!(after > 0, "the contender ended under the attack:\n{}", running.last_words());

    let pair = |set: &mut ClientSet| pair(set.asks.asked(), &[first, last], hot, come);
    let direct = direct.and_then(|at| sets.get_mut(at).map(pair));
    let other = pair(&mut sets[0]);
    Ok(Outcome {
        shared: sets.get_mut(1).filter(|_| direct.is_none()).map(pair),
        other,
        direct,
        before,
        peak,
        after,
        ended,
        generator: own / spent.wall * 100.0,
        contender: spent.task / spent.wall * 100.0,
        contender_quiet: calm.task / calm.wall * 100.0,
        queued: (all.queued + all.generator_queued) / all.wall * 100.0,
        foreign: (all.both_busy - all.task - all_own).max(0.0) / all.wall * 100.0,
    })
}

fn shared(epoll: &Epoll, shared: SharedMember, to: SocketAddrV4) -> Result<Option<Box<dyn HonestClient>>> {
    Ok(match shared {
        SharedMember::Failing => None,
        SharedMember::Udp => Some(Box::new(Datagrams::open(epoll, honest::SET, to)?)),
        SharedMember::Flood(_) => None,
        _ => Some(Box::new(Requests::new(to, shared == SharedMember::Tls))),
    })
}

fn pair(asked: &[RequestOutcome], quiet: &[(u64, u64)], attack: (u64, u64), come: u64) -> Pair {
    let failed = |it: &&RequestOutcome| it.due >= come && it.answered.is_none();
    Pair {
        quiet: served(asked, quiet),
        attacked: served(asked, &[attack]),
        lost: asked.iter().filter(failed).count() as u64,
        first_error: asked.iter().find(failed).map(|it| it.why),
    }
}

/// Seconds that clients and members ran so far.
fn own_time() -> f64 {
    cores::cpu_time(std::process::id()).unwrap_or_default()
}

/// Bytes of all its processes; 0 when it has ended.
fn resident(processes: &[u32]) -> u64 {
    processes.iter().filter_map(|it| cores::resident(*it)).sum()
}
