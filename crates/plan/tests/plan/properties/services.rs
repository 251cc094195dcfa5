//! What a Service is told: it changes only with a cause, and nothing is withdrawn because it could not be seen.

use proptest::prelude::*;
use seaway_model::{Change, Desired, Problem, Reason, Unit, fact::Service};
use seaway_testkit::{
    facts::{owner, put, service},
    properties::cases,
};

use super::{
    hosts,
    leader::{Leader, all_addresses},
};

#[derive(Clone, Debug)]
enum Event {
    Of(hosts::Event),
    /// A Service comes, or asks for another address: that with this last byte.
    Asks(usize, u8),
    Unseen(Unseen),
    SeesPool,
}

/// What is not known any more, or is told once more; nothing of it is a cause.
#[derive(Clone, Debug)]
enum Unseen {
    Pool,
    HostFallsSilent(usize),
    /// A host says what it said.
    HostAgain(usize),
    ServiceAgain(usize),
    Drifted(u8),
    Overwritten(usize),
    Restart(u64),
}

fn any_unseen() -> impl Strategy<Value = Unseen> {
    prop_oneof![
        Just(Unseen::Pool),
        (0..3usize).prop_map(Unseen::HostFallsSilent),
        (0..3usize).prop_map(Unseen::HostAgain),
        (0..4usize).prop_map(Unseen::ServiceAgain),
        (10..16u8).prop_map(Unseen::Drifted),
        (0..4usize).prop_map(Unseen::Overwritten),
        any::<u64>().prop_map(Unseen::Restart),
    ]
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => hosts::any_event().prop_map(Event::Of),
        // Two of them are in no pool.
        4 => (0..4usize, 10..16u8).prop_map(|(number, last)| Event::Asks(number, last)),
        4 => any_unseen().prop_map(Event::Unseen),
        1 => Just(Event::SeesPool),
    ]
}

fn asking(number: usize, last: u8) -> Service {
    let mut it = service(&format!("s{number}"), &[]);
    it.load_balancer_ip = Some(format!("192.0.2.{last}").into());
    it
}

impl Unseen {
    fn happens(&self, to: &mut Leader) -> Result<(), String> {
        let of = |number: &usize| to.services.get(number).cloned();
        match self {
            Unseen::Pool => to.see_pool(false),
            Unseen::HostFallsSilent(at) => to.host_falls_silent(*at),
            Unseen::HostAgain(at) if to.is_heard(*at) => to.host_says(*at, 0),
            Unseen::HostAgain(_) => Ok(()),
            Unseen::ServiceAgain(number) => of(number).map_or(Ok(()), |it| to.tell(put(&it))),
            Unseen::Drifted(last) => {
                let ip = format!("192.0.2.{last}").parse().expect("an address");
                to.tell(Change::Drifted(Unit::Address(ip)))
            }
            Unseen::Overwritten(number) => {
                of(number).map_or(Ok(()), |it| to.tell(Change::Overwritten(owner(&it).object())))
            }
            Unseen::Restart(seed) => to.restart(*seed),
        }
    }
}

fn play(events: &[Event]) -> Result<Leader, TestCaseError> {
    let mut leader = Leader::new();
    for event in events {
        let failed = |why| TestCaseError::fail(format!("at {event:?}: {why}"));
        match event {
            Event::Of(it) => it.happens(&mut leader).map_err(failed)?,
            Event::Asks(number, last) => {
                leader.put_service(*number, asking(*number, *last)).map_err(failed)?;
            }
            Event::SeesPool => leader.see_pool(true).map_err(failed)?,
            Event::Unseen(it) => {
                let before = (leader.published(), leader.planned());
                it.happens(&mut leader).map_err(failed)?;
                prop_assert_eq!((leader.published(), leader.planned()), before, "{:?}", it);
            }
        }
    }
    Ok(leader)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(200), ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_withdrawn_because_it_could_not_be_seen(events in prop::collection::vec(any_event(), 0..50)) {
        play(&events)?;
    }

    #[test]
    fn a_status_does_not_change_while_nothing_does(
        events in prop::collection::vec(any_event(), 0..40), number in 0..4usize,
    ) {
        let mut leader = play(&events)?;
        let statuses = |leader: &Leader| {
            leader.services.values().map(|it| leader.world.desire(&Unit::Status(owner(it)))).collect::<Vec<Desired>>()
        };
        let before = statuses(&leader);
        let known: Vec<Change> = leader.services.get(&number).map(put).into_iter().collect();
        for change in known {
            prop_assert_eq!(leader.world.apply(change), vec![], "what is known marks nothing");
        }
        prop_assert_eq!(statuses(&leader), before);
    }

    #[test]
    fn an_address_that_is_asked_for_is_had_or_it_is_told_why_not(
        events in prop::collection::vec(any_event(), 0..50),
    ) {
        let mut leader = play(&events)?;
        for rest in [false, true] {
            if rest {
                leader.see_pool(true).and_then(|()| leader.come_to_rest()).map_err(TestCaseError::fail)?;
            }
            for service in leader.services.values() {
                let Some(asked) = service.load_balancer_ip.as_ref() else { continue };
                let Some(status) = leader.status(service) else {
                    return Err(TestCaseError::fail(format!("{} is told nothing", service.meta.name)));
                };
                let has = status.addresses.iter().any(|it| it.to_string() == asked.as_str());
                let is_why = |it: &Problem| it.reason == Reason::NoPool || it.message.contains(asked.as_str());
                let told = status.problems.iter().any(is_why);
                prop_assert!(has || told, "{} asks for {asked}: {status:#?}", service.meta.name);
            }
        }
        // And each is one Service's.
        for ip in all_addresses() {
            let theirs = leader.published().into_iter().filter(|(_, it)| it.contains(&ip)).count();
            prop_assert!(theirs <= 1, "{} is published by {}", ip, theirs);
        }
    }
}
