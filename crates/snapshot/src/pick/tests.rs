use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use proptest::prelude::*;
use seaway_model::{
    Member, Pool,
    load_balancer::{Affinity, MemberState},
};
use seaway_testkit::balancing;

use super::*;

/// Everybody is well unless said otherwise.
#[derive(Default)]
struct Scene {
    standing: BTreeMap<usize, MemberAvailability>,
    load: BTreeMap<usize, u32>,
    warmth: BTreeMap<usize, u32>,
    tried: Vec<usize>,
}

impl MemberStatusSource for Scene {
    fn standing(&self, member: usize) -> MemberAvailability {
        self.standing.get(&member).copied().unwrap_or(MemberAvailability::Usable)
    }
    fn load(&self, member: usize) -> u32 {
        self.load.get(&member).copied().unwrap_or(0)
    }
    fn warmth(&self, member: usize) -> u32 {
        self.warmth.get(&member).copied().unwrap_or(100)
    }
    fn tried(&self, member: usize) -> bool {
        self.tried.contains(&member)
    }
    fn all_well(&self) -> bool {
        self.standing.is_empty() && self.warmth.is_empty()
    }
}

fn pool(balance: Balance, weights: &[u32]) -> Pool {
    let weighing = |(weight, last): (&u32, u8)| Member {
        weight: *weight,
        ..balancing::member(([10, 0, 0, last], 80).into())
    };
    Pool { balance, members: weights.iter().zip(1_u8..).map(weighing).collect(), ..balancing::pool(&[]) }
}

fn client(number: u32) -> IpAddr {
    IpAddr::from(number.to_be_bytes())
}

fn counts(pool: Pool, scene: &Scene, picks: u32) -> Vec<u32> {
    let pool = CompiledPool::compile(Arc::new(pool));
    let mut cursor = Cursor::new(7);
    let mut counts = vec![0; pool.members().len()];
    for number in 0..picks {
        if let Some(member) = pool.pick(|| client(number), &mut cursor, scene) {
            counts[member] += 1;
        }
    }
    counts
}

/// Those that give something to everybody.
const SPREADING: [Balance; 4] =
    [Balance::RoundRobin, Balance::LeastConnections, Balance::RandomTwo, Balance::SourceHash];
const ALL: [Balance; 5] =
    [Balance::RoundRobin, Balance::LeastConnections, Balance::RandomTwo, Balance::SourceHash, Balance::First];

#[test]
fn round_robin_gives_everybody_the_same() {
    assert_eq!(counts(pool(Balance::RoundRobin, &[1, 1, 1]), &Scene::default(), 300), [100, 100, 100]);
}

#[test]
fn round_robin_follows_weights_exactly() {
    assert_eq!(counts(pool(Balance::RoundRobin, &[5, 3, 0, 2]), &Scene::default(), 100), [50, 30, 0, 20]);
}

#[test]
fn round_robin_is_smooth() {
    let pool = CompiledPool::compile(Arc::new(pool(Balance::RoundRobin, &[5, 1, 1])));
    let mut cursor = Cursor::new(0);
    let order: Vec<_> =
        (0..7).filter_map(|_| pool.pick(|| client(0), &mut cursor, &Scene::default())).collect();
    assert_eq!(order, [0, 0, 1, 0, 2, 0, 0]);
}

#[test]
fn round_robin_spreads_the_share_of_a_failed_member_over_all_others() {
    let scene = Scene { standing: [(1, MemberAvailability::Failed)].into(), ..Scene::default() };
    assert_eq!(counts(pool(Balance::RoundRobin, &[1, 1, 1, 1]), &scene, 300), [100, 0, 100, 100]);
}

#[test]
fn least_connections_takes_the_least_loaded_for_its_weight() {
    let scene = Scene { load: [(0, 4), (1, 3), (2, 9)].into(), ..Scene::default() };
    assert_eq!(counts(pool(Balance::LeastConnections, &[1, 1, 1]), &scene, 10), [0, 10, 0]);
    assert_eq!(counts(pool(Balance::LeastConnections, &[1, 1, 3]), &scene, 10), [0, 0, 10]);
}

