//! `[LoadBalancer]`, `[LoadBalancerClass "…"]`, `[Networking]` and `[Route]` of a `cloud.conf`, one table each: what a key sets, and
//! what it may say. A value that the cloud provider's controller would refuse to start with refuses the file; any other
//! that is not understood leaves its default. Both are told with their line.

use std::time::Duration;

use seaway_model::{
    Name,
    config::{CloudDefaults, CloudNetworks, FloatingSubnet},
    load_balancer::Balance,
};
use seaway_openstack::credentials::{CloudConf, ini::Entry};
use seaway_plan::{
    quantity::{
        duration, ids, list, network, number, pending_limit, probe_codes, probe_kind, probe_path, selector,
        tags,
    },
    spelling::nearest,
};

type Set<T> = fn(&mut T, &str) -> Result<(), String>;
type Row<T> = (&'static str, Set<T>);

const BALANCER: &[Row<CloudDefaults>] = &[
    ("enabled", |it, text| truth(text).map(|yes| it.enabled = yes)),
    ("lb-version", |_, text| match text {
        "v2" => Ok(()),
        _ => Err(format!("{text:?} is not a version that Seaway supports: only v2 is")),
    }),
    ("lb-provider", |it, text| some(text).map(|name| it.provider = name)),
    ("lb-method", |it, text| balance(text).map(|balance| it.balance = balance)),
    ("create-monitor", |it, text| truth(text).map(|yes| it.monitor = yes)),
    ("monitor-delay", |it, text| go_duration(text).map(|time| it.check.interval = time)),
    ("monitor-timeout", |it, text| go_duration(text).map(|time| it.check.timeout = time)),
    ("monitor-max-retries", |it, text| number(text, 1..=10).map(|n| it.check.rise = n)),
    ("monitor-max-retries-down", |it, text| number(text, 1..=10).map(|n| it.check.fall = n)),
    ("manage-security-groups", |it, text| truth(text).map(|yes| it.groups = yes)),
    ("internal-lb", |it, text| truth(text).map(|yes| it.internal = yes)),
    ("node-selector", |it, text| selector(text).map(|nodes| it.nodes = nodes)),
    ("cascade-delete", |it, text| truth(text).map(|yes| it.cascade = yes)),
    ("flavor-id", |it, text| some(text).map(|id| it.flavor = Some(id))),
    ("availability-zone", |it, text| some(text).map(|zone| it.zone = Some(zone))),
    ("enable-ingress-hostname", |it, text| {
        let suffix = it.hostname.clone().unwrap_or_else(|| "nip.io".into());
        truth(text).map(|yes| it.hostname = yes.then_some(suffix))
    }),
    ("ingress-hostname-suffix", |it, text| {
        let suffix = some(text)?;
        it.hostname = it.hostname.take().map(|_| suffix);
        Ok(())
    }),
    ("default-tls-container-ref", |it, text| some(text).map(|it_is| it.tls_container = Some(it_is))),
    ("container-store", |it, text| match text {
        "barbican" | "external" => {
            it.barbican = text == "barbican";
            Ok(())
        }
        _ => Err(format!("{text:?} is not a store; the stores are barbican and external")),
    }),
    ("max-shared-lb", |it, text| number(text, 1..=100).map(|n| it.most_shared = n)),
    ("provider-requires-serial-api-calls", |it, text| truth(text).map(|yes| it.serial = yes)),
    // From here on those that the cloud provider's controller does not have.
    ("load-balancer-tags", |it, text| tags(text).map(|tags| it.tags.balancer = tags)),
    ("listener-tags", |it, text| tags(text).map(|tags| it.tags.listener = tags)),
    ("pool-tags", |it, text| tags(text).map(|tags| it.tags.pool = tags)),
    ("floating-ip-tags", |it, text| tags(text).map(|tags| it.tags.floating = tags)),
    ("timeout-client-data", |it, text| {
        number(text, MILLISECONDS).map(|time| it.timeouts.client_data = Some(time))
    }),
    ("timeout-member-connect", |it, text| {
        number(text, MILLISECONDS).map(|time| it.timeouts.member_connect = Some(time))
    }),
    ("timeout-member-data", |it, text| {
        number(text, MILLISECONDS).map(|time| it.timeouts.member_data = Some(time))
    }),
    ("timeout-tcp-inspect", |it, text| {
        number(text, MILLISECONDS).map(|time| it.timeouts.tcp_inspect = Some(time))
    }),
    ("connection-limit", |it, text| {
        let limit = if text == "-1" { Ok(0) } else { number(text, 1..=u64::from(u32::MAX)) };
        limit.map(|limit: u32| it.connections = Some(limit).filter(|it| *it > 0))
    }),
    ("monitor-type", |it, text| probe_kind(text).map(|kind| it.probe.kind = Some(kind))),
    ("monitor-path", |it, text| probe_path(text).map(|path| it.probe.path = Some(path))),
    ("monitor-codes", |it, text| probe_codes(text).map(|codes| it.probe.codes = Some(codes))),
    ("pending-limit", |it, text| pending_limit(text).map(|time| it.pending.limit = Some(time))),
    ("rebuild-on-pending", |it, text| truth(text).map(|yes| it.pending.rebuild = yes)),
];

const PLACE: &[Row<CloudNetworks>] = &[
    ("network-id", |it, text| some(text).map(|id| it.network = Some(id))),
    ("subnet-id", |it, text| some(text).map(|id| it.subnet = Some(id))),
    ("member-subnet-id", |it, text| some(text).map(|id| it.member_subnet = Some(id))),
    ("floating-network-id", |it, text| some(text).map(|id| it.floating_network = Some(id))),
    // In this order, whatever theirs in the file: a name is beside tags, an id beats both.
    ("floating-subnet-tags", |it, text| {
        some(text).map(|it_is| it.floating_subnet = Some(FloatingSubnet::Tagged(it_is)))
    }),
    ("floating-subnet", |it, text| {
        let name = some(text)?;
        it.floating_subnet = Some(FloatingSubnet::named(it.floating_subnet.take(), name));
        Ok(())
    }),
    ("floating-subnet-id", |it, text| {
        some(text).map(|it_is| it.floating_subnet = Some(FloatingSubnet::Id(it_is)))
    }),
    // In [LoadBalancer] it is for all, whatever a Service says; in a class, where its Services say nothing.
    ("internal-lb", |it, text| truth(text).map(|yes| it.internal = Some(yes))),
    ("vip-security-groups", |it, text| ids(text).map(|ids| it.vip_groups = Some(ids))),
    ("vip-qos-policy", |it, text| some(text).map(|id| it.vip_qos = Some(id))),
];

const MILLISECONDS: std::ops::RangeInclusive<u64> = 0..=u32::MAX as u64;

const NETWORKING: &[Row<CloudDefaults>] = &[
    ("ipv6-support-disabled", |it, text| truth(text).map(|yes| it.networking.no_ipv6 = yes)),
    ("public-network-name", |it, text| some(text).map(|name| it.networking.public.push(name))),
    ("internal-network-name", |it, text| some(text).map(|name| it.networking.internal.push(name))),
    ("address-sort-order", |it, text| list(text, network).map(|order| it.networking.order = order)),
];

const ROUTE: &[Row<CloudDefaults>] = &[("router-id", |it, text| some(text).map(|id| it.router = Some(id)))];

/// Keys whose values have a type: with one that is none of it, the cloud provider's controller does not start.
const TYPED: [&str; 14] = [
    "enabled",
    "create-monitor",
    "monitor-delay",
    "monitor-timeout",
    "monitor-max-retries",
    "monitor-max-retries-down",
    "manage-security-groups",
    "internal-lb",
    "cascade-delete",
    "enable-ingress-hostname",
    "container-store",
    "max-shared-lb",
    "provider-requires-serial-api-calls",
    "ipv6-support-disabled",
];

/// Of those, durations as Go writes them: a number alone is none.
const DURATIONS: [&str; 2] = ["monitor-delay", "monitor-timeout"];

/// What such a file says.
#[derive(Debug)]
pub struct Read {
    pub defaults: CloudDefaults,
    /// Why nothing may be done by it: a line of the file for each.
    pub refused: Vec<String>,
    /// A line for each thing in it that does not mean what somebody may think.
    pub told: Vec<String>,
}

#[derive(Default)]
struct Remarks {
    refused: Vec<String>,
    told: Vec<String>,
}

pub fn read(conf: &CloudConf) -> Read {
    let mut found = CloudDefaults::default();
    let mut remarks = Remarks::default();
    let told = &mut remarks;
    let entries: Vec<&Entry> = conf.ini.entries("LoadBalancer").collect();
    set(conf, "LoadBalancer", &entries, BALANCER, &mut found, PLACE, told);
    let mut place = CloudNetworks::default();
    set(conf, "LoadBalancer", &entries, PLACE, &mut place, BALANCER, told);
    found.place = place;
    for section in conf.ini.subsections("LoadBalancerClass") {
        let Some(name) = &section.sub else {
            told.told.push(format!(
                "{}: a class has a name: [LoadBalancerClass \"gold\"]; this one is not used",
                conf.place(section.line)
            ));
            continue;
        };
        let mut class = CloudNetworks::default();
        let entries: Vec<&Entry> = section.entries.iter().collect();
        set::<_, ()>(conf, "LoadBalancerClass", &entries, PLACE, &mut class, &[], told);
        found.classes.insert(name.as_str().into(), class);
    }
    let entries: Vec<&Entry> = conf.ini.entries("Networking").collect();
    set::<_, ()>(conf, "Networking", &entries, NETWORKING, &mut found, &[], told);
    let entries: Vec<&Entry> = conf.ini.entries("Route").collect();
    set::<_, ()>(conf, "Route", &entries, ROUTE, &mut found, &[], told);
    told.refused.extend(request_timeout(conf));
    told.told.extend(left_to_others(conf));
    told.told.extend(method(conf, &found));
    let Remarks { mut refused, mut told } = remarks;
    for lines in [&mut refused, &mut told] {
        lines.sort();
        lines.dedup();
    }
    Read { defaults: found, refused, told }
}

/// What is for controllers that stay, so that nobody waits for it to do something here.
const OTHERS: [(&str, &str, &str); 4] = [
    ("Networking", "public-network-name", NODES),
    ("Networking", "internal-network-name", NODES),
    ("Route", "router-id", ROUTES),
    ("Metadata", "search-order", "only the cloud controller manager reads this option"),
];
const NODES: &str = "only the controller cloud-node reads this option, of Seaway (--controllers) or of the cloud \
     controller manager, to write the \
     addresses of Nodes; load balancers reach members at the InternalIP of their Node";

const ROUTES: &str = "only the controller route reads this option, of Seaway (--controllers) or of the cloud controller \
     manager, to write \
     routes to pods";

/// All keys of a section that mean something.
pub fn keys(section: &str) -> Vec<&'static str> {
    let others = OTHERS.iter().filter(|it| it.0 == section).map(|it| it.1);
    let of_cloud = |rows: &'static [Row<CloudDefaults>]| rows.iter().map(|it| it.0);
    let of_place = PLACE.iter().map(|it| it.0);
    match section {
        "LoadBalancer" => of_cloud(BALANCER).chain(of_place).collect(),
        "LoadBalancerClass" => of_place.collect(),
        "Networking" => of_cloud(NETWORKING).collect(),
        "Route" => of_cloud(ROUTE).collect(),
        _ => others.collect(),
    }
}

