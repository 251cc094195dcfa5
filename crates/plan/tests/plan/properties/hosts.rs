//! Hosts that appear, fall silent, come back and go: nothing is given to another while one of them may serve it.

use proptest::prelude::*;
use seaway_model::AddressState;
use seaway_testkit::{facts::service, properties::cases};

use super::leader::Leader;

#[derive(Clone, Debug)]
pub(super) enum Event {
    Comes(usize),
    Deleted(usize),
    /// It has heard of so much more of what was written, and says so.
    HostSays(usize, usize),
    HostFallsSilent(usize),
    HostGoes(usize),
    Restart(u64),
}

pub(super) fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0..4usize).prop_map(Event::Comes),
        5 => (0..4usize).prop_map(Event::Deleted),
        8 => (0..3usize, 0..6usize).prop_map(|(at, more)| Event::HostSays(at, more)),
        3 => (0..3usize).prop_map(Event::HostFallsSilent),
        1 => (0..3usize).prop_map(Event::HostGoes),
        1 => any::<u64>().prop_map(Event::Restart),
    ]
}

impl Event {
    pub(super) fn happens(&self, to: &mut Leader) -> Result<(), String> {
        match self {
            Event::Comes(number) if to.services.contains_key(number) => Ok(()),
            Event::Comes(number) => to.put_service(*number, service(&format!("s{number}"), &[])),
            Event::Deleted(number) => to.delete_service(*number),
            Event::HostSays(at, more) => to.host_says(*at, *more),
            Event::HostFallsSilent(at) => to.host_falls_silent(*at),
            Event::HostGoes(at) => to.host_goes(*at),
            Event::Restart(seed) => to.restart(*seed),
        }
    }
}

pub(super) fn play(events: &[Event]) -> Result<Leader, TestCaseError> {
    let mut leader = Leader::new();
    for event in events {
        let happened = event.happens(&mut leader);
        happened.map_err(|why| TestCaseError::fail(format!("at {event:?}: {why}")))?;
    }
    Ok(leader)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(200), ..ProptestConfig::default() })]

    /// What is judged is each Address at the moment when it is written.
    #[test]
    fn no_address_is_given_to_another_while_a_host_may_serve_it(
        events in prop::collection::vec(any_event(), 0..50),
    ) {
        play(&events)?;
    }

    #[test]
    fn once_all_hosts_answer_every_address_is_somebody_s_or_free(
        events in prop::collection::vec(any_event(), 0..50),
    ) {
        let mut leader = play(&events)?;
        leader.come_to_rest().map_err(TestCaseError::fail)?;
        for (ip, (state, owners)) in leader.planned() {
            prop_assert_eq!((state, owners.len()), (AddressState::Held, 1), "{}", ip);
        }
        // Four Services, and four addresses.
        for (number, addresses) in leader.published() {
            prop_assert_eq!(addresses.len(), 1, "service {}", number);
        }
    }

    #[test]
    fn what_is_planned_after_a_restart_is_what_was_planned_before_whoever_is_silent(
        events in prop::collection::vec(any_event(), 0..50), seed in any::<u64>(),
    ) {
        let mut leader = play(&events)?;
        let before = (leader.planned(), leader.published());
        leader.restart(seed).map_err(TestCaseError::fail)?;
        prop_assert_eq!((leader.planned(), leader.published()), before);
    }
}
