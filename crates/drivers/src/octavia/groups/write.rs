//! Performs one step on a group, its rules, or a port that is to have it.

use seaway_openstack::{
    Class, Cloud, Error, Retry,
    neutron::{Direction, NewSecurityGroupRule, Port, PortChange, SecurityGroup, SecurityGroupRule},
    resource::{Edit, Id},
};

use super::{
    steps::{Observed, Part, Refused, Step},
    theirs,
};

/// How often others may be faster in changing one port before it is left for later.
const ATTEMPTS: usize = 5;

pub(super) async fn write(cloud: &Cloud, step: &Step, there: &mut Observed) -> Result<(), Error> {
    match step {
        Step::Create(_) if there.group.is_some() => {}
        Step::Create(new) => {
            there.group = Some(cloud.all::<SecurityGroup>().create(new).await?);
        }
        Step::Open(rule, mark) => {
            // The first that is too many tells it for the rest.
            if there.refused.contains_key(&Part::Rules) {
                return Ok(());
            }
            let group = group(there, step)?;
            let new = NewSecurityGroupRule {
                protocol: Edit::To(Some(rule.protocol().to_owned())),
                port_range_min: Edit::To(Some(rule.port)),
                port_range_max: Edit::To(Some(rule.port)),
                remote_ip_prefix: rule.prefix().map_or(Edit::Leave, |it| Edit::To(Some(it))),
                description: Edit::To(Some(mark.clone())),
                ..NewSecurityGroupRule::new(group.id.clone(), Direction::Ingress, rule.ethertype())
            };
            match cloud.all::<SecurityGroupRule>().create(&new).await {
                Ok(made) => group.security_group_rules.0.push(made),
                Err(error) if error.class() == &Class::Duplicate => {
                    *group = cloud.all::<SecurityGroup>().read(&group.id).await?;
                }
                Err(error) => refused(Part::Rules, error, there)?,
            }
        }
        Step::Close(id, _) => {
            cloud.all::<SecurityGroupRule>().delete(id).await?;
            group(there, step)?.security_group_rules.0.retain(|it| it.id != *id);
        }
        Step::Attach(port, _) => {
            let group = group(there, step)?.id.clone();
            regroup(cloud, port, there, |groups| {
                if !groups.contains(&group) {
                    groups.push(group.clone());
                }
            })
            .await?;
        }
        Step::Detach(port) => {
            let group = group(there, step)?.id.clone();
            regroup(cloud, port, there, |groups| groups.retain(|it| *it != group)).await?;
        }
        Step::Release(..) | Step::RemoveTheirs(_) => theirs::write(cloud, step, there).await?,
        Step::Remove(id) => {
            cloud.all::<SecurityGroup>().delete(id).await?;
            there.doubles.retain(|it| it != id);
            if there.group.as_ref().is_some_and(|it| it.id == *id) {
                there.group = None;
            }
        }
    }
    Ok(())
}

/// Changes which groups a port has. Neutron takes them as a whole, so what is sent follows from what was read; who was
/// faster meanwhile is read again, and nobody's change is lost.
pub(super) async fn regroup(
    cloud: &Cloud,
    id: &Id<Port>,
    there: &mut Observed,
    change: impl Fn(&mut Vec<Id<SecurityGroup>>),
) -> Result<(), Error> {
    let mut known = there.ports.get(id).cloned();
    for _ in 0..ATTEMPTS {
        let Some(port) = known.take() else { break };
        let mut groups = port.security_groups.clone();
        change(&mut groups);
        if groups == port.security_groups {
            there.ports.insert(id.clone(), port);
            return Ok(());
        }
        let new = PortChange { security_groups: Edit::To(groups), ..PortChange::default() };
        let done = match port.revision_number {
            Some(revision) => cloud.all::<Port>().change_if(revision, id, &new).await,
            None => cloud.all::<Port>().change(id, &new).await,
        };
        match done {
            Ok(port) => {
                there.ports.insert(id.clone(), port);
                return Ok(());
            }
            Err(error) if error.class() == &Class::Stale => {
                known = cloud.all::<Port>().find(id).await?;
                if known.is_none() {
                    break;
                }
            }
            Err(error) if error.is_not_found() => break,
            Err(error) => return refused(Part::Port(id.clone()), error, there),
        }
        if known.is_some() {
            continue;
        }
    }
    match known {
        // It is gone, with all that it had.
        None => {
            there.ports.remove(id);
            there
                .neutron_ports
                .retain(|_, it| !matches!(it, super::neutron_ports::NodeNeutronPort::At(at) if at == id));
            Ok(())
        }
        Some(_) => {
            Err(Error::new(Class::Stale, format!("other clients of the cloud keep changing port {id}")))
        }
    }
}

/// One that nobody but an operator can mend spoils only itself.
fn refused(part: Part, error: Error, there: &mut Observed) -> Result<(), Error> {
    if error.retry() != Retry::WhenChanged {
        return Err(error);
    }
    let fix = error.fix().unwrap_or_default().to_owned();
    there.refused.insert(part, Refused { why: error.to_string(), fix });
    Ok(())
}

fn group<'o>(there: &'o mut Observed, step: &Step) -> Result<&'o mut SecurityGroup, Error> {
    there.group.as_mut().ok_or_else(|| {
        Error::new(Class::Stale, "the security group does not exist any more")
            .with_operation(step.to_string())
    })
}
