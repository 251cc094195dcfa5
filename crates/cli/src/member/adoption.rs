//! How far adoption is, in lines: for the log, and for `kubectl seaway status`.

use seaway_cluster::MAX_LINES;
use seaway_plan::{Adoption, Waiting};

/// Longer lines are cut: an object has room for a hundred.
const LONGEST: usize = 400;
/// Steps that are named one by one.
const STEPS: usize = 6;

/// The first tells how many Services are adopted.
pub(super) fn lines(adoption: &Adoption) -> Vec<String> {
    let Adoption { mode, services, adopted, troubled, stopped, waiting, beside } = adoption;
    let mut first = format!("{adopted} of {services} Services adopted (mode {})", mode.as_str());
    if *stopped {
        first
            .push_str(&format!("; stopped: the load balancers of {troubled} adopted Services have Problems"));
    }
    if let Some(beside) = beside {
        first.push_str(&format!("; {beside}"));
    }
    let more = waiting.len().saturating_sub(MAX_LINES - 2);
    let mut lines = vec![first];
    lines.extend(waiting.iter().take(MAX_LINES - 2).map(line));
    if more > 0 {
        lines.push(format!("and {more} more Services"));
    }
    lines
}

fn line(it: &Waiting) -> String {
    let mut line = format!("{}/{}: not adopted: {}", it.service.namespace, it.service.name, it.why.why());
    for problem in &it.problems {
        line.push_str(&format!("; cannot be adopted: {}", problem.message));
    }
    if !it.steps.is_empty() {
        let steps: Vec<&str> = it.steps.iter().take(STEPS).map(|it| &**it).collect();
        line.push_str(&format!("; would: {}", steps.join(", ")));
        if it.steps.len() > STEPS {
            line.push_str(&format!(" and {} more steps", it.steps.len() - STEPS));
        }
    }
    if line.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|it| line.is_char_boundary(*it)).unwrap_or(0);
        line.truncate(end);
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use seaway_model::{ObjectRef, Problem, Reason, config::AdoptMode};
    use seaway_plan::{CompetingController, NotAdopted, OtherControllerEvidence, ServiceKey};

    use super::*;

    fn waiting(name: &str, why: NotAdopted) -> Waiting {
        let service = ServiceKey::new("default", name);
        Waiting { service, why, steps: Vec::new(), problems: Vec::new() }
    }

    #[test]
    fn each_service_that_waits_has_a_line_that_says_why_and_what_would_be_done() {
        let mut shop = waiting("shop", NotAdopted::Observed);
        shop.steps = vec!["change the load balancer".into(), "set the description of floating IP 7".into()];
        let mut bank = waiting("bank", NotAdopted::Observed);
        let object = ObjectRef::new(seaway_model::Kind::Service, "default", "bank");
        bank.problems = vec![Problem::new(object, Reason::OtherController, "it has another name")];
        let mode = AdoptMode::Observe;
        let adoption =
            Adoption { mode, services: 3, adopted: 1, waiting: vec![bank, shop], ..Adoption::default() };
        assert_eq!(
            lines(&adoption),
            [
                "1 of 3 Services adopted (mode observe)",
                "default/bank: not adopted: adopt.mode is observe; cannot be adopted: it has another name",
                "default/shop: not adopted: adopt.mode is observe; would: change the load balancer, set the description of floating IP 7",
            ]
        );
        let beside = Some(CompetingController { by: "occm".into(), sign: OtherControllerEvidence::Wrote });
        let stopped = Adoption { stopped: true, troubled: 2, beside, ..Adoption::default() };
        assert!(lines(&stopped)[0].contains("of 2 adopted Services have Problems; occm wrote Services"));
    }

    #[test]
    fn however_many_wait_the_lines_are_bounded() {
        let mut long = waiting("long", NotAdopted::Observed);
        long.steps = vec!["ä".repeat(1_000).into(); 9];
        let waiting: Vec<Waiting> =
            (0..300).map(|it| waiting(&format!("s{it}"), NotAdopted::Next)).chain([long.clone()]).collect();
        let all = lines(&Adoption { services: 301, waiting, ..Adoption::default() });
        assert_eq!(all.len(), MAX_LINES);
        assert_eq!(all[MAX_LINES - 1], format!("and {} more Services", 301 - (MAX_LINES - 2)));
        assert!(line(&long).len() <= LONGEST + '…'.len_utf8());
    }
}