fn left_to_others(conf: &CloudConf) -> impl Iterator<Item = String> + '_ {
    OTHERS.iter().flat_map(move |(section, key, why)| {
        let entries = conf.ini.entries(section).filter(|it| it.key.eq_ignore_ascii_case(key));
        entries.map(move |entry| {
            let whom = if *section == "Metadata" { "Seaway" } else { "load balancers" };
            format!("{}: [{section}] {key} has no effect on {whom}: {why}", conf.place(entry.line))
        })
    })
}

/// A way to balance that the provider does not have.
fn method(conf: &CloudConf, found: &CloudDefaults) -> Option<String> {
    let entry =
        conf.ini.entries("LoadBalancer").filter(|it| it.key.eq_ignore_ascii_case("lb-method")).last()?;
    let (method, provider) = (entry.value().trim(), &found.provider);
    let instead = match (method, provider.as_str() == BY_SOURCE_PORT) {
        ("SOURCE_IP_PORT", false) => "ROUND_ROBIN",
        ("ROUND_ROBIN", true) => "SOURCE_IP_PORT",
        _ => return None,
    };
    let place = conf.place(entry.line);
    let what = format!("provider {provider} does not know {method}; {instead} is used instead");
    Some(format!("{place}: [LoadBalancer] lb-method: {what}"))
}

