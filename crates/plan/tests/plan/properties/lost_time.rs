//! A store that is set back to a backup, at any time and again: nothing is given to another while a host may serve it, and nothing is
//! kept for ever.

use proptest::prelude::*;
use seaway_model::AddressState;
use seaway_testkit::properties::cases;

use super::{
    hosts::{self, any_event},
    leader::Leader,
};

#[derive(Clone, Debug)]
enum Event {
    /// Not that another begins to lead, who knows nothing of the time before.
    Any(hosts::Event),
    BackUp,
    /// Whether versions are bumped.
    SetBack(bool, u64),
    /// A host writes what it said before, for it has not noticed.
    Repeats(usize),
}

fn any() -> impl Strategy<Value = Event> {
    let is_no_restart = |it: &hosts::Event| !matches!(it, hosts::Event::Restart(_));
    prop_oneof![
        16 => any_event().prop_filter("it knows nothing", is_no_restart).prop_map(Event::Any),
        1 => Just(Event::BackUp),
        1 => (proptest::bool::ANY, proptest::num::u64::ANY).prop_map(|(bumped, seed)| Event::SetBack(bumped, seed)),
        2 => (0..3usize).prop_map(Event::Repeats),
    ]
}

fn play(events: &[Event]) -> Result<Leader, TestCaseError> {
    let mut leader = Leader::new();
    for event in events {
        let happened = match event {
            Event::Any(it) => it.happens(&mut leader),
            Event::BackUp => {
                leader.back_up();
                Ok(())
            }
            Event::SetBack(bumped, seed) => leader.set_back(*bumped, *seed),
            Event::Repeats(at) => leader.host_repeats(*at),
        };
        happened.map_err(|why| TestCaseError::fail(format!("at {event:?}: {why}")))?;
    }
    Ok(leader)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(300), ..ProptestConfig::default() })]

    /// What is judged is each Address at the moment when it is written; what a backup says itself is not.
    #[test]
    fn no_address_of_the_lost_time_is_given_to_another_while_a_host_may_serve_it(
        events in prop::collection::vec(any(), 0..60),
    ) {
        play(&events)?;
    }

    #[test]
    fn once_all_hosts_have_heard_every_address_is_somebody_s_or_free(
        events in prop::collection::vec(any(), 0..60),
    ) {
        let mut leader = play(&events)?;
        leader.come_to_rest().map_err(TestCaseError::fail)?;
        for (ip, (state, owners)) in leader.planned() {
            prop_assert_eq!((state, owners.len()), (AddressState::Held, 1), "{}", ip);
        }
        for (number, addresses) in leader.published() {
            prop_assert_eq!(addresses.len(), 1, "service {}", number);
        }
    }
}
