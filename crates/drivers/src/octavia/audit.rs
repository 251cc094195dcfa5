//! The periodic look at everything: what others changed, deleted or broke is noticed here, and put right by whoever works
//! on its Unit next.
//!
//! ```text
//!     lists (survey.rs) ─► beside what is known ─► same: nothing more
//!                                              └─► moved, another size, long not read: one status tree
//!                                                     └─► what is another (drift.rs) ─► its Unit is looked at again
//! ```
//! What we write ourselves moves `updated_at` as well; it is known from the poll that saw it done.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use seaway_engine::Failure;
use seaway_model::{LbKey, ListenerId, Name, Unit, unit::Place};
use seaway_openstack::{
    Cloud, Error,
    octavia::{Operating, Pool, Provisioning},
    resource::Id,
};
use tokio::task::JoinSet;

use super::{
    Joined, LastObservation, OCTAVIA, Octavia, affinity, drift,
    look::parted,
    moment::{half, later},
    names::Cluster,
    read::{self, Read},
    seats::unasked,
    service_backoffs::Requester,
    shared::marks,
    steps::{Observed, ObservedLoadBalancer, ObservedMember, PoolBranch},
    subnet_reachability::{SubnetReachability, Way},
    survey::{ListedLoadBalancer, Survey},
};

/// What came of an audit.
#[derive(Debug, Default)]
pub struct Audited {
    /// Of this cluster, and nobody here knows of them: perhaps nobody wants them.
    pub found: Vec<Unit>,
    /// All of this cluster, known or not.
    pub there: Vec<Unit>,
    /// To be looked at again: they are not as they were left.
    pub again: Vec<Unit>,
}

/// Everything is read in full this often at least, whether or not it seems to have changed.
const FULL: Duration = Duration::from_secs(24 * 3600);
/// Where members fail, others may follow without a trace in the lists: so many of those trees are read at each audit.
const AILING: usize = 8;
/// OVN has told all that came of a change after this.
const QUIET: Duration = Duration::from_secs(30);
/// How many are read at once.
const WIDTH: usize = 8;

/// A Unit, and what the lists say of it.
struct AuditedUnit {
    unit: Unit,
    key: LbKey,
    known: LastObservation,
    now: Observed,
    follow_up: FollowUpRead,
}

/// What the lists leave open.
#[derive(Clone, Copy, Debug, PartialEq)]
enum FollowUpRead {
    Nothing,
    Tree,
    /// They contradict each other.
    Everything,
}

impl Octavia {
    /// Reads all lists, and what seems to be another than it was left. The driver knows from then on.
    pub async fn audit(&self, cloud: &Name) -> Result<Audited, Failure> {
        self.may_work()?;
        let asker = Requester::audit();
        let joined = self.joined(&asker).await?;
        self.ask(&asker)?;
        let survey = Survey::read(&joined.cloud, &joined.cluster).await;
        let survey = Arc::new(survey.map_err(|error| self.failed(&asker, &error))?);
        let looks = self.looks(joined, &survey).into_iter();
        let (done, open): (Vec<_>, Vec<_>) = looks.partition(|it| it.follow_up == FollowUpRead::Nothing);
        let (open, wrong) = asked(joined, open).await;
        let now = joined.cloud.clock().now();
        let looks: Vec<AuditedUnit> = done.into_iter().chain(open).collect();
        let left = |it: &&AuditedUnit| self.note_replaced(&joined.cluster, &it.unit, &it.key, &survey);
        let mut again: BTreeSet<Unit> = looks.iter().filter(left).map(|it| it.unit.clone()).collect();
        again.extend(looks.into_iter().filter_map(|it| self.note(&survey, it, now)));
        match self.unreached(joined).await {
            Ok(units) => again.extend(units),
            // That may be told later.
            Err(error) => _ = self.failed(&asker, &error),
        }
        let again = Vec::from_iter(again);
        let there = ours(joined, &survey, cloud);
        let audited = Audited { found: self.strangers(&there), there, again };
        self.surveyed.keep(survey);
        self.count_stuck(joined);
        match wrong {
            // The others were worth their look.
            Some(error) if audited.again.is_empty() && audited.found.is_empty() => {
                Err(self.failed(&asker, &error))
            }
            Some(_) => Ok(audited),
            None => {
                self.backoffs.is_well(&asker);
                Ok(audited)
            }
        }
    }