/// It has no other way to balance.
const BY_SOURCE_PORT: &str = "ovn";

/// In the order of the rows, so that those which refine others come after them. `others`: rows of the same section that
/// set something else.
fn set<T, O>(
    conf: &CloudConf,
    section: &str,
    entries: &[&Entry],
    rows: &[Row<T>],
    it: &mut T,
    others: &[Row<O>],
    remarks: &mut Remarks,
) {
    for (key, set) in rows {
        for entry in entries.iter().filter(|it| it.key.eq_ignore_ascii_case(key)) {
            let value = entry.value().trim();
            let Err(why) = set(it, value) else { continue };
            let line =
                format!("{}: [{section}] {key} has no effect on Seaway: {why}", conf.place(entry.line));
            // A number that nothing can be done with is one all the same.
            let is_number = value.parse::<u64>().is_ok() && !DURATIONS.contains(key);
            match TYPED.contains(key) && !is_number {
                true => remarks.refused.push(line),
                false => remarks.told.push(format!("{line}; this line is ignored")),
            }
        }
    }
    let names: Vec<&str> = rows.iter().map(|it| it.0).chain(others.iter().map(|it| it.0)).collect();
    for entry in entries {
        let key = entry.key.to_ascii_lowercase();
        if names.contains(&key.as_str()) {
            continue;
        }
        let perhaps = nearest(&key, &names).map(|it| format!("; did you mean {it}?")).unwrap_or_default();
        remarks.told.push(format!(
            "{}: [{section}] {}: unknown key{perhaps}",
            conf.place(entry.line),
            entry.key
        ));
    }
}

