//! One writer for each cluster in a cloud. A copy of the cluster, restored from a backup, has its name and its credentials, and
//! knows other Services and other Nodes: it would take away and write over what the original serves.
//!
//! ```text
//!     who leads: heartbeat "term.count" ─► recorded in the cluster, then a tag at the port of one load balancer, each minute
//!     who begins: the tag is one that this cluster recorded   ─► it writes, at once
//!                 it is not: another cluster has written it   ─► nothing is written while it changes, and for five minutes after
//! ```
//! Until it is known that nobody else does, nothing is removed that no change here asked for (`Driver::doubt`): after a leader
//! that did not hand over, for the state of its cluster may be a minute old and known to another, until a third heartbeat
//! follows the second; and where no port can be tagged, until an operator approves it.
//!
//! No clocks are compared. A leader that is killed, or did not run for a week, finds the last heartbeat that was recorded. A
//! cluster whose etcd was set back finds one that it does not know, and that does not change: it waits once. Of two that began
//! from the same heartbeat the process that sent it stays: it was there before.

use std::{
    collections::BTreeSet,
    fmt,
    str::FromStr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use seaway_engine::{Context, Doubt, Failure, HeartbeatRecord, chain};
use seaway_model::{Kind, Name, ObjectRef, Problem, Reason};
use seaway_openstack::{
    neutron::Port,
    octavia::{LoadBalancer, Provisioning},
    resource::Query,
};
use tracing::{debug, error, info, warn};

use super::{Cluster, LOOK, Octavia, join::Joined, service_backoffs::Requester};

/// From one heartbeat to the next.
const PERIOD: Duration = Duration::from_secs(60);
/// Another whose heartbeat did not change so often is no more.
const SILENT: u32 = 5;
/// Another that began from the same heartbeat has sent one of its own by then, and that was looked at.
const SURE: u64 = 3;
/// A look that failed is repeated so soon, and so often before it is written without.
const AGAIN: Duration = Duration::from_secs(5);
const TRIES: u32 = 3;
/// The first look is done soon.
const SOON: Duration = Duration::from_millis(200);
/// What a process that was stopped sends later is still known.
const RECORDED: usize = 16;
/// Tags of Neutron: older ones allow 60 characters, and none a slash in a path.
const FINDER: &str = "seaway.writer.";
const BEAT: &str = "seaway.heartbeat.";

/// Whether anything may be written in the cloud, as far as copies of the cluster go.
#[derive(Default)]
pub struct SoleWriter(Mutex<State>);

#[derive(Default)]
struct State {
    /// Of this lead of this process.
    term: Name,
    count: u64,
    /// What was there when it began.
    after: Option<Mark>,
    stand: WriterState,
    /// Another began from a heartbeat of ours.
    is_copied: bool,
    failed: u32,
    /// Who led before said that it ends.
    handed_over: bool,
    /// A heartbeat of this lead was sent, or there was nothing to send it to.
    sent: bool,
    /// Nothing was there when it was looked at.
    is_empty: bool,
    /// Another would not be seen: ports are not listed, or cannot be tagged.
    is_blind: bool,
}

#[derive(Default)]
enum WriterState {
    #[default]
    Unknown,
    Writes,
    /// Another's heartbeat, and how often it was the same.
    Yields {
        seen: Option<String>,
        same: u32,
    },
}

/// Which heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mark {
    term: Name,
    count: u64,
}

/// What a tag says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Heartbeat {
    mark: Mark,
    /// Where its term began.
    after: Option<Mark>,
}

impl SoleWriter {
    /// A lead begins; `term`: what no other lead of any process has; `handed_over`: who led before said that it ends.
    pub fn begin(&self, term: &str, handed_over: bool) {
        *self.state() = State { term: term.into(), handed_over, ..State::default() };
    }

