//! What the API server refuses by itself.

use crate::cluster::Shared;

pub(crate) fn tries(shared: &Shared) {
    let status =
        format!(r#"{{"status":{{"loadBalancer":{{"ingress":[{{"ip":"{}"}}]}}}}}}"#, shared.shop.ip());
    let refused: [&[&str]; 9] = [
        &[
            "-n",
            "evil",
            "patch",
            "service",
            "evil",
            "--subresource",
            "status",
            "--type",
            "merge",
            "-p",
            &status,
        ],
        &["-n", "shop", "delete", "service", "shop"],
        &["-n", "shop", "get", "secret", "certificate"],
        &["delete", "addresses.seaway.dev", "--all"],
        &["get", "addresses.seaway.dev"],
        &["delete", "addresspools.seaway.dev", "public"],
        &["delete", "loadbalancerhosts.seaway.dev", "--all"],
        &["delete", "nameowners.seaway.dev", "--all"],
        &["-n", "default", "delete", "leases.coordination.k8s.io", "seaway-controller"],
    ];
    for arguments in refused {
        let answer = shared.attempt(arguments, "");
        let error = answer.expect_err(&arguments.join(" "));
        assert!(error.contains("forbidden"), "{arguments:?}: {error}");
    }
}