/// A number without a unit is no duration of Go, unless it is 0.
fn go_duration(text: &str) -> Result<Duration, String> {
    match text.parse::<u64>() {
        Ok(number) if number > 0 => Err(format!("{text:?} is not a duration: it has no unit; write {text}s")),
        _ => duration(text),
    }
}

/// How long one request may take, which the credentials are read with.
fn request_timeout(conf: &CloudConf) -> Option<String> {
    let entry = conf.ini.entry("Metadata", "request-timeout")?;
    let why = go_duration(entry.value().trim()).err()?;
    Some(format!("{}: [Metadata] request-timeout: {why}", conf.place(entry.line)))
}

fn some(text: &str) -> Result<Name, String> {
    if text.is_empty() { Err("the value is empty".to_owned()) } else { Ok(text.into()) }
}

fn truth(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}

/// `ROUND_ROBIN` and `SOURCE_IP_PORT` are what providers do when nobody asks for anything.
pub fn balance(text: &str) -> Result<Option<Balance>, String> {
    match text {
        "ROUND_ROBIN" | "SOURCE_IP_PORT" => Ok(None),
        "LEAST_CONNECTIONS" => Ok(Some(Balance::LeastConnections)),
        "SOURCE_IP" => Ok(Some(Balance::SourceHash)),
        _ => Err(format!(
            "{text:?} is not a method; the methods are ROUND_ROBIN, LEAST_CONNECTIONS, SOURCE_IP and SOURCE_IP_PORT"
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn read_text(text: &str) -> (CloudDefaults, Vec<String>) {
        let read = read_all(text);
        assert_eq!(read.refused, [""; 0]);
        (read.defaults, read.told)
    }

    fn read_all(text: &str) -> Read {
        read(&CloudConf::parse(Path::new("cloud.conf"), text).expect("an INI"))
    }

    #[test]
    fn what_the_other_controller_does_not_start_with_refuses_the_file_with_its_line() {
        for (line, why) in [
            ("enabled=flase", "neither true nor false"),
            ("create-monitor=perhaps", "neither true nor false"),
            ("internal-lb=ture", "neither true nor false"),
            ("manage-security-groups=treu", "neither true nor false"),
            ("cascade-delete=never", "neither true nor false"),
            ("monitor-delay=soon", "is not a duration"),
            ("monitor-delay=5", "\"5\" is not a duration: it has no unit; write 5s"),
            ("monitor-timeout=3", "write 3s"),
            ("monitor-timeout=", "is not a duration"),
            ("monitor-max-retries=many", "is not a number from 1 to 10"),
            ("max-shared-lb=two", "is not a number"),
            ("container-store=vault", "is not a store"),
        ] {
            let read = read_all(&format!("[LoadBalancer]\n\n{line}\nlb-provider=ovn\n"));
            assert_eq!((read.refused.len(), read.told.len()), (1, 0), "{line}: {read:?}");
            let told = &read.refused[0];
            assert!(told.starts_with("cloud.conf:3: [LoadBalancer] ") && told.contains(why), "{told}");
        }
        for text in ["[Networking]\nipv6-support-disabled=maybe\n", "[Metadata]\nrequest-timeout=45\n"] {
            assert_eq!(read_all(text).refused.len(), 1, "{text}: {:?}", read_all(text));
        }
        let (found, _) = read_text(
            "[LoadBalancer]\nmonitor-delay=1m30s\nmonitor-timeout=0\n[Metadata]\nrequest-timeout=1.5s\n",
        );
        assert_eq!((found.check.interval, found.check.timeout), (Duration::from_secs(90), Duration::ZERO));
    }

    #[test]
    fn a_file_of_the_other_controller_means_the_same_here() {
        let (found, told) = read_text(
            "[Global]\nauth-url=http://x\n[LoadBalancer]\nlb-provider=ovn\nlb-method=SOURCE_IP_PORT\n\
             floating-network-id=net-1\nfloating-subnet=public*\nsubnet-id=sub-1\nmember-subnet-id=sub-2\n\
             create-monitor=true\nmonitor-delay=1m\nmonitor-timeout=30s\nmonitor-max-retries=2\n\
             monitor-max-retries-down=4\nmanage-security-groups=true\nnode-selector=role=worker, ssd\n\
             enable-ingress-hostname=true\ningress-hostname-suffix=example.org\nmax-shared-lb=5\n\
             container-store=external\ncascade-delete=false\nprovider-requires-serial-api-calls=true\n\
             [LoadBalancerClass \"gold\"]\nfloating-network-id=net-2\nfloating-subnet-tags=a,b\n\
             [Networking]\npublic-network-name=one\npublic-network-name=two\naddress-sort-order=10.0.0.0/8, fd00::/8\n\
             [BlockStorage]\nbs-version=v3\n",
        );
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told.iter().all(|it| it.contains("] public-network-name has no effect on load balancers: ")),
            "{told:?}"
        );
        assert_eq!((found.provider.as_str(), found.balance), ("ovn", None));
        assert_eq!(found.place.floating_network.as_deref(), Some("net-1"));
        assert_eq!(found.place.floating_subnet, Some(FloatingSubnet::Named("public*".into())));
        assert_eq!(found.place.member_subnet.as_deref(), Some("sub-2"));
        let check = &found.check;
        assert!(found.monitor && found.groups && found.serial && !found.barbican && !found.cascade);
        assert_eq!((check.interval, check.timeout), (Duration::from_secs(60), Duration::from_secs(30)));
        assert_eq!((check.rise, check.fall, found.most_shared), (2, 4, 5));
        assert_eq!(found.nodes, [("role".into(), Some("worker".into())), ("ssd".into(), None)]);
        assert_eq!(found.hostname.as_deref(), Some("example.org"));
        let gold = &found.classes[&Name::from("gold")];
        assert_eq!(gold.floating_subnet, Some(FloatingSubnet::Tagged("a,b".into())));
        assert_eq!(found.networking.public, ["one".into(), "two".into()]);
        assert_eq!(found.networking.order.len(), 2);
    }

    #[test]
    fn a_name_is_beside_tags_and_an_id_beats_both_whatever_their_order() {
        let (found, _) = read_text("[LoadBalancer]\nfloating-subnet=name\nfloating-subnet-tags=a\n");
        let both = FloatingSubnet::NamedAndTagged { name: "name".into(), tags: "a".into() };
        assert_eq!(found.place.floating_subnet, Some(both));
        let (found, _) = read_text(
            "[LoadBalancer]\nfloating-subnet-id=it\nfloating-subnet=name\nfloating-subnet-tags=a\n",
        );
        assert_eq!(found.place.floating_subnet, Some(FloatingSubnet::Id("it".into())));
    }

    #[test]
    fn what_is_not_understood_is_told_with_its_line_and_spoils_nothing_else() {
        for (line, why) in [
            ("monitor-max-retries=11", "is not a number from 1 to 10"),
            ("lb-method=FASTEST", "is not a method"),
            ("lb-version=v1", "only v2 is"),
            ("subnet-id=", "the value is empty"),
            ("node-selector==x", "has no label key"),
            ("flotaing-network-id=x", "did you mean floating-network-id?"),
        ] {
            let (found, told) = read_text(&format!("[LoadBalancer]\n\n{line}\nlb-provider=ovn\n"));
            assert_eq!(found, CloudDefaults { provider: "ovn".into(), ..CloudDefaults::default() }, "{line}");
            assert_eq!(told.len(), 1, "{line}: {told:?}");
            assert!(
                told[0].starts_with("cloud.conf:3: [LoadBalancer] ") && told[0].contains(why),
                "{}",
                told[0]
            );
        }
    }
}