    /// Why what no change here asked for is not removed now.
    pub fn doubt(&self) -> Option<Doubt> {
        let state = self.state();
        if state.is_blind {
            return Some(Doubt::Never(
                "Seaway would not notice a copy of this cluster that was restored from a backup: Neutron does not let it list or tag ports",
            ));
        }
        let is_sure = state.sent && (state.handed_over || state.is_empty || state.count >= SURE);
        (!is_sure).then_some(Doubt::NotYet(
            "the previous leader did not hand over; Seaway checks for three minutes whether a copy of this cluster runs",
        ))
    }

    /// Until the next begins, nothing is known.
    pub fn end(&self) {
        self.state().stand = WriterState::Unknown;
    }

    pub fn may_write(&self) -> bool {
        matches!(self.state().stand, WriterState::Writes)
    }

    /// What an operator should know.
    pub fn problem(&self) -> Option<Problem> {
        let state = self.state();
        let (message, fix) = match &state.stand {
            WriterState::Yields { .. } => (
                "nothing is written in the cloud: another controller writes there in the name of this cluster (the same uid of \
                 kube-system); one of the two clusters is a copy, restored from a backup",
                "Stop the controller of the cluster that is not to write, or give it other credentials. \
                 This controller continues by itself five minutes after the other stops.",
            ),
            _ if state.is_copied => (
                "a copy of this cluster was started with credentials for the same project; it stops writing within two minutes",
                "Stop the controller of the copy, or give it other credentials.",
            ),
            _ => return None,
        };
        Some(Problem::new(about(), Reason::OtherController, message).fix(fix))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waits(&self) -> Option<Failure> {
        let (why, after) = match self.state().stand {
            WriterState::Writes => return None,
            WriterState::Unknown => {
                ("Seaway is checking whether another controller writes in the name of this cluster", SOON)
            }
            WriterState::Yields { .. } => (
                "another controller writes in the name of this cluster: a copy that was restored from a backup, or the original",
                LOOK,
            ),
        };
        Some(Failure::wait(why.to_owned(), after))
    }

    /// Our next heartbeat, unless another's is waited for.
    fn next(&self, recorded: &[String], there: Option<&str>) -> Option<Heartbeat> {
        let mut state = self.state();
        let beat = there.and_then(|it| it.parse::<Heartbeat>().ok());
        let is_own = match (there, &beat) {
            // Where one of another was, it may be at another port by now.
            (None, _) => !matches!(state.stand, WriterState::Yields { .. }),
            (Some(_), None) => false,
            (Some(_), Some(it)) => it.mark.term == state.term || recorded.contains(&it.mark.to_string()),
        };
        let is_younger = beat.as_ref().is_some_and(|it| state.is_before(it));
        if !is_own && !is_younger {
            let same = match &state.stand {
                WriterState::Yields { seen, same } if there.is_none() || seen.as_deref() == there => {
                    same.saturating_add(1)
                }
                _ => 0,
            };
            if same < SILENT {
                state.stand = WriterState::Yields { seen: there.map(str::to_owned), same };
                return None;
            }
        }
        state.is_copied = is_younger && !is_own;
        if state.count == 0 {
            state.after = beat.map(|it| it.mark);
        }
        state.count = state.count.saturating_add(1);
        let mark = Mark { term: state.term.clone(), count: state.count };
        Some(Heartbeat { mark, after: state.after.clone() })
    }

    /// `true`: another wrote before.
    fn writes(&self) -> bool {
        let mut state = self.state();
        state.failed = 0;
        matches!(std::mem::replace(&mut state.stand, WriterState::Writes), WriterState::Yields { .. })
    }

    /// Whether another would see our heartbeat, and we its.
    fn is_sent(&self, sent: bool) {
        let mut state = self.state();
        (state.sent, state.is_blind) = (state.sent || sent, !sent);
    }

    fn finds_nothing(&self) {
        let mut state = self.state();
        (state.sent, state.is_empty, state.is_blind) = (true, true, false);
    }

    /// Whoever cannot look goes on as without this, after some tries.
    fn fails(&self) -> Duration {
        let mut state = self.state();
        state.failed = state.failed.saturating_add(1);
        if state.failed >= TRIES && matches!(state.stand, WriterState::Unknown) {
            (state.stand, state.is_blind) = (WriterState::Writes, true);
        }
        match state.stand {
            WriterState::Unknown => AGAIN,
            _ => PERIOD,
        }
    }
}

impl State {
    /// It began from a heartbeat of this process, or from where this one began, and one of two has to stay.
    fn is_before(&self, other: &Heartbeat) -> bool {
        let Some(after) = &other.after else { return false };
        let is_branch = after.term == self.term;
        is_branch || self.count > 0 && self.after.as_ref() == Some(after) && self.term < other.mark.term
    }
}

impl Octavia {
    /// Others of the same cluster are noticed: heartbeats are sent for it ([`beating`](Octavia::beating)).
    #[must_use]
    pub fn alone(self, sole: Arc<SoleWriter>) -> Octavia {
        Octavia { sole: Some(sole), ..self }
    }

