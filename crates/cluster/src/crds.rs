//! Our objects as the API server has to know them, and what it has to allow us.

/// CustomResourceDefinitions of AddressPool, what says how its addresses are announced, Address, LoadBalancerHost, LoadBalancerHostSlice and NameOwner.
pub fn definitions() -> &'static str {
    include_str!("../../../deploy/kubernetes/base/crds.yaml")
}

/// ClusterRoles: `seaway-reader` for all, `seaway-controller` and `seaway-node` beside it, `seaway-cloud` for controllers of a
/// cloud; in their namespace `seaway-leader` and `seaway-records` for controllers, `seaway-leases` for hosts;
/// `seaway-certificates`, `seaway-copies` and `seaway-copies-reader` where Secrets are used; `seaway-viewer` and `seaway-counters` for people;
/// `seaway-reviewer` where metrics are shown by TLS, `seaway-metrics-reader` for who reads them.
pub fn roles() -> &'static str {
    include_str!("../../../deploy/kubernetes/base/roles.yaml")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use seaway_manifests::tree::{self, Node, Value};
    use seaway_model::Kind;

    use super::*;
    use crate::{
        address, host,
        kinds::{Requirement, WATCHED, WatchedKind},
        name_owner, pools,
        watch::host_slices,
    };

    fn documents(text: &str) -> Vec<Node> {
        text.split("\n---\n").map(|it| tree::parse(it).expect("is YAML").remove(0)).collect()
    }

    fn at<'n>(node: &'n Node, path: &[&str]) -> Option<&'n Node> {
        path.iter().try_fold(node, |node, key| match (&node.value, key.parse::<usize>()) {
            (Value::List(items), Ok(index)) => items.get(index),
            _ => node.child(key),
        })
    }

    /// Of a definition's schema: `spec.owners.uid`, without the steps into lists.
    fn defined(schema: &Node, path: &str, all: &mut BTreeSet<String>) {
        if let Some(items) = schema.child("items") {
            return defined(items, path, all);
        }
        let Some(Node { value: Value::Map(entries), .. }) = schema.child("properties") else {
            all.insert(path.to_owned());
            return;
        };
        for entry in entries {
            defined(&entry.value, &format!("{path}.{}", entry.key), all);
        }
    }

    fn written(json: &serde_json::Value, path: &str, all: &mut BTreeSet<String>) {
        match json {
            serde_json::Value::Object(entries) => {
                entries.iter().for_each(|(key, value)| written(value, &format!("{path}.{key}"), all));
            }
            serde_json::Value::Array(items) => items.iter().for_each(|it| written(it, path, all)),
            _ => {
                all.insert(path.to_owned());
            }
        }
    }

    fn fields_of(kind: &str, part: &str) -> BTreeSet<String> {
        let documents = documents(definitions());
        let named = |it: &&Node| {
            at(it, &["spec", "names", "kind"]).map(|it| &it.value) == Some(&Value::Text(kind.into()))
        };
        let definition = documents.iter().find(named).expect("it is defined");
        let schema =
            at(definition, &["spec", "versions", "0", "schema", "openAPIV3Schema"]).expect("a schema");
        let mut all = BTreeSet::new();
        defined(at(schema, &["properties", part]).expect("it has such a part"), part, &mut all);
        all
    }

    fn text_of<'n>(node: &'n Node, key: &str) -> &'n str {
        match node.child(key).map(|it| &it.value) {
            Some(Value::Text(text)) => text,
            _ => "",
        }
    }

    /// A row of each field that says what it is for, and those within it.
    fn rows(schema: &Node, path: &str, page: &mut String) {
        let list = text_of(schema, "type") == "array";
        let inner = schema.child("items").filter(|_| list).unwrap_or(schema);
        let description = [text_of(schema, "description"), text_of(inner, "description")]
            .into_iter()
            .find(|it| !it.is_empty());
        let path = if list { format!("{path}[]") } else { path.to_owned() };
        if let Some(description) = description.filter(|_| path.contains('.')) {
            *page +=
                &format!("| `{path}` | {} | {} |\n", text_of(inner, "type"), description.replace('|', "\\|"));
        }
        if let Some(Node { value: Value::Map(entries), .. }) = inner.child("properties") {
            entries.iter().for_each(|it| rows(&it.value, &format!("{path}.{}", it.key), page));
        }
    }

    /// So that people read of the fields what `kubectl explain` says.
    #[test]
    fn the_page_of_our_objects_is_that_of_the_definitions() {
        let mut page = String::from(
            "# Objects\n\n<!-- Written by a test from deploy/kubernetes/base/crds.yaml; see CONTRIBUTING.md -->\n\n\
             The custom resources of Seaway: group `seaway.dev`, version `v1alpha1`, all without a namespace. `kubectl explain\n\
             addresspool.spec` says the same, and `seaway crds` prints the definitions. [manifests.md](manifests.md#addresspool) has an\n\
             AddressPool and the defaults of its fields.\n",
        );
        for definition in documents(definitions()) {
            let name = |key: &str| text_of(at(&definition, &["spec", "names"]).expect("names"), key);
            let schema =
                at(&definition, &["spec", "versions", "0", "schema", "openAPIV3Schema"]).expect("a schema");
            page += &format!("\n## {}\n\n{}\n\n", name("kind"), text_of(schema, "description"));
            page +=
                &format!("`kubectl get {}`\n\n| field | type | meaning |\n|---|---|---|\n", name("plural"));
            for part in ["spec", "status"] {
                let part_of = at(schema, &["properties", part]);
                part_of.into_iter().for_each(|it| rows(it, part, &mut page));
            }
        }
        seaway_testkit::golden::same(
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/objects.md"),
            &page,
        );
    }

    #[test]
    fn definitions_have_the_fields_that_are_written_and_no_others() {
        for (kind, part, full) in [
            ("Address", "spec", address::write(&address::tests::address("192.0.2.1"), None)["spec"].clone()),
            ("LoadBalancerHost", "status", host::tests::full()),
            ("LoadBalancerHostSlice", "spec", host_slices::tests::full()["spec"].clone()),
            ("AddressPool", "status", pools::tests::full()),
            ("NameOwner", "spec", name_owner::tests::full()["spec"].clone()),
        ] {
            let mut all = BTreeSet::new();
            written(&full, part, &mut all);
            // Written by whoever applies, if he likes.
            let mut fields = fields_of(kind, part);
            fields.remove("status.conditions.observedGeneration");
            assert_eq!(fields, all, "{kind}");
        }
        let of_people = ["spec.addresses", "spec.drain"].map(str::to_owned);
        assert_eq!(fields_of("LoadBalancerHost", "spec"), of_people.into());
    }

    #[test]
    fn a_pool_that_has_every_field_of_its_definition_is_read() {
        let corpus = include_str!("../tests/corpus/good.yaml");
        let mut all = BTreeSet::new();
        for pool in documents(corpus) {
            if at(&pool, &["kind"]).map(|it| &it.value) != Some(&Value::Text("AddressPool".into())) {
                continue;
            }
            let spec = pool.child("spec").expect("has a spec");
            let Value::Map(entries) = &spec.value else { panic!("is a map") };
            all.extend(entries.iter().map(|it| it.key.clone()));
        }
        let fields: BTreeSet<String> = fields_of("AddressPool", "spec")
            .iter()
            .filter_map(|it| it.split('.').nth(1).map(str::to_owned))
            .collect();
        assert_eq!(fields, all);
    }

    /// What the API server drops because its definition does not have it would be missing without a word.
    #[test]
    fn objects_that_announce_have_the_fields_that_are_read() {
        for kind in Kind::ANNOUNCING.into_iter().filter(|it| !it.is_of_metallb()) {
            let known = seaway_manifests::object::known_fields(kind);
            let known: BTreeSet<String> = known.into_iter().filter(|it| it.starts_with("spec.")).collect();
            let is_leaf = |it: &&String| !known.iter().any(|other| other.starts_with(&format!("{it}.")));
            let leaves: BTreeSet<String> = known.iter().filter(is_leaf).cloned().collect();
            assert_eq!(fields_of(kind.as_str(), "spec"), leaves, "{kind}");
        }
    }

    /// (role, group, resource, verb)
    fn allowed() -> BTreeSet<[String; 4]> {
        let text = |node: &Node| match &node.value {
            Value::Text(text) => text.clone(),
            other => panic!("{other:?}"),
        };
        let texts = |rule: &Node, key: &str| match rule.child(key).map(|it| &it.value) {
            Some(Value::List(items)) => items.iter().map(text).collect::<Vec<_>>(),
            _ => Vec::new(),
        };
        let mut all = BTreeSet::new();
        for role in documents(roles()) {
            let name = text(at(&role, &["metadata", "name"]).expect("has a name"));
            let Some(Value::List(rules)) = role.child("rules").map(|it| &it.value) else {
                panic!("no rules")
            };
            for rule in rules {
                for group in texts(rule, "apiGroups") {
                    for resource in texts(rule, "resources") {
                        for verb in texts(rule, "verbs") {
                            all.insert([name.clone(), group.clone(), resource.clone(), verb]);
                        }
                    }
                }
            }
        }
        all
    }

    #[test]
    fn roles_allow_what_is_used_and_nothing_else() {
        let mut used: BTreeSet<[String; 4]> = BTreeSet::new();
        let mut uses = |role: &str, group: &str, resource: &str, verbs: &[&str]| {
            used.extend(verbs.iter().map(|verb| [role, group, resource, verb].map(str::to_owned)));
        };
        for it in &WATCHED {
            let role = match (it.kind, it.need) {
                (Kind::Secret, _) => "seaway-certificates",
                (_, Requirement::ReportOnly) => "seaway-controller",
                _ => "seaway-reader",
            };
            uses(role, it.group, it.plural, &["list", "watch"]);
            if it.kind != Kind::Secret && it.need != Requirement::ReportOnly {
                uses("seaway-viewer", it.group, it.plural, &["list"]);
            }
            assert!(it.need != Requirement::Required || role == "seaway-reader");
        }
        for role in ["seaway-reader", "seaway-controller"] {
            uses(role, "apiextensions.k8s.io", "customresourcedefinitions", &["list", "watch"]);
        }
        uses("seaway-certificates", "", "secrets", &["get"]);
        // Of the namespace of copies alone.
        uses("seaway-copies", "", "secrets", &["create", "delete", "list", "update"]);
        uses("seaway-copies-reader", "", "secrets", &["get", "list", "watch"]);
        uses("seaway-reader", "seaway.dev", "loadbalancerhostslices", &["list", "watch"]);
        uses("seaway-controller", "seaway.dev", "loadbalancerhostslices", &["create", "update"]);
        for written in ["addresses", "nameowners"] {
            uses("seaway-controller", "seaway.dev", written, &["create", "delete", "get", "update"]);
        }
        uses("seaway-controller", "seaway.dev", "addresspools/status", &["patch"]);
        uses("seaway-controller", "", "services/status", &["patch"]);
        uses("seaway-cloud", "", "services", &["get", "patch"]);
        uses("seaway-cloud", "", "namespaces", &["get"]);
        // Whether the cloud provider's controller runs: its Lease, by its name, and its events.
        uses("seaway-cloud", "coordination.k8s.io", "leases", &["get"]);
        uses("seaway-cloud", "", "events", &["list"]);
        uses("seaway-controller", "events.k8s.io", "events", &["create"]);
        uses("seaway-node", "seaway.dev", "loadbalancerhosts", &["create"]);
        uses("seaway-node", "seaway.dev", "loadbalancerhosts/status", &["patch"]);
        // Of no role that is bound in the whole cluster, where Nodes and others have theirs.
        uses("seaway-leader", "coordination.k8s.io", "leases", &["create", "get", "update"]);
        uses("seaway-leases", "coordination.k8s.io", "leases", &["create", "get", "update"]);
        uses("seaway-lease-reader", "coordination.k8s.io", "leases", &["list"]);
        uses("seaway-lease-reader", "", "configmaps", &["get"]);
        uses("seaway-records", "", "configmaps", &["create", "get", "update"]);
        uses("seaway-counters", "", "pods/proxy", &["get"]);
        uses("seaway-reviewer", "authentication.k8s.io", "tokenreviews", &["create"]);
        uses("seaway-reviewer", "authorization.k8s.io", "subjectaccessreviews", &["create"]);
        assert_eq!(allowed(), used);
    }

    #[test]
    fn who_leads_writes_one_lease_and_policies_know_the_names_of_all_that_is_written() {
        let rule = roles().lines().find(|it| it.contains("resourceNames: [seaway-controller]"));
        assert!(rule.is_some_and(|it| it.contains("[leases]")) && crate::LEADER == "seaway-controller");
        let policies = include_str!("../../../deploy/kubernetes/components/policies/policies.yaml");
        assert_eq!(documents(policies).len(), 8);
        let prefix = format!("'{}' + variables.host", crate::watch::host_leases::HOST_LEASE_PREFIX);
        let finalizers = [seaway_manifests::FINALIZER, seaway_manifests::OWN_FINALIZER];
        for named in finalizers.into_iter().chain([prefix.as_str(), crate::status::ADDRESS]) {
            assert!(policies.contains(named), "{named}");
        }
    }

    /// So that a kind that is absent is asked for as soon as it is defined, and of no other definition anything is read.
    #[test]
    fn of_definitions_those_that_are_watched_for_are_read() {
        let rules = roles().lines().filter(|it| it.contains("customresourcedefinitions"));
        let names = |rule: &'static str| rule.split("resourceNames: [").nth(1)?.split(']').next();
        let named: BTreeSet<&str> = rules.flat_map(|rule| names(rule).expect("names").split(", ")).collect();
        let foreign = ["metallb.io", "gateway.networking.k8s.io", "seaway.dev"];
        let watched = WATCHED.iter().filter(|it| foreign.contains(&it.group)).map(WatchedKind::qualified);
        assert_eq!(named, watched.collect::<Vec<_>>().iter().map(String::as_str).collect());
    }

    /// To create cannot be limited to a name.
    #[test]
    fn of_config_maps_only_our_own_is_read_or_changed() {
        let named = format!("resourceNames: [{}]", crate::RECORDS);
        let rules: Vec<&str> = roles().lines().filter(|it| it.contains("[configmaps]")).collect();
        assert_eq!(rules.len(), 3, "{rules:?}");
        for rule in rules {
            assert!(rule.contains(&named) || rule.ends_with("verbs: [create]}"), "{rule}");
        }
    }
}