    /// Those of which it is news that members are reached, or are not, from where they are.
    async fn unreached(&self, joined: &Joined) -> Result<Vec<Unit>, Error> {
        let ways_of = |(unit, known): (&Unit, &LastObservation)| {
            let balancer = known.observed.balancer.as_ref()?;
            Some((unit.clone(), known.observed.placed.ways(balancer)))
        };
        let all: Vec<(Unit, Vec<Way>)> = self.known().iter().filter_map(ways_of).collect();
        let wanted: Vec<Way> = all.iter().flat_map(|it| &it.1).cloned().collect();
        let ways = SubnetReachability::read(&joined.cloud, &wanted).await?;
        let mut known = self.known();
        let mut again = Vec::new();
        for (unit, its) in all {
            let Some(known) = known.get_mut(&unit) else { continue };
            let placed = &mut known.observed.placed;
            let lost = its.iter().find_map(|it| ways.lost(it, placed.picked));
            if placed.lost != lost {
                placed.lost = lost;
                again.push(unit);
            }
        }
        Ok(again)
    }

    fn strangers(&self, there: &[Unit]) -> Vec<Unit> {
        let known = self.known();
        there.iter().filter(|it| !known.contains_key(it)).cloned().collect()
    }

    fn looks(&self, joined: &Joined, survey: &Survey) -> Vec<AuditedUnit> {
        let known: Vec<(Unit, LastObservation)> =
            self.known().iter().map(|(unit, known)| (unit.clone(), known.clone())).collect();
        let mut ailing = AILING;
        let mut looks = Vec::new();
        for (unit, known) in known {
            let Unit::LoadBalancer(_, key) = &unit else { continue };
            // What was written since is not in the lists, and what is being written is asked for by itself.
            if !known.is_at_rest(survey.at) {
                continue;
            }
            let key = key.clone();
            let seen = match &known.observed.balancer {
                Some(it) => survey.balancer(&it.it.id),
                None => survey.of(&joined.cluster, &key, &[]),
            };
            let (now, follow_up) = match seen {
                ListedLoadBalancer::Whole(mut now, sizes) => {
                    parted(&joined.cluster, &key, &mut now, known.observed.shared.guest);
                    // Somebody changes it at this moment.
                    if now.is_pending() {
                        continue;
                    }
                    let now = with_seats(*now, &known.observed);
                    let follow_up = open(&unit, &known, &now, &sizes, survey.at, &mut ailing);
                    (now, follow_up)
                }
                ListedLoadBalancer::Inconsistent => (known.observed.clone(), FollowUpRead::Everything),
                ListedLoadBalancer::Absent if known.observed.balancer.is_none() => continue,
                ListedLoadBalancer::Absent => (known.observed.clone().gone(), FollowUpRead::Nothing),
            };
            let mut now = with_stray(now, &known.observed, survey);
            if let (Some(it), false) = (&now.balancer, now.shared.guest) {
                now.doubles = survey.doubles(&joined.cluster, &key, &it.it.id);
            }
            looks.push(AuditedUnit { unit, key, known, now, follow_up });
        }
        looks
    }

    /// The Unit, if somebody has to look at it.
    fn note(&self, survey: &Survey, look: AuditedUnit, now: Instant) -> Option<Unit> {
        let AuditedUnit { unit, known, now: mut seen, follow_up, .. } = look;
        let mut all = self.known();
        let here = all.get_mut(&unit)?;
        if !here.is_at_rest(survey.at) || here.until != known.until {
            return None;
        }
        // Members are OFFLINE for a moment whenever their monitors are made.
        seen.added = self.past(&unit, |past| past.added.clone());
        seen.unasked = survey.at.saturating_duration_since(here.until) > QUIET && is_unasked(&seen);
        let before = std::mem::replace(&mut here.observed, seen.clone());
        if follow_up != FollowUpRead::Nothing {
            here.read = now;
        }
        drop(all);
        let found = drift::found(&before, &seen);
        let is_same = found.is_empty()
            && standing(&before) == standing(&seen)
            && before.doubles == seen.doubles
            && before.unasked == seen.unasked
            && before.shared.taken == seen.shared.taken;
        self.past(&unit, |past| past.found = found);
        (!is_same).then_some(unit)
    }
}