    /// Why nothing is read or written for a Unit now.
    pub(super) fn held_back(&self, context: &Context) -> Result<(), Failure> {
        context.require_lead()?;
        self.may_work()
    }

    /// Why this process does nothing in the cloud, though it may lead.
    pub(super) fn may_work(&self) -> Result<(), Failure> {
        if !(self.may)() {
            return Err(Failure::wait("another leads".to_owned(), LOOK));
        }
        self.sole.as_ref().and_then(|it| it.waits()).map_or(Ok(()), Err)
    }

    /// Looks for another writer, and says that we are one; when to do so next.
    pub async fn beat(&self, record: &dyn HeartbeatRecord) -> Duration {
        let Some(sole) = &self.sole else { return PERIOD };
        let was_alone = sole.problem().is_none();
        let pause = match self.beats(sole, record).await {
            Ok(()) => PERIOD,
            Err(error) => {
                debug!(
                    error,
                    "cannot find out whether another controller writes in the name of this cluster"
                );
                sole.fails()
            }
        };
        match sole.problem() {
            Some(problem) if was_alone => error!("{}", problem.message),
            None if !was_alone => {
                info!("the heartbeats of the other controller of this cluster have stopped")
            }
            _ => {}
        }
        pause
    }

    async fn beats(&self, sole: &SoleWriter, record: &dyn HeartbeatRecord) -> Result<(), String> {
        let mut recorded = record.heartbeats().await?;
        let joined = self.joined(&Requester::audit()).await.map_err(|it| it.to_string())?;
        let (finder, ports) = (finder(&joined.cluster), joined.cloud.all::<Port>());
        let there = ports.list::<Port>(Query::all().tagged([&*finder])).await;
        let mut there = there.map_err(|it| chain(&it))?;
        there.sort_by(|one, other| one.id.as_str().cmp(other.id.as_str()));
        let carrier = match there.first() {
            Some(port) => Some(port.clone()),
            None => self.first_port(joined).await?,
        };
        // Where nothing is ours, nobody disturbs anybody.
        let Some(carrier) = carrier else {
            sole.finds_nothing();
            return Ok(_ = sole.writes());
        };
        let beat = carrier.tags.iter().find(|it| it.starts_with(BEAT));
        let Some(next) = sole.next(&recorded, beat.map(String::as_str)) else { return Ok(()) };
        // What is there now may stay: it is known for as long as that.
        let seen = beat.and_then(|it| it.parse::<Heartbeat>().ok()).map(|it| it.mark.to_string());
        recorded.retain(|it| Some(it) != seen.as_ref());
        recorded.extend(seen);
        recorded.push(next.mark.to_string());
        recorded.drain(..recorded.len().saturating_sub(RECORDED));
        record.record(recorded).await?;
        if sole.writes() {
            self.forget_all();
        }
        for port in there.iter().filter(|it| it.id != carrier.id) {
            self.tag(joined, port, BTreeSet::new()).await;
        }
        sole.is_sent(self.tag(joined, &carrier, [finder, next.to_string()].into()).await);
        Ok(())
    }

