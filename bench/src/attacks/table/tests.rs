use super::*;

#[test]
fn met_and_not_met_are_said_only_where_nothing_lacks() {
    let said = |misses: &[&'static str], lacks: &[&str]| {
        Claim::of(misses.to_vec(), lacks.iter().map(|it| (*it).to_owned()).collect()).to_string()
    };
    assert_eq!(said(&[], &[]), "met");
    assert_eq!(said(&["p99"], &[]), "**not met: p99**");
    assert_eq!(said(&[], &["3 of 5 rounds", "1 noisy"]), "undecided: 3 of 5 rounds, 1 noisy");
    assert_eq!(said(&["p99"], &["1 noisy"]), "undecided: 1 noisy; beyond its target: p99");
    assert_eq!(said(&["p99", FAILED], &["1 noisy"]), "**failed**");
}

#[test]
fn what_clients_wait_for_on_their_own_core_is_not_counted_as_work_of_seaway() {
    let served = |p99| RequestStats { quarters: vec![p99], p99, ..RequestStats::default() };
    let had = |quiet, attacked| {
        let pair = Pair { quiet: served(quiet), attacked: served(attacked), lost: 0, first_error: None };
        of_pairs(&[&pair], None)
    };
    let times = |other: (f64, f64), direct: Option<(f64, f64)>| {
        let (other, direct) = (had(other.0, other.1), direct.map(|it| had(it.0, it.1)));
        let (shared, memory, before, after, ended, generator, noisy) = Default::default();
        Figures { shared, other, direct, memory, before, after, ended, generator, noisy }.flooded_p99()
    };
    let is = |it: f64, expected: f64| assert!((it - expected).abs() < 1e-9, "{it}");
    is(times((400.0, 1_200.0), None), 3.0);
    is(times((400.0, 1_200.0), Some((300.0, 1_100.0))), 1.0);
    // Ours is what is left, and no more is taken off than they had.
    is(times((400.0, 6_500.0), Some((300.0, 1_200.0))), 14.0);
    is(times((400.0, 1_200.0), Some((900.0, 500.0))), 3.0);
}

#[test]
fn what_is_not_met_stands_first_and_only_seaway_has_targets() {
    let mut table = Table::new(vec![], ROUNDS, vec![]);
    table.desynchronised("0.CL", Contender::Seaway, desync::Outcome { tries: 9, wrong: 1, failed: 0 });
    table.desynchronised("0.CL", Contender::Nginx, desync::Outcome { tries: 9, wrong: 9, failed: 0 });
    let text = table.markdown();
    assert!(text.starts_with("**Not met: 0.CL (not met: answers to the wrong client).**"), "{text}");
    assert!(text.contains("| 0.CL | nginx | 9 | 0 | 9 |  |"), "{text}");
    assert!(!table.is_good());
    table.lacks.push("in the host's network".to_owned());
    assert!(table.markdown().starts_with("**Undecided: 1 of 1"), "{}", table.markdown());
}

#[test]
fn a_busy_core_of_clients_is_noise_only_where_nothing_tells_what_it_costs_them() {
    let pair = || Pair {
        quiet: RequestStats::default(),
        attacked: RequestStats::default(),
        lost: 0,
        first_error: None,
    };
    let outcome = |direct, foreign| Outcome {
        shared: None,
        other: pair(),
        direct,
        before: 0,
        peak: 0,
        after: 0,
        ended: 0,
        generator: GENERATOR + 1.0,
        contender: 100.0,
        contender_quiet: 15.0,
        queued: QUEUED + 1.0,
        foreign,
    };
    assert!(is_noisy(&outcome(None, 0.0)));
    assert!(!is_noisy(&outcome(Some(pair()), 0.0)));
    assert!(is_noisy(&outcome(Some(pair()), FOREIGN + 1.0)), "others had the cores");
}
