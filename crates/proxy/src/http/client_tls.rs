//! Whether the connection that a request came by is one that its rule asks for. The handshake was chosen by the name in it (SNI),
//! and a request names its host itself: by HTTP/2 a client uses one connection for several hosts, and one that means harm names one
//! host in the handshake and another in the request.

// What is read here is somebody else's.
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

use seaway_model::{
    Listener,
    load_balancer::{Rule, TlsProfile},
};

use super::downstream::DownstreamConnection;

/// What is answered to a request on a connection that is not as its rule asks.
const MISDIRECTED: u16 = 421;
const FORBIDDEN: u16 = 403;

/// Whether members are told the client's certificate: it was verified by those whom this very rule believes. An error is the status
/// of the answer.
pub(super) fn admit(
    downstream: &DownstreamConnection,
    listener: &Listener,
    rule: &Rule,
) -> Result<bool, u16> {
    let (of_rule, of_all) = (rule.tls.as_deref(), listener.tls.as_deref());
    if downstream.is_tls_1_2 {
        let profile = of_rule.and_then(|it| it.profile).or(of_all.map(|it| it.profile));
        if profile == Some(TlsProfile::Modern) {
            return Err(MISDIRECTED);
        }
    }
    let clients = of_rule.and_then(|it| it.clients.as_ref()).or(of_all.and_then(|it| it.clients.as_ref()));
    let Some(clients) = clients else { return Ok(false) };
    let was_asked = downstream.asked_by.as_ref().is_some_and(|it| it.is(&clients.authorities));
    let is_verified = was_asked && downstream.told.certificate.is_some();
    match (is_verified || !clients.required, was_asked || downstream.listener_tls.is_none()) {
        (true, _) => Ok(is_verified),
        // Another connection would change nothing.
        (false, true) => Err(FORBIDDEN),
        (false, false) => Err(MISDIRECTED),
    }
}
