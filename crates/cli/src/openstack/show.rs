//! `seaway openstack show`: load balancers as trees.

use std::{fmt::Display, net::IpAddr, process::ExitCode};

use anyhow::Result;
use seaway_openstack::{
    octavia::{Operating, Provisioning},
    survey::{
        LoadBalancerFilter, LoadBalancerTrees,
        forest::{ListenerBranch, LoadBalancerBranch, MemberLeaf, MonitorLeaf, PolicyBranch, PoolBranch},
    },
};

use super::{connect, progress_printer};
use crate::{
    args::{OpenStackShow, Output},
    output,
};

pub(super) async fn show(arguments: &OpenStackShow) -> Result<ExitCode> {
    let cloud = connect(&arguments.which).await?;
    let wanted = LoadBalancerFilter {
        named: arguments.load_balancer.clone(),
        tags: arguments.tag.clone(),
        members: !arguments.no_members,
    };
    let forest = seaway_openstack::survey::read_load_balancers(&cloud, &wanted, &*progress_printer()).await?;
    match arguments.output {
        Output::Json => output::line(&serde_json::to_string_pretty(&forest)?),
        Output::Table => draw(&forest),
    }
    for error in &forest.failed {
        output::error(&format!("cannot be read: {error}"));
    }
    if forest.load_balancers.is_empty() {
        output::error("this load balancer does not exist");
        return Ok(if arguments.load_balancer.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS });
    }
    Ok(if forest.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A line, and those below it.
struct Branch {
    text: String,
    below: Vec<Branch>,
}

impl Branch {
    fn leaf(text: String) -> Branch {
        Branch { text, below: Vec::new() }
    }

    fn draw(&self, first: &str, then: &str) {
        output::line(&format!("{first}{}", self.text));
        for (at, branch) in self.below.iter().enumerate() {
            let (twig, stem) =
                if at + 1 == self.below.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            branch.draw(&format!("{then}{twig}"), &format!("{then}{stem}"));
        }
    }
}

fn draw(forest: &LoadBalancerTrees) {
    for it in &forest.load_balancers {
        balancer(it).draw("", "");
    }
}

fn balancer(it: &LoadBalancerBranch) -> Branch {
    let vips = it.vip.iter().chain(&it.additional_vips);
    let mut text = format!("{}  {}", named(&it.name), addresses(vips));
    if !it.floating_ips.is_empty() {
        text += &format!("  floating IP {}", addresses(it.floating_ips.iter()));
    }
    text += &format!("  {}", statuses(it.enabled, &it.provisioning, &it.operating));
    text += &format!("  {}  {}", it.provider.as_deref().unwrap_or("?"), it.id);
    if !it.tags.is_empty() {
        text += &format!("  tags: {}", it.tags.join(", "));
    }
    let listeners = it.listeners.iter().map(listener);
    Branch { text, below: listeners.chain(it.pools.iter().map(pool)).collect() }
}

fn listener(it: &ListenerBranch) -> Branch {
    let mut text = format!("{} {}  {}", it.protocol, it.port, named(&it.name));
    text += &format!("  {}", statuses(it.enabled, &it.provisioning, &it.operating));
    if !it.allowed_cidrs.is_empty() {
        text += &format!("  from {}", it.allowed_cidrs.join(", "));
    }
    Branch { text, below: it.policies.iter().map(policy).chain(it.pool.iter().map(pool)).collect() }
}

fn policy(it: &PolicyBranch) -> Branch {
    let position = it.position.map(|it| format!(" {it}")).unwrap_or_default();
    let to = it.to.as_ref().map(|it| format!(" {it}")).unwrap_or_default();
    let text = format!("policy{position}  {}  {}{to}  {}", named(&it.name), it.action, it.provisioning);
    Branch { text, below: it.pool.iter().map(pool).collect() }
}

fn pool(it: &PoolBranch) -> Branch {
    let mut text = format!("pool  {}  {} {}", named(&it.name), it.protocol, it.algorithm);
    text += &format!("  {}", statuses(true, &it.provisioning, &it.operating));
    if it.members.is_none() {
        text += &format!("  {} members", it.member_count);
    }
    let members = it.members.iter().flatten().map(member);
    Branch { text, below: it.monitor.iter().map(monitor).chain(members).collect() }
}

fn monitor(it: &MonitorLeaf) -> Branch {
    let path = it.url_path.as_ref().map(|it| format!(" {it}")).unwrap_or_default();
    Branch::leaf(format!(
        "monitor  {}{path} every {} s, timeout {} s, {} in a row  {}",
        it.kind, it.delay, it.timeout, it.max_retries, it.provisioning
    ))
}

fn member(it: &MemberLeaf) -> Branch {
    let ip = it.address.map_or("?".to_owned(), |ip| match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    });
    let port = it.port.map_or("?".to_owned(), |it| it.to_string());
    let name = if it.name.is_empty() { String::new() } else { format!("  {}", it.name) };
    Branch::leaf(format!("{ip}:{port}{name}  {}", statuses(true, &it.provisioning, &it.operating)))
}

fn named(name: &str) -> &str {
    if name.is_empty() { "(no name)" } else { name }
}

fn addresses<'a>(all: impl Iterator<Item = &'a IpAddr>) -> String {
    let all: Vec<String> = all.map(ToString::to_string).collect();
    if all.is_empty() { "no address".to_owned() } else { all.join(", ") }
}

/// What is as it should be takes one word.
fn statuses(enabled: bool, provisioning: &Provisioning, operating: &Operating) -> String {
    let mut words: Vec<&dyn Display> = Vec::new();
    if !enabled {
        words.push(&"off");
    }
    if provisioning != &Provisioning::Active {
        words.push(provisioning);
    }
    words.push(operating);
    words.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
