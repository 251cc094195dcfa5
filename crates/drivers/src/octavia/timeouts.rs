//! Timeouts of listeners that were asked for once and are not any more: Octavia's own take their place. Pure.
//!
//! Octavia keeps what it was given, and does not tell whether it was given. An operator may have set other defaults: so only
//! those are reset that somebody gave, which a tag tells, or the other controller, which always gives all of them.

use seaway_openstack::{
    octavia::{Listener, ListenerChange, NewListener},
    resource::Edit,
};

use super::names::KEY;

/// A listener that was given timeouts has it.
const GIVEN: &str = "seaway.dev/timeouts";
/// As Octavia and the other controller have them, in milliseconds.
const CLIENT_DATA: u64 = 50_000;
const MEMBER_CONNECT: u64 = 5_000;
const MEMBER_DATA: u64 = 50_000;
const TCP_INSPECT: u64 = 0;

/// Writes down that it is given some.
pub(super) fn mark(new: &mut NewListener) {
    let is_given = [
        &new.timeout_client_data,
        &new.timeout_member_connect,
        &new.timeout_member_data,
        &new.timeout_tcp_inspect,
    ]
    .into_iter()
    .any(|it| !it.is_left());
    if let (true, Edit::To(tags)) = (is_given, &mut new.tags) {
        tags.insert(GIVEN.to_owned());
    }
}

/// What is not asked for any more, as it was before somebody asked for it.
pub(super) fn reset(change: &mut ListenerChange, wish: &NewListener, there: &Listener) {
    let is_ours = there.tags.iter().any(|it| it.starts_with(KEY));
    let is_of_another = !is_ours && there.tags.iter().any(|it| it.starts_with("kube_service_"));
    let was_given = there.tags.contains(GIVEN);
    if was_given || is_of_another {
        let usual = |wish: &Edit<Option<u64>>, is: Option<u64>, usual: u64| {
            let is_another = wish.is_left() && is.is_some_and(|it| it != usual);
            is_another.then_some(Edit::To(Some(usual)))
        };
        if let Some(it) = usual(&wish.timeout_client_data, there.timeout_client_data, CLIENT_DATA) {
            change.timeout_client_data = it;
        }
        if let Some(it) = usual(&wish.timeout_member_connect, there.timeout_member_connect, MEMBER_CONNECT) {
            change.timeout_member_connect = it;
        }
        if let Some(it) = usual(&wish.timeout_member_data, there.timeout_member_data, MEMBER_DATA) {
            change.timeout_member_data = it;
        }
        if let Some(it) = usual(&wish.timeout_tcp_inspect, there.timeout_tcp_inspect, TCP_INSPECT) {
            change.timeout_tcp_inspect = it;
        }
    }
    let is_given = matches!(&wish.tags, Edit::To(tags) if tags.contains(GIVEN));
    if is_ours && is_given != was_given {
        let mut tags = there.tags.clone();
        match is_given {
            true => tags.insert(GIVEN.to_owned()),
            false => tags.remove(GIVEN),
        };
        change.tags = Edit::To(tags);
    }
}
