//! `seaway openstack adopt`: load balancers of a cluster that is gone, for the one that was rebuilt from its backup.

use std::process::ExitCode;

use anyhow::{Result, bail};
use seaway_drivers::octavia::retag::{Retag, retag, retags};

use super::{
    connect,
    leavings::{ask_cluster, parse_uid},
    progress_printer,
};
use crate::{
    args::{ClusterSelector, OpenStackAdopt},
    output,
};

pub(super) async fn adopt(arguments: &OpenStackAdopt) -> Result<ExitCode> {
    let from = parse_uid(&arguments.from_uid)?;
    let which = ClusterSelector {
        cluster_uid: None,
        kubeconfig: arguments.kubeconfig.clone(),
        context: arguments.context.clone(),
        system_namespace: arguments.system_namespace.clone(),
    };
    let asked = ask_cluster(&which).await?;
    if asked.uid == from {
        bail!("{from} is the UID of this cluster: its load balancers belong to it already");
    }
    let cloud = connect(&arguments.which).await?;
    let all = retags(&cloud, &from, &asked.uid, &asked.balanced).await?;
    let (goes, stays): (Vec<&Retag>, Vec<&Retag>) = all.iter().partition(|it| it.verdict.is_ok());
    output::error(&format!(
        "cluster {from} has {} load balancers; {} of them are for Services of this cluster ({}) and can be adopted",
        all.len(),
        goes.len(),
        asked.uid
    ));
    for it in &stays {
        let why = it.verdict.as_ref().err().map(String::as_str).unwrap_or_default();
        output::error(&format!("not adopted: load balancer {} {}: {why}", it.id, it.name));
    }
    if goes.is_empty() {
        output::error("there is nothing to adopt");
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<Vec<String>> = goes.iter().map(|it| row(it)).collect();
    output::line(
        output::table(&["LOAD BALANCER", "NAME", "FOR SERVICE", "WRITES", "CHANGED"], &rows).trim_end(),
    );
    if !arguments.yes {
        output::error(&format!(
            "nothing was written. If the cluster {from} does not exist any more, add --yes to give these \
             load balancers to this cluster. If {from} still runs, it would lose them."
        ));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(why) = &asked.unsure {
        bail!(
            "cannot find out whether a controller is running that would create other load balancers for these Services: {why}"
        );
    }
    if let Some(leader) = &asked.leader {
        bail!(
            "{leader} is the leader in this cluster, and would create other load balancers for these Services: stop \
                 seaway controller first \
             (kubectl -n seaway-system scale deployment seaway-controller --replicas=0)"
        );
    }
    let tell = progress_printer();
    let mut failed = 0;
    for (number, it) in goes.iter().enumerate() {
        tell(&format!("{} of {}: load balancer {} ({})", number + 1, goes.len(), it.id, it.name));
        if let Err(error) = retag(&cloud, it).await {
            failed += 1;
            output::error(&format!("not adopted: load balancer {}: {error}", it.id));
        }
    }
    output::error(&format!("{} of {} adopted", goes.len() - failed, goes.len()));
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn row(it: &Retag) -> Vec<String> {
    let writes = it.verdict.as_ref().map_or(0, |change| change.count());
    vec![
        it.id.to_string(),
        it.name.clone(),
        it.service.clone().unwrap_or_default(),
        writes.to_string(),
        it.changed.clone().unwrap_or_else(|| "-".to_owned()),
    ]
}