fn ours(joined: &Joined, survey: &Survey, cloud: &Name) -> Vec<Unit> {
    let place = || Place::Cloud { name: cloud.clone(), driver: OCTAVIA.into() };
    survey.keys(&joined.cluster).into_iter().map(|key| Unit::LoadBalancer(place(), key)).collect()
}

/// What its owner is told of: how it is, and how its members are.
fn standing(it: &Observed) -> Option<(&Provisioning, Vec<&BTreeMap<SocketAddr, ObservedMember>>)> {
    let balancer = it.balancer.as_ref()?;
    let pools = balancer.branches.values().filter_map(|it| it.pool.as_ref());
    Some((&balancer.it.provisioning_status, pools.map(|it| &it.members).collect()))
}

fn open(
    unit: &Unit,
    known: &LastObservation,
    now: &Observed,
    sizes: &BTreeMap<Id<Pool>, usize>,
    at: Instant,
    ailing: &mut usize,
) -> FollowUpRead {
    let (Some(was), Some(is)) = (&known.observed.balancer, &now.balancer) else { return FollowUpRead::Tree };
    let pools = || is.branches.values().filter_map(|it| it.pool.as_ref());
    let moved = moved(&known.observed, now);
    let size = pools().any(|it| sizes.get(&it.pool.id).is_some_and(|size| *size != it.members.len()));
    let due = at.saturating_duration_since(known.read) >= own_share(unit);
    // OVN loses members when it is written to, and calls the load balancer and its pools ONLINE all the same.
    let rested = later(known.until, QUIET);
    let is_monitored = affinity::is_of_ovn(is) && pools().any(|it| it.monitor.is_some());
    let is_unproven = is_monitored && known.read <= rested && at > rested;
    if moved || size || due || is_unproven {
        return FollowUpRead::Tree;
    }
    let ails = !matches!(is.it.operating_status, Operating::Online | Operating::NoMonitor)
        && !drift::down(was).is_empty();
    if ails && *ailing > 0 {
        *ailing = ailing.saturating_sub(1);
        return FollowUpRead::Tree;
    }
    FollowUpRead::Nothing
}

fn is_unasked(it: &Observed) -> bool {
    let Some(balancer) = it.balancer.as_ref().filter(|it| affinity::is_of_ovn(it)) else { return false };
    let mut pools = balancer.branches.values().filter_map(|it| it.pool.as_ref());
    pools.any(|pool| unasked(pool, &it.added).next().is_some())
}

/// Half a day to a whole one, always the same for the same Unit: so they are spread.
fn own_share(unit: &Unit) -> Duration {
    let mut hasher = DefaultHasher::new();
    unit.hash(&mut hasher);
    let thousandths = u32::try_from(hasher.finish() % 1_000).unwrap_or(0);
    let share = half(FULL).saturating_mul(thousandths).checked_div(1_000).unwrap_or_default();
    half(FULL).saturating_add(share)
}

/// Members as they were known, until a tree tells.
fn with_seats(mut now: Observed, known: &Observed) -> Observed {
    let was = known.balancer.iter().flat_map(|it| it.branches.values()).filter_map(|it| it.pool.as_ref());
    let was: BTreeMap<&Id<Pool>, &PoolBranch> = was.map(|it| (&it.pool.id, it)).collect();
    for pool in pools(&mut now) {
        if let Some(was) = was.get(&pool.pool.id) {
            pool.members.clone_from(&was.members);
        }
    }
    now.unit.clone_from(&known.unit);
    now.doubles.clone_from(&known.doubles);
    now.kept.clone_from(&known.kept);
    now.placed = known.placed.clone();
    now
}

/// A floating IP that led there and leads nowhere is led there again.
fn with_stray(mut now: Observed, known: &Observed, survey: &Survey) -> Observed {
    let was = known.floating.as_ref().or(known.stray.as_ref());
    now.stray = None;
    if now.floating.is_none() || now.balancer.is_none() {
        let is = was.and_then(|it| survey.floating(&it.id));
        now.floating = None;
        now.stray = is.filter(|it| it.port_id.is_none()).cloned();
    }
    now
}

fn pools(observed: &mut Observed) -> impl Iterator<Item = &mut PoolBranch> {
    let branches = observed.balancer.iter_mut().flat_map(|it| it.branches.values_mut());
    branches.filter_map(|it| it.pool.as_mut())
}