#[test]
fn equally_loaded_members_take_turns() {
    assert_eq!(counts(pool(Balance::LeastConnections, &[1, 1, 1]), &Scene::default(), 300), [100, 100, 100]);
}

#[test]
fn random_of_two_avoids_the_most_loaded() {
    let scene = Scene { load: [(0, 0), (1, 0), (2, 50)].into(), ..Scene::default() };
    let counts = counts(pool(Balance::RandomTwo, &[1, 1, 1]), &scene, 9000);
    // It is taken only if drawn twice.
    assert!(counts[2] < 1300, "{counts:?}");
    assert!(counts[0].abs_diff(counts[1]) < 500, "{counts:?}");
}

#[test]
fn first_sends_everybody_to_the_first_that_can_serve() {
    let first = |scene: &Scene| counts(pool(Balance::First, &[0, 1, 5, 1]), scene, 10);
    assert_eq!(first(&Scene::default()), [0, 10, 0, 0]);
    let failed = Scene { standing: [(1, MemberAvailability::Failed)].into(), ..Scene::default() };
    assert_eq!(first(&failed), [0, 0, 10, 0]);
}

#[test]
fn source_hash_sends_a_client_to_the_same_member_always() {
    let pool = CompiledPool::compile(Arc::new(pool(Balance::SourceHash, &[1; 5])));
    for number in 0..100 {
        let first = pool.pick(|| client(number), &mut Cursor::new(1), &Scene::default());
        let again = pool.pick(|| client(number), &mut Cursor::new(2), &Scene::default());
        assert_eq!(first, again);
    }
}

#[test]
fn a_hashed_member_that_fails_moves_only_its_own_clients() {
    let pool = CompiledPool::compile(Arc::new(pool(Balance::SourceHash, &[1; 10])));
    let failed = Scene { standing: [(3, MemberAvailability::Failed)].into(), ..Scene::default() };
    let mut heirs = [0; 10];
    for number in 0..20_000 {
        let before = pool.pick(|| client(number), &mut Cursor::default(), &Scene::default()).unwrap();
        let after = pool.pick(|| client(number), &mut Cursor::default(), &failed).unwrap();
        if before == 3 {
            heirs[after] += 1;
        } else {
            assert_eq!(before, after);
        }
    }
    assert_eq!(heirs[3], 0);
    assert!(heirs.iter().enumerate().all(|(index, count)| index == 3 || *count > 100), "{heirs:?}");
}

#[test]
fn affinity_places_clients_by_hash_whatever_the_balance() {
    let sticky = Pool {
        affinity: Some(Affinity::ClientIp(std::time::Duration::from_secs(1))),
        ..pool(Balance::RoundRobin, &[1; 5])
    };
    let pool = CompiledPool::compile(Arc::new(sticky));
    let mut cursor = Cursor::new(3);
    let first = pool.pick(|| client(9), &mut cursor, &Scene::default());
    assert!((0..50).all(|_| pool.pick(|| client(9), &mut cursor, &Scene::default()) == first));
}

#[test]
fn a_client_is_the_same_through_ipv6() {
    let mapped: IpAddr = "::ffff:10.1.2.3".parse().unwrap();
    assert_eq!(client_hash(mapped), client_hash(IpAddr::from([10, 1, 2, 3])));
}

#[test]
fn draining_members_get_nothing_while_somebody_is_ready() {
    for balance in ALL {
        let mut pool = pool(balance, &[1, 1, 1]);
        pool.members[1].state = MemberState::Draining;
        assert_eq!(counts(pool, &Scene::default(), 100)[1], 0, "{balance:?}");
    }
}

#[test]
fn draining_members_serve_when_all_are_draining() {
    for balance in SPREADING {
        let mut pool = pool(balance, &[1, 1]);
        pool.members.iter_mut().for_each(|member| member.state = MemberState::Draining);
        let counts = counts(pool, &Scene::default(), 100);
        assert!(counts.iter().all(|count| *count > 10), "{balance:?} {counts:?}");
    }
}

