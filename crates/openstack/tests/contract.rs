//! What the real cloud said, and whether the fake says the same.
//!
//! The scripts in `contract/scripts` are conversations. What is sent (`>`) was written by hand; what came back (`<`) was
//! recorded from the real cloud of `rig/openstack`, and is never written by hand:
//!
//! ```text
//! > POST load-balancer /lbaas/listeners
//! > {"listener": {"loadbalancer_id": "{lb}", "protocol": "TCP", "protocol_port": 80}}
//! > keep http /listener/id              its id is {http} from here on
//! < 409 Duplicate                       the status, and the class that `Error` gives to this reply
//! < {"debuginfo": null, …}              the body, up to ids, times, addresses that the cloud chose, and the like
//! ```
//!
//! This program plays them to the fake of `seaway_testkit`; `openstack_contract.rs` plays them to the real cloud, and writes
//! them anew when it is asked to. The few that begin with `# Only the fake:` are about what no cloud of today has.
//!
//! Besides requests there are steps for what is not one: `prelude ovn` plays another script that is of no interest itself;
//! `ready {lb}` waits until nothing at a load balancer is pending; `operator settles` ends what a `noop_driver` would leave
//! pending for ever, as its operator can; `operator breaks pool {pool}` puts an object into ERROR. Before or after a request's line,
//! `as admin` (or `other`, `nobody`, a token) says who asks, `header NAME: VALUE` adds one, `only PLACE…` and `only status` tell
//! less of the reply, and `in order` keeps a list in its order where that is promised.
//!
//! States that a client watches (`until /listener/provisioning_status ACTIVE`, `until gone`) are told as `PENDING_CREATE? ACTIVE`:
//! whoever looks seldom may miss all but the last, but nobody sees others, nor in another order. The fake, which does nothing by
//! chance, goes through each of them. Lists whose order is not
//! promised are told in an order of their own.
//!
//! No script is played again because it differed. Some states come late with the real cloud (`compare::LATE` says which, and why):
//! a `GET` that differs in nothing else is repeated until it is what was recorded. The answer to a change may tell its end already
//! (`ENDED`), and what is deleted may pass by as ACTIVE (`PASSING`). All of these are printed.

#![allow(dead_code, reason = "the program that plays to the real cloud also writes scripts, and cleans up")]

#[path = "contract/compare.rs"]
mod compare;
#[path = "contract/play.rs"]
mod play;
#[path = "contract/script.rs"]
mod script;
#[path = "contract/scripts.rs"]
mod scripts;
#[path = "contract/stage.rs"]
mod stage;
#[path = "contract/told.rs"]
mod told;

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::Result;
use compare::PollFrequency;
use script::Script;
use seaway_testkit::cloud::{Cloud, IdentityVersions};
use stage::{Operator, Stage};

#[tokio::test]
async fn the_fake_cloud_answers_as_the_real_one() {
    let only = std::env::var("SEAWAY_CONTRACT").ok();
    let mut scripts = scripts::all();
    scripts.retain(|path| only.as_deref().is_none_or(|it| path.file_stem().is_some_and(|stem| stem == it)));
    assert!(!scripts.is_empty(), "no script is called {}", only.unwrap_or_default());
    let mut faults = String::new();
    for path in scripts {
        faults += &play(&path).await.unwrap_or_else(|it| format!("\n{}: {it:#}\n", path.display()));
    }
    assert!(faults.is_empty(), "the fake (+) answers otherwise than the real cloud (-):\n{faults}");
}

/// Each script has a cloud of its own.
async fn play(path: &Path) -> Result<String> {
    let recorded = Script::read(path)?;
    let cloud = Arc::new(Cloud::start());
    if recorded.only_fake {
        cloud.speak(IdentityVersions::Both);
    }
    let operator = Box::new(Owner(Arc::clone(&cloud)));
    let mut stage =
        Stage::open(&cloud.auth_url(), "the player of the contract", operator, Duration::ZERO).await?;
    let played = play::play(Script::read(path)?, &mut stage).await?;
    Ok(compare::differences(&recorded, &played, PollFrequency::Always))
}

struct Owner(Arc<Cloud>);

impl Operator for Owner {
    fn settle(&self, project: &str) -> Result<()> {
        self.0.settle(project);
        Ok(())
    }

    fn break_down(&self, _: &str, id: &str) -> Result<()> {
        self.0.set_provisioning_status(id, "ERROR");
        Ok(())
    }
}