/// Asks for what the lists left open; with the last error.
async fn asked(joined: &Joined, open: Vec<AuditedUnit>) -> (Vec<AuditedUnit>, Option<Error>) {
    let mut waiting = open.into_iter();
    let mut running = JoinSet::new();
    let ask = |look: AuditedUnit| {
        let (cloud, cluster) = (joined.cloud.clone(), joined.cluster.clone());
        async move { answered(&cloud, &cluster, look).await }
    };
    for look in waiting.by_ref().take(WIDTH) {
        running.spawn(ask(look));
    }
    let (mut done, mut wrong) = (Vec::new(), None);
    // A task of ours neither panics nor is aborted while it is waited for.
    while let Some(ended) = running.join_next().await {
        match ended {
            Ok(Ok(look)) => done.push(look),
            Ok(Err(error)) => wrong = Some(error),
            Err(_) => {}
        }
        if let Some(look) = waiting.next() {
            running.spawn(ask(look));
        }
    }
    (done, wrong)
}

async fn answered(cloud: &Cloud, cluster: &Cluster, mut look: AuditedUnit) -> Result<AuditedUnit, Error> {
    if look.follow_up == FollowUpRead::Everything {
        if let Some(marks) = marks(cluster, &look.key)
            && let Read::Seen(now) = read::read(cloud, cluster, &look.key, &marks, None).await?
            && now.balancer.is_some()
        {
            look.now = Observed { unit: Some(look.unit.clone()), ..*now };
        }
        return Ok(look);
    }
    read::seat(cloud, &mut look.now).await?;
    let (was, is) = (&look.known.observed, &look.now);
    if moved(was, is) && drift::found(was, is).is_empty() {
        let before: BTreeMap<Id<Pool>, Option<String>> =
            pools(&mut was.clone()).map(|it| (it.pool.id.clone(), it.pool.updated_at.clone())).collect();
        // Members that fail may be why it moved; or somebody changed where they are probed, and so they fail.
        let failing = explains(was, is).then(|| newly_failing(was, is));
        let is_meant = |_: &ListenerId, it: &Pool| {
            let has_moved = before.get(&it.id) != Some(&it.updated_at);
            has_moved && failing.as_ref().is_none_or(|failing| failing.contains(&it.id))
        };
        read::weigh(cloud, &mut look.now, is_meant).await?;
    }
    Ok(look)
}

fn moved(was: &Observed, is: &Observed) -> bool {
    let at = |it: &Observed| it.balancer.as_ref().and_then(|it| it.it.updated_at.clone());
    at(was) != at(is)
}

/// Pools with members that are in ERROR and were not.
fn newly_failing(was: &Observed, is: &Observed) -> BTreeSet<Id<Pool>> {
    let failing = |it: &Observed| -> BTreeSet<(Id<Pool>, SocketAddr)> {
        let branches = it.balancer.iter().flat_map(|it| it.branches.values());
        let members = branches.filter_map(|it| it.pool.as_ref()).flat_map(|pool| {
            let failed = pool.members.iter().filter(|(_, it)| it.operating == Operating::Error);
            failed.map(|(at, _)| (pool.pool.id.clone(), *at))
        });
        members.collect()
    };
    failing(is).difference(&failing(was)).map(|(id, _)| id.clone()).collect()
}

/// Whether it moved because members or the whole began to serve, or ceased to.
fn explains(was: &Observed, is: &Observed) -> bool {
    let (Some(was), Some(is)) = (&was.balancer, &is.balancer) else { return true };
    let seats = |it: &ObservedLoadBalancer| -> BTreeMap<(ListenerId, SocketAddr), Operating> {
        let pools = it.branches.iter().filter_map(|(id, it)| Some((*id, it.pool.as_ref()?)));
        let seats = pools.flat_map(|(id, it)| it.members.iter().map(move |(at, seat)| (id, *at, seat)));
        seats.map(|(id, at, seat)| ((id, at), seat.operating.clone())).collect()
    };
    let now = seats(is);
    // Of those that we just wrote nobody has told yet how they are.
    let flipped = |(at, was): (&(ListenerId, SocketAddr), &Operating)| {
        *was != Operating::NoMonitor && now.get(at).is_some_and(|it| it != was)
    };
    was.it.operating_status != is.it.operating_status || seats(was).iter().any(flipped)
}