#[test]
fn draining_members_serve_when_all_ready_ones_have_failed() {
    let mut pool = pool(Balance::RoundRobin, &[1, 1]);
    pool.members[1].state = MemberState::Draining;
    let scene = Scene { standing: [(0, MemberAvailability::Failed)].into(), ..Scene::default() };
    assert_eq!(counts(pool, &scene, 10), [0, 10]);
}

/// The last one is a backup.
fn with_backup(balance: Balance, weights: &[u32]) -> Pool {
    let mut pool = pool(balance, weights);
    pool.members.last_mut().expect("one").backup = true;
    pool
}

#[test]
fn a_backup_gets_nothing_while_another_can_serve_and_all_when_none_can() {
    for balance in ALL {
        let pool = || with_backup(balance, &[1, 1, 1]);
        assert_eq!(counts(pool(), &Scene::default(), 100)[2], 0, "{balance:?}");
        for out in [MemberAvailability::Failed, MemberAvailability::Ejected] {
            let one = Scene { standing: [(0, out)].into(), ..Scene::default() };
            assert_eq!(counts(pool(), &one, 100), [0, 100, 0], "{balance:?} {out:?}");
            let both = Scene { standing: [(0, out), (1, out)].into(), ..Scene::default() };
            assert_eq!(counts(pool(), &both, 100), [0, 0, 100], "{balance:?} {out:?}");
            // Panic is for when no backup is there.
            let threshold = Pool { panic_threshold: 100, ..pool() };
            assert_eq!(counts(threshold.clone(), &both, 100), [0, 0, 100], "{balance:?} {out:?}");
            assert_eq!(counts(threshold, &one, 100)[2], 0, "{balance:?} {out:?}");
        }
        let tried = Scene { tried: vec![0, 1], ..Scene::default() };
        assert_eq!(counts(pool(), &tried, 100), [0, 0, 100], "{balance:?}: none of the others answered it");
        let none = Scene {
            standing: [
                (0, MemberAvailability::Ejected),
                (1, MemberAvailability::Failed),
                (2, MemberAvailability::Failed),
            ]
            .into(),
            ..Scene::default()
        };
        assert_eq!(counts(pool(), &none, 100), [100, 0, 0], "{balance:?}: suspicion leaves one");
        let mut all = pool();
        all.members.iter_mut().for_each(|it| it.backup = true);
        assert_eq!(counts(all, &Scene::default(), 100).iter().sum::<u32>(), 100, "{balance:?}");
    }
}

#[test]
fn a_backup_comes_before_members_that_drain_and_several_share_by_weight() {
    for balance in ALL {
        let mut leaving = with_backup(balance, &[1, 1]);
        leaving.members[0].state = MemberState::Draining;
        assert_eq!(counts(leaving, &Scene::default(), 100), [0, 100], "{balance:?}");
    }
    let mut three = with_backup(Balance::RoundRobin, &[1, 3, 1]);
    three.members[1].backup = true;
    let failed = Scene { standing: [(0, MemberAvailability::Failed)].into(), ..Scene::default() };
    assert_eq!(counts(three.clone(), &failed, 100), [0, 75, 25]);
    three.balance = Balance::RandomTwo;
    let counts = counts(three, &failed, 1000);
    assert!(counts[1] > 650, "{counts:?}");
}

#[test]
fn who_has_a_backup_keeps_it_only_while_no_other_can_serve() {
    let pool = CompiledPool::compile(Arc::new(with_backup(Balance::RoundRobin, &[1, 1])));
    let failed = Scene { standing: [(0, MemberAvailability::Failed)].into(), ..Scene::default() };
    assert_eq!([0, 1].map(|it| pool.may_keep(it, &Scene::default())), [true, false]);
    assert_eq!([0, 1].map(|it| pool.may_keep(it, &failed)), [true, true]);
}

#[test]
fn without_usable_members_there_is_nobody() {
    for balance in ALL {
        let scene = Scene {
            standing: [(0, MemberAvailability::Failed), (1, MemberAvailability::Failed)].into(),
            ..Scene::default()
        };
        assert_eq!(counts(pool(balance, &[1, 1]), &scene, 10), [0, 0], "{balance:?}");
        assert_eq!(counts(pool(balance, &[]), &Scene::default(), 10), [0_u32; 0], "{balance:?}");
        assert_eq!(counts(pool(balance, &[0, 0]), &Scene::default(), 10), [0, 0], "{balance:?}");
    }
}

