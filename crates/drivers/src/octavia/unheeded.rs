//! What is asked for and left out, since the provider or its API has no word for it; or done otherwise. The rest is done. Pure.

use std::{collections::BTreeSet, time::Duration};

use seaway_model::{L4, LoadBalancer, Owner, Pool, Problem, Reason, load_balancer::HealthCheck};
use seaway_openstack::{
    octavia::MonitorType,
    survey::{Abilities, Ability},
};

use super::{
    checks::{self, LEAST_UDP_DELAY, MOST_RETRIES, MOST_WEIGHT},
    member_tls, probes,
    tls::terms,
    told::some,
    wanted::{leads_to, seconds},
};

pub fn unheeded(wish: &LoadBalancer, can: &Abilities) -> Vec<(Owner, Problem)> {
    let Some(outside) = &wish.options.cloud else { return Vec::new() };
    let times = &outside.timeouts;
    let times = [times.client_data, times.member_connect, times.member_data, times.tcp_inspect];
    let asked = [
        (outside.flavor.is_some(), Ability::Flavors),
        (outside.zone.is_some(), Ability::Zones),
        (times.iter().any(Option::is_some), Ability::Timeouts),
    ];
    let is_limited = wish.listeners.values().any(|it| it.limits.connections.is_some());
    // These are taken, and nothing follows.
    let ignored =
        [(is_limited, Ability::ConnectionLimits), (outside.vip.qos.is_some(), Ability::VipQos)].into_iter();
    let ignored =
        ignored.filter(|(is_asked, ability)| *is_asked && !can.has(*ability)).map(|(_, ability)| {
            let message = format!(
                "this provider of load balancers has no {}: the setting has no effect",
                ability.as_str()
            );
            (message, "Remove the setting, or choose another provider.")
        });
    let mut messages: Vec<(String, &str)> = (asked.into_iter())
        .filter(|(is_asked, ability)| *is_asked && !can.has(*ability))
        .map(|(_, ability)| {
            let message = format!(
                "this provider of load balancers has no {}: this setting is ignored",
                ability.as_str()
            );
            (message, "Remove the setting, or choose another provider.")
        })
        .chain(ignored)
        .collect();
    for listener in wish.listeners.values() {
        let pool = leads_to(listener).and_then(|it| wish.pools.get(it));
        let check = pool.and_then(|pool| Some((checks::check(&wish.options, pool, can)?, pool.l4)));
        let all = check.iter().flat_map(|(check, l4)| otherwise(check, *l4));
        let all = all.chain(pool.and_then(|it| too_heavy(it)));
        messages.extend(all.map(|(message, fix)| (format!("port {}: {message}", listener.id()), fix)));
    }
    messages.extend(probes::told(wish, can));
    messages.extend(member_tls::told(wish));
    messages.extend(terms::told(wish, can));
    let owners: BTreeSet<&Owner> = wish.listeners.values().map(|it| &it.owner).collect();
    let of = |owner: &Owner| {
        let owner = owner.clone();
        messages.iter().map(move |(message, fix)| {
            let problem = Problem::new(owner.object(), Reason::Unsupported, message.clone()).fix(*fix);
            (owner.clone(), problem)
        })
    };
    owners.into_iter().flat_map(of).collect()
}

/// Members whose weights are cut.
fn too_heavy(pool: &Pool) -> Option<(String, &'static str)> {
    let heavy = pool.members.iter().filter(|it| it.weight > MOST_WEIGHT);
    let heavy: Vec<String> = heavy.map(|it| format!("{} has {}", it.at, it.weight)).collect();
    (!heavy.is_empty()).then(|| {
        let message = format!("the weight of a member is {MOST_WEIGHT} at most: {}", some(&heavy, ", "));
        (message, "Set weights of 256 or less.")
    })
}

/// How members are asked, where that is not as somebody said.
fn otherwise(check: &HealthCheck, l4: L4) -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    let monitor = checks::monitor(check, l4);
    let asked = (seconds(check.interval), seconds(check.timeout));
    let is_usual = check.interval == HealthCheck::default().interval;
    if monitor.r#type == MonitorType::UdpConnect && asked.0 < monitor.delay && !is_usual {
        let message = format!(
            "probes of UDP come every {LEAST_UDP_DELAY} seconds, not every {}: this is the shortest interval",
            asked.0
        );
        found.push((message, "Set a health-monitor-delay of 3 or more."));
    }
    for (what, time, is) in
        [("probes come every", check.interval, asked.0), ("a probe may last", check.timeout, asked.1)]
    {
        if time != Duration::from_secs(is) {
            let message =
                format!("{what} {is} seconds, not {time:?}: Octavia takes whole seconds, 1 to 3600");
            found.push((message, "Set whole seconds."));
        }
    }
    for (what, most) in [("successes", check.rise), ("failures", check.fall)] {
        if u64::from(most) > MOST_RETRIES {
            let message =
                format!("{MOST_RETRIES} {what} in a row are required, not {most}: Octavia takes 10 at most");
            found.push((message, "Set 10 or less."));
        }
    }
    if monitor.timeout < asked.1 {
        let message = format!(
            "a probe may last {} seconds, not {}: it ends before the next begins",
            monitor.timeout, asked.1
        );
        found.push((message, "Set a health-monitor-timeout that is not longer than health-monitor-delay."));
    }
    found
}
