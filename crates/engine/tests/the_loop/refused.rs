//! A part that a place cannot do is left out, and the rest goes on.

use std::{collections::BTreeSet, net::IpAddr};

use seaway_engine::{Attempt, Context, Gate, Refused, Report, dry_run, work_once};
use seaway_model::{Owner, unit::HostAddresses};

use super::*;

/// A place of addresses that may know no IPv6.
#[derive(Default)]
struct Addresses {
    there: Mutex<BTreeSet<IpAddr>>,
    lacks_ipv6: AtomicBool,
}

#[derive(Debug)]
enum Step {
    Add(IpAddr),
    Remove(IpAddr),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Add(ip) => write!(f, "add {ip}"),
            Step::Remove(ip) => write!(f, "remove {ip}"),
        }
    }
}

impl Effects for Step {
    fn effect(&self) -> Effect {
        match self {
            Step::Add(_) => Effect::EXPOSES,
            Step::Remove(_) => Effect::DELETES,
        }
    }
}

fn addresses(desired: &Desired) -> BTreeSet<IpAddr> {
    match desired {
        Desired::HostAddresses(it) => it.addresses.keys().copied().collect(),
        _ => BTreeSet::new(),
    }
}

impl Driver for Addresses {
    type Observed = BTreeSet<IpAddr>;
    type Step = Step;

    fn serves(&self, unit: &Unit) -> bool {
        matches!(unit, Unit::HostAddresses(_))
    }

    fn refuse(&self, _: &Unit, desired: &Desired, _: &BTreeSet<IpAddr>) -> Option<Refused> {
        let Desired::HostAddresses(wanted) = desired else { return None };
        if !self.lacks_ipv6.load(Ordering::Relaxed) {
            return None;
        }
        let mut rest = wanted.clone();
        let refused = rest.addresses.extract_if(.., |ip, _| ip.is_ipv6());
        let whose: Vec<Owner> = refused.flat_map(|(_, owners)| owners).collect();
        let problem =
            |owner: Owner| (owner.clone(), Problem::new(owner.object(), Reason::Unsupported, "no IPv6"));
        Some(Refused {
            rest: Desired::HostAddresses(rest),
            problems: whose.into_iter().map(problem).collect(),
        })
    }

    fn steps(&self, desired: &Desired, there: &BTreeSet<IpAddr>) -> Vec<Step> {
        let wanted = addresses(desired);
        let goes = there.difference(&wanted).map(|ip| Step::Remove(*ip));
        goes.chain(wanted.difference(there).map(|ip| Step::Add(*ip))).collect()
    }

    async fn observe(&self, _: &Context, _: &Unit, _: &Desired) -> Result<BTreeSet<IpAddr>, Failure> {
        Ok(self.there.lock().expect("no test panics while it holds this").clone())
    }

    async fn apply(
        &self,
        _: &Context,
        _: &Unit,
        step: &Step,
        there: &mut BTreeSet<IpAddr>,
    ) -> Result<(), Failure> {
        match step {
            Step::Add(ip) => there.insert(*ip),
            Step::Remove(ip) => there.remove(ip),
        };
        self.there.lock().expect("no test panics while it holds this").clone_from(there);
        Ok(())
    }

    fn conclude(&self, _: &Unit, _: &Desired, _: &BTreeSet<IpAddr>) -> Report {
        Report::default()
    }
}

const V4: &str = "192.0.2.5";
const V6: &str = "2001:db8::5";

fn wanted(ips: &[&str]) -> Desired {
    let mut present = HostAddresses::default();
    for ip in ips {
        let owners = [Owner::Config((*ip).into())].into_iter().collect();
        present.addresses.insert(ip.parse().expect("an address"), owners);
    }
    Desired::HostAddresses(present)
}

async fn worked(place: &Addresses, desired: &Desired) -> (Vec<String>, Vec<String>) {
    let unit = Unit::HostAddresses(HOST.into());
    let said = |it: Attempt<Addresses>| {
        let problems = it.report.problems.iter().map(|(owner, _)| owner.to_string()).collect::<Vec<_>>();
        (it.steps.iter().map(ToString::to_string).collect::<Vec<_>>(), problems)
    };
    let told = dry_run(place, &unit, desired).await.expect("no failure").map(said);
    let done = work_once(place, &unit, desired, &Gate::default()).await.expect("no failure").map(said);
    assert_eq!(told, done, "a dry run says the same");
    done.expect("it is not left alone")
}

#[tokio::test(start_paused = true)]
async fn one_part_is_refused_and_its_owner_is_told_while_the_other_is_made() {
    let place = Addresses { lacks_ipv6: true.into(), ..Addresses::default() };
    let (steps, told) = worked(&place, &wanted(&[V4, V6])).await;
    assert_eq!(steps, [format!("add {V4}")]);
    assert_eq!(told.len(), 1);
    assert!(told[0].contains(V6), "{told:?}");
    let (steps, told) = worked(&place, &wanted(&[V4, V6])).await;
    assert_eq!((steps.len(), told.len()), (0, 1), "it comes to rest, and the Problem stays");
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_and_there_stays_until_it_is_not_wanted_any_more() {
    let place = Addresses::default();
    worked(&place, &wanted(&[V4, V6])).await;
    place.lacks_ipv6.store(true, Ordering::Relaxed);
    let (steps, told) = worked(&place, &wanted(&[V4, V6])).await;
    assert_eq!((steps.len(), told.len()), (0, 1), "it may serve");
    assert_eq!(worked(&place, &wanted(&[V6])).await.0, [format!("remove {V4}")], "that goes by a wish");
    assert_eq!(worked(&place, &Desired::Absent).await, (vec![format!("remove {V6}")], vec![]));
}