#[test]
fn below_the_panic_threshold_all_are_used() {
    for balance in SPREADING {
        let scene = Scene {
            standing: (0..3).map(|index| (index, MemberAvailability::Failed)).collect(),
            ..Scene::default()
        };
        let with = |threshold| Pool { panic_threshold: threshold, ..pool(balance, &[1; 5]) };
        let calm = counts(with(40), &scene, 1000);
        assert_eq!(calm[..3], [0, 0, 0], "{balance:?}");
        let panic = counts(with(41), &scene, 1000);
        assert!(panic.iter().all(|count| *count > 50), "{balance:?} {panic:?}");
    }
}

#[test]
fn ejected_members_serve_when_nobody_else_can() {
    for balance in SPREADING {
        let scene = Scene {
            standing: [
                (0, MemberAvailability::Ejected),
                (1, MemberAvailability::Failed),
                (2, MemberAvailability::Ejected),
            ]
            .into(),
            ..Scene::default()
        };
        let all_out = counts(pool(balance, &[1; 3]), &scene, 100);
        assert!(all_out[0] > 10 && all_out[1] == 0 && all_out[2] > 10, "{balance:?} {all_out:?}");
        let one_in = counts(pool(balance, &[1; 4]), &scene, 100);
        assert_eq!(one_in, [0, 0, 0, 100], "{balance:?}");
    }
}

#[test]
fn a_member_that_was_tried_is_not_tried_again() {
    for balance in ALL {
        let scene = Scene { tried: vec![0, 2], ..Scene::default() };
        assert_eq!(counts(pool(balance, &[1; 3]), &scene, 50), [0, 50, 0], "{balance:?}");
    }
}

#[test]
fn a_warming_member_gets_its_part_of_the_share() {
    let scene = Scene { warmth: [(0, 25)].into(), ..Scene::default() };
    assert_eq!(counts(pool(Balance::RoundRobin, &[1, 1]), &scene, 125), [25, 100]);
    let drawn = counts(pool(Balance::RandomTwo, &[1, 1]), &scene, 1000);
    // A fifth of the draws, and both of them in one of 25.
    assert!((10..100).contains(&drawn[0]), "{drawn:?}");
    let loaded = Scene { load: [(0, 2), (1, 9)].into(), ..scene };
    assert_eq!(counts(pool(Balance::LeastConnections, &[1, 1]), &loaded, 10), [0, 10]);
}

proptest! {
    /// Whatever the state of things: the one chosen may serve, and nobody is chosen only if nobody may.
    #[test]
    fn the_chosen_one_may_serve(
        balance in 0_usize..4,
        members in proptest::collection::vec((0_u32..4, any::<bool>(), 0_u8..3, any::<bool>(), 1_u32..101), 0..8),
        threshold in prop_oneof![Just(0_u8), 1_u8..101],
        number: u32,
    ) {
        let mut pool = pool(ALL[balance], &members.iter().map(|member| member.0).collect::<Vec<_>>());
        pool.panic_threshold = threshold;
        let mut scene = Scene::default();
        for (index, (_, draining, standing, tried, warmth)) in members.iter().enumerate() {
            if *draining {
                pool.members[index].state = MemberState::Draining;
            }
            let all = [MemberAvailability::Usable, MemberAvailability::Ejected, MemberAvailability::Failed];
            scene.standing.insert(index, all[usize::from(*standing)]);
            scene.warmth.insert(index, *warmth);
            if *tried {
                scene.tried.push(index);
            }
        }
        let able = |index: &usize| {
            members[*index].0 > 0 && !members[*index].3 && scene.standing(*index) != MemberAvailability::Failed
        };
        let pool = CompiledPool::compile(Arc::new(pool));
        match pool.pick(|| client(number), &mut Cursor::new(u64::from(number)), &scene) {
            Some(chosen) => {
                prop_assert!(members[chosen].0 > 0 && !members[chosen].3);
                prop_assert!(threshold > 0 || able(&chosen));
            }
            None => prop_assert_eq!((0..members.len()).find(able), None),
        }
    }
}
