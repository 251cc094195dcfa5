//! Layer 7: policies of a listener, and the rules of a policy.

use std::collections::BTreeSet;

use super::{Listener, NewPool, Operating, Pool, Provisioning, provisioned};
use crate::{
    Service,
    resource::{Creatable, Id, IdentifyingFields, Ref, Resource, ResourceNames, noun, resource, words},
};

words! {
    /// What becomes of a request that a policy is for.
    Action {
        Reject = "REJECT",
        RedirectToUrl = "REDIRECT_TO_URL",
        RedirectToPool = "REDIRECT_TO_POOL",
        RedirectPrefix = "REDIRECT_PREFIX",
    }
}

words! {
    /// What a rule looks at.
    RuleType {
        HostName = "HOST_NAME",
        Path = "PATH",
        FileType = "FILE_TYPE",
        Header = "HEADER",
        Cookie = "COOKIE",
        SslConnHasCert = "SSL_CONN_HAS_CERT",
        SslVerifyResult = "SSL_VERIFY_RESULT",
        SslDnField = "SSL_DN_FIELD",
    }
}

words! {
    CompareType {
        Contains = "CONTAINS",
        EndsWith = "ENDS_WITH",
        EqualTo = "EQUAL_TO",
        Regex = "REGEX",
        StartsWith = "STARTS_WITH",
    }
}

resource! {
    /// What to do with requests that all its rules are for.
    L7Policy / NewL7Policy / L7PolicyChange
    needed_and_free {
        action: Action,
    }
    fixed {
        /// Within a new listener there is none to name.
        listener_id: Option<Id<Listener>>,
        project_id: Option<String>,
    }
    free {
        name: String,
        description: String,
        admin_state_up: bool,
        tags: BTreeSet<String>,
        /// From 1; a policy that is put between others moves those after it.
        position: Option<u32>,
        redirect_pool_id: Option<Id<Pool>>,
        redirect_url: Option<String>,
        redirect_prefix: Option<String>,
        redirect_http_code: Option<u16>,
    }
    given {
        redirect_pool: NewPool,
        rules: Vec<NewL7Rule>,
    }
    told {
        provisioning_status: Provisioning,
        operating_status: Operating,
        rules: Vec<Ref<L7Rule>>,
        created_at: Option<String>,
        updated_at: Option<String>,
    }
}

resource! {
    /// One condition of a policy.
    L7Rule / NewL7Rule / L7RuleChange
    needed_and_free {
        r#type: RuleType,
        compare_type: CompareType,
        value: String,
    }
    fixed {
        project_id: Option<String>,
    }
    free {
        /// The name of a header, of a cookie, of a certificate's field.
        key: Option<String>,
        invert: Option<bool>,
        admin_state_up: bool,
        tags: BTreeSet<String>,
    }
    told {
        provisioning_status: Provisioning,
        operating_status: Operating,
        created_at: Option<String>,
        updated_at: Option<String>,
    }
}

impl Resource for L7Policy {
    type Parent = ();
    const SERVICE: Service = Service::LoadBalancer;
    const PATH: &'static str = "/lbaas/l7policies";
    const NAMES: ResourceNames = noun!("L7 policy", "L7 policies" as "l7policy", "l7policies");

    provisioned!();
}

impl Creatable for L7Policy {
    type New = NewL7Policy;
    const KNOWN_BY: IdentifyingFields =
        IdentifyingFields::Marks(&["name", "description", "tags", "listener_id", "action"]);
}

impl Resource for L7Rule {
    type Parent = Id<L7Policy>;
    const SERVICE: Service = Service::LoadBalancer;
    const PATH: &'static str = "/lbaas/l7policies/{}/rules";
    const NAMES: ResourceNames = noun!("L7 rule", "L7 rules" as "rule", "rules");

    provisioned!();
}

impl Creatable for L7Rule {
    type New = NewL7Rule;
    const KNOWN_BY: IdentifyingFields =
        IdentifyingFields::Nature(&["type", "compare_type", "value", "key", "invert", "tags"]);
}
