use serde_json::json;

use super::*;
use crate::{
    call::Service,
    error::{Responsibility, Retry},
};

fn refused(service: Service, status: u16, body: &Value) -> Error {
    let call = Call::get(service, "try it", "/");
    read(&call, &ErrorReply { status, body, request_id: Some("req-1"), retry_after: None, page: None })
}

fn neutron(kind: &str, message: &str) -> Value {
    json!({"NeutronError": {"type": kind, "message": message, "detail": ""}})
}

fn octavia(text: &str) -> Value {
    json!({"faultcode": "Client", "faultstring": text, "debuginfo": null})
}

fn quota(what: &str) -> Class {
    Class::Quota { what: what.into() }
}

#[test]
fn each_services_no_is_of_its_class() {
    use Service::{Compute, Identity, KeyManager, LoadBalancer, Network};
    let nova = |key: &str, message: &str| json!({key: {"code": 400, "message": message}});
    for (service, status, body, class) in [
        (Network, 404, neutron("PortNotFound", "Port p could not be found."), Class::NotFound),
        (
            Network,
            409,
            neutron("OverQuota", "Quota exceeded for resources: ['port', 'floatingip']."),
            quota("port, floatingip"),
        ),
        (
            Network,
            409,
            neutron("IpAddressGenerationFailure", "No more IP addresses available on network n."),
            Class::NoAddressLeft,
        ),
        (
            Network,
            409,
            neutron("IpAddressAlreadyAllocated", "IP address 10.0.0.5 already allocated in subnet s"),
            Class::AddressTaken,
        ),
        (
            Network,
            409,
            neutron("FloatingIPPortAlreadyAssociated", "Cannot associate floating IP"),
            Class::AddressTaken,
        ),
        (
            Network,
            409,
            neutron(
                "SubnetInUse",
                "Unable to complete operation on subnet s: One or more ports have an IP allocation from this subnet.",
            ),
            Class::InUse,
        ),
        (
            Network,
            409,
            neutron("RouterInterfaceInUseByFloatingIP", "Router interface cannot be deleted"),
            Class::InUse,
        ),
        (
            Network,
            409,
            neutron("SecurityGroupRuleExists", "Security group rule already exists. Rule id is r."),
            Class::Duplicate,
        ),
        (
            Network,
            412,
            neutron("RevisionNumberConstraintFailed", "Constrained to 3, but current revision is 4"),
            Class::Stale,
        ),
        (Network, 500, neutron("VipExists", "Another Vip already exists for pool p"), Class::Duplicate),
        (
            Network,
            500,
            neutron("HTTPInternalServerError", "Request Failed: internal server error"),
            Class::Broken,
        ),
        (Network, 400, json!({"NeutronError": "Unrecognized attribute(s) 'x'"}), Class::Invalid),
        (
            Network,
            401,
            json!({"error": {"code": 401, "message": "The request you have made requires authentication."}}),
            Class::Unauthorized,
        ),
        (LoadBalancer, 409, octavia("Load Balancer l is immutable and cannot be updated."), Class::Immutable),
        (
            LoadBalancer,
            409,
            octavia("Invalid state PENDING_UPDATE of loadbalancer resource l"),
            Class::Immutable,
        ),
        (
            LoadBalancer,
            409,
            octavia("Another Listener on this Load Balancer is already using protocol_port 80"),
            Class::Duplicate,
        ),
        (LoadBalancer, 409, octavia("This pool already has a health monitor"), Class::Duplicate),
        (LoadBalancer, 409, octavia("Pool p is in use by L7 policy q"), Class::InUse),
        (LoadBalancer, 409, octavia("The VIP IP address is already in use: 10.0.0.5"), Class::AddressTaken),
        (
            LoadBalancer,
            409,
            octavia("IP address 10.0.0.5 already allocated in subnet s"),
            Class::AddressTaken,
        ),
        (
            LoadBalancer,
            400,
            octavia("Validation failure: Cannot delete Load Balancer l - it has children"),
            Class::InUse,
        ),
        (
            LoadBalancer,
            403,
            octavia("Quota has been met for resources: Load Balancer"),
            quota("load balancer"),
        ),
        (LoadBalancer, 403, octavia("Policy does not allow this request to be performed."), Class::Forbidden),
        (
            LoadBalancer,
            501,
            octavia("Provider 'ovn' does not support a requested option: OVN provider does not support HTTP"),
            Class::Unsupported,
        ),
        (
            LoadBalancer,
            503,
            octavia("Project busy.  Unable to lock the project.  Please try again."),
            Class::Busy,
        ),
        (Compute, 400, nova("badRequest", "Invalid input"), Class::Invalid),
        (Compute, 404, nova("itemNotFound", "Instance i could not be found."), Class::NotFound),
        (
            Compute,
            403,
            nova(
                "forbidden",
                "Quota exceeded for instances: Requested 1, but already used 10 of 10 instances",
            ),
            quota("instances"),
        ),
        (Compute, 409, nova("conflictingRequest", "Port p is still in use."), Class::InUse),
        (Compute, 413, nova("overLimit", "This request was rate-limited."), Class::Busy),
        (Compute, 406, nova("computeFault", "Version 9.9 is not supported by the API."), Class::Unsupported),
        (
            KeyManager,
            404,
            json!({"code": 404, "title": "Not Found", "description": "Secret not found."}),
            Class::NotFound,
        ),
        (
            KeyManager,
            403,
            json!({"code": 403, "title": "Forbidden", "description": "Quota reached for project p. Only 5 secrets are allowed"}),
            quota("quota"),
        ),
        (
            Identity,
            403,
            json!({"error": {"code": 403, "message": "You are not authorized", "title": "Forbidden"}}),
            Class::Forbidden,
        ),
        (Network, 429, json!(null), Class::Busy),
        (Network, 502, json!(null), Class::Broken),
        (Network, 418, json!({"message": "tea"}), Class::Invalid),
    ] {
        let error = refused(service, status, &body);
        assert_eq!(error.class(), &class, "{error}");
    }
}