    /// `false`: it cannot be tagged.
    async fn tag(&self, joined: &Joined, port: &Port, ours: BTreeSet<String>) -> bool {
        let is_others = |it: &&String| !it.starts_with(BEAT) && !it.starts_with(FINDER);
        let tags = port.tags.iter().filter(is_others).cloned().chain(ours).collect();
        let tagged = joined.cloud.all::<Port>().replace_tags(&port.id, &tags).await;
        if let Err(error) = &tagged {
            warn!(%error, port = port.id.as_str(), "the port cannot be tagged: a copy of this cluster would not notice that this controller runs");
        }
        tagged.is_ok()
    }

    /// At the load balancer that each of two would choose.
    async fn first_port(&self, joined: &Joined) -> Result<Option<Port>, String> {
        let all = joined.cloud.all::<LoadBalancer>();
        let all = all.list::<LoadBalancer>(Query::all().tagged([&*joined.cluster.tag()])).await;
        let mut all = all.map_err(|it| chain(&it))?;
        all.retain(|it| it.provisioning_status != Provisioning::PendingDelete);
        all.sort_by(|one, other| one.id.as_str().cmp(other.id.as_str()));
        let Some(port) = all.into_iter().find_map(|it| it.vip_port_id) else { return Ok(None) };
        joined.cloud.all::<Port>().read::<Port>(&port).await.map(Some).map_err(|it| chain(&it))
    }
}

/// What the Problem is of.
pub fn about() -> ObjectRef {
    ObjectRef::new(Kind::Config, "", "check for a second controller of this cluster in the cloud")
}

fn finder(cluster: &Cluster) -> String {
    format!("{FINDER}{}", cluster.uid)
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.term, self.count)
    }
}

impl fmt::Display for Heartbeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{BEAT}{}", self.mark)?;
        self.after.iter().try_for_each(|it| write!(f, ".{it}"))
    }
}

impl FromStr for Heartbeat {
    type Err = ();

    fn from_str(text: &str) -> Result<Heartbeat, ()> {
        let words: Vec<&str> = text.strip_prefix(BEAT).ok_or(())?.split('.').collect();
        let mark = |term: &str, count: &str| -> Result<Mark, ()> {
            Ok(Mark { term: term.into(), count: count.parse().map_err(|_| ())? })
        };
        match *words {
            [term, count] => Ok(Heartbeat { mark: mark(term, count)?, after: None }),
            [term, count, before, at] => {
                Ok(Heartbeat { mark: mark(term, count)?, after: Some(mark(before, at)?) })
            }
            _ => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exactly one of two, whichever of them looks first.
    #[test]
    fn of_two_that_began_from_one_heartbeat_the_one_with_the_lesser_term_stays() {
        let beat = |text: &str| format!("{BEAT}{text}").parse::<Heartbeat>().expect("a heartbeat");
        let after = |text: &str| beat(text).mark;
        for (own, count, began, other, expected) in [
            // It began from where nothing was.
            ("b", 3, Some("x.4"), "c.1", false),
            // It began from one of ours.
            ("b", 3, Some("x.4"), "a.1.b.2", true),
            ("b", 0, None, "a.1.b.2", true),
            // Both began from the same.
            ("b", 3, Some("x.4"), "c.1.x.4", true),
            ("b", 3, Some("x.4"), "a.1.x.4", false),
            ("b", 0, Some("x.4"), "c.1.x.4", false),
            // From others.
            ("b", 3, Some("x.4"), "c.1.x.3", false),
            ("b", 3, None, "c.1.x.4", false),
        ] {
            let state = State { term: own.into(), count, after: began.map(after), ..State::default() };
            assert_eq!(state.is_before(&beat(other)), expected, "{own} {count} {began:?} {other}");
        }
    }
}
