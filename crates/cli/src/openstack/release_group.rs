//! `seaway openstack release-group`: Seaway's security group at the ports of Nodes, given up once others let the same through.

use std::process::ExitCode;

use anyhow::{Result, bail};
use seaway_drivers::octavia::group_release::{OurGroup, our_groups, release};

use super::{
    connect,
    leavings::{ask_cluster, refuse_while_led},
};
use crate::{args::OpenStackReleaseGroup, output};

/// Of many ports and rules, so many are named.
const NAMED: usize = 5;

pub(super) async fn release_group(arguments: &OpenStackReleaseGroup) -> Result<ExitCode> {
    let asked = ask_cluster(&arguments.of).await?;
    let Some(used) = &asked.used else {
        bail!("only the cluster itself can list the node ports of its Services: omit --cluster-uid");
    };
    let cloud = connect(&arguments.which).await?;
    let groups = our_groups(&cloud, &asked.uid, used).await?;
    if groups.is_empty() {
        output::error("the cloud has no security group of Seaway for this cluster: there is nothing to do");
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<Vec<String>> = groups.iter().map(row).collect();
    output::line(output::table(&["SECURITY GROUP", "ID", "PORTS", ""], &rows).trim_end());
    let (may, stays): (Vec<&OurGroup>, Vec<&OurGroup>) = groups.iter().partition(|it| it.needed.is_empty());
    for group in &stays {
        group.needed.iter().take(NAMED).for_each(|it| output::error(&format!("{}: {it}", group.name)));
        let more = group.needed.len().saturating_sub(NAMED);
        if more > 0 {
            output::error(&format!("{}: {more} more ports or rules still need this group", group.name));
        }
    }
    if !stays.is_empty() {
        output::error(
            "Traffic that only Seaway's group allows would be cut off. The other controller creates its own groups with \
                 manage-security-groups=true; without that, allow the traffic to Nodes in \
             another way first",
        );
    }
    if !arguments.yes {
        output::error(
            "nothing was changed: add --yes to remove these groups from their ports and delete \
                       them",
        );
        return Ok(ExitCode::from(u8::from(!stays.is_empty())));
    }
    refuse_while_led(&asked, !may.is_empty(), "create the group again, or still needs it")?;
    let mut failed = !stays.is_empty();
    for group in may {
        match release(&cloud, group, used).await? {
            Ok(()) => output::line(&format!(
                "{}: removed from {} ports, and deleted",
                group.name,
                group.ports.len()
            )),
            Err(why) => {
                failed = true;
                output::error(&format!("{}: not deleted: {why}", group.name));
            }
        }
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn row(it: &OurGroup) -> Vec<String> {
    let verdict = if it.needed.is_empty() { "not needed" } else { "needed" };
    vec![it.name.clone(), it.id.to_string(), it.ports.len().to_string(), verdict.to_owned()]
}