#[test]
fn a_line_has_all_that_a_human_and_an_operator_need() {
    let error =
        refused(Service::LoadBalancer, 403, &octavia("Quota has been met for resources: Load Balancer"));
    assert_eq!(
        error.to_string(),
        "try it: Quota has been met for resources: Load Balancer (Octavia 403); ask for more load balancer (`openstack \
         loadbalancer quota set`), or remove some (req-1)"
    );
    assert_eq!((error.fault(), error.retry()), (Responsibility::User, Retry::WhenChanged));
    assert_eq!((error.status(), error.request_id()), (Some(403), Some("req-1")));
}

/// Of what a caller cannot mend by asking for something else.
#[test]
fn whatever_is_not_a_callers_own_mistake_names_what_to_do() {
    for (status, words) in [
        (401, "`keystone_authtoken` of Nova"),
        (403, "lacks a role"),
        (406, "`seaway openstack check`"),
        (429, "limits the rate"),
        (500, "in the log of"),
        (501, "`seaway openstack check`"),
        (503, "is overloaded"),
    ] {
        let error = refused(Service::Compute, status, &json!({"fault": {"code": status, "message": "no"}}));
        assert!(error.fix().is_some_and(|fix| fix.contains(words)), "{status}: {error}");
    }
}

#[test]
fn strange_bodies_are_told_by_their_status_and_long_ones_are_cut() {
    for strange in [
        json!(null),
        json!([]),
        json!("text"),
        json!({}),
        json!({"NeutronError": null}),
        json!({"NeutronError": [1]}),
        json!({"faultstring": 7}),
        json!({"errors": []}),
        json!({"error": {"message": {"deep": 1}}}),
    ] {
        let error = refused(Service::Network, 409, &strange);
        assert_eq!(error.message(), "Neutron answered 409", "{strange}");
    }
    let long = refused(Service::Network, 400, &neutron("Bad", &"é\n".repeat(9000)));
    assert!(long.message().chars().count() < 600 && !long.message().contains('\n'));
}
