//! Reasons: short, stable names for what is wrong, which people search for and alerts match.
//!
//! What each means and what to do about it stands here once; docs/reasons.md and `seaway reasons` are written from it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A reason, what it means, and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasonHelp {
    pub name: &'static str,
    pub meaning: &'static str,
    /// Empty where nothing is to be done.
    pub remedy: &'static str,
}

/// An enum of reasons, each with its meaning and its remedy.
macro_rules! reasons {
    ($(#[$about:meta])* $name:ident {
        $($(#[doc = $meaning:literal])+ $(#[serde(alias = $former:literal)])? $reason:ident: $remedy:literal,)+
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[doc = $meaning])+ $(#[serde(alias = $former)])? $reason,)+
        }

        impl $name {
            pub const HELP: &'static [ReasonHelp] = &[
                $(ReasonHelp {
                    name: stringify!($reason),
                    meaning: concat!($($meaning),+).trim_ascii(),
                    remedy: $remedy,
                },)+
            ];

            pub fn as_str(self) -> &'static str {
                match self {
                    $($name::$reason => stringify!($reason),)+
                }
            }
        }
    };
}

reasons! {
    /// Of a Problem. Stable, bounded: a metric's label, an Event's reason.
    Reason {
        /// A file or a document cannot be parsed.
        Unreadable: "Correct the line that the message names. The last version that could be read stays in \
                     effect.",
        /// A field has a value that an API server would refuse.
        Invalid: "Correct the field. The rest of the object takes effect.",
        /// A field that Seaway does not know, or a kind of object that it does not serve.
        Ignored: "Correct the spelling, or remove the field or object. The rest takes effect.",
        /// The same object is written twice.
        Duplicate: "Remove one of the two copies.",
        /// The value of an annotation is not understood. Its default applies; for one that restricts access, the
        /// listener stays closed.
        BadAnnotation: "Correct the value: docs/annotations.md has each annotation with its values.",
        /// A Service has no backend: no EndpointSlice, an empty one, or no endpoint that is ready.
        NoEndpoints: "Look at its pods and its selector: kubectl get endpointslices -l kubernetes.io/service-name=NAME.",
        /// A port of a Service has a target port that the endpoints do not have.
        NoSuchPort: "Correct targetPort, or the name of the port in the pods or EndpointSlices.",
        /// A route or the configuration names a Service that does not exist.
        NoSuchService: "Create the Service, or correct the name.",
        /// No AddressPool may give this Service an address.
        NoPool: "Create an AddressPool, or change the namespaces and selectors of one so that they match \
                 the Service.",
        /// All addresses of the pools that this Service may use are taken.
        PoolExhausted: "Add a range to a pool, delete a Service, or let Services share an address \
                        (seaway.dev/share). When an address becomes free, the oldest waiting Service gets \
                        it.",
        /// The namespace or the Service would have more than the administrator allows it.
        LimitReached: "Use less, or have the limit raised in the configuration (tenants, \
                       pools.perNamespace).",
        /// The pool of an address cannot be seen: it was deleted, or may not be listed or read. The Service keeps its
        /// address.
        PoolMissing: "Create the pool again, or give Seaway back the right to list pools.",
        /// The pool of an address does not have it any more, or not for this Service. The address is withdrawn after
        /// a grace period; the message says when.
        AddressExcluded: "To keep the address, let its pool have the address again, or let the pool match \
                          this Service again, before that time.",
        /// The Service asks for an address that is in no pool that the Service may use.
        AddressOutsidePools: "Ask for an address of a pool, or add the address to a pool.",
        /// The Service asks for an address that another one has.
        AddressTaken: "Ask for another address, or let both share it: the same seaway.dev/share, and different ports.",
        /// Another machine of the network answers for an address that hosts are to announce by ARP or NDP. No host announces it.
        AddressConflict: "Give that machine another address, or take the address out of the pool. Hosts probe the address again \
                          every 10 seconds.",
        /// Hosts are to announce an address by ARP or NDP (announce: l2), and cannot.
        Layer2Failed: "Do what the message says: docs/layer2.md has what hosts need.",
        /// Hosts are to announce an address by BGP, and cannot.
        #[serde(alias = "BgpFailed")]
        BGPFailed: "Do what the message says: docs/bgp.md has what hosts and their peers need.",
        /// An object names another one that does not exist.
        NotFound: "Create that object, or correct the name.",
        /// The configuration names an address of this host that none of its interfaces has.
        AddressMissing: "Put the address on an interface (ip address add), or correct host.addresses in seaway.yaml and restart Seaway.",
        /// Another Service has this port at the shared address. The other ports are served.
        PortConflict: "Choose another port, or another address for this Service. This Service gets the \
                       port when the other one releases it.",
        /// The machines need this port themselves.
        PortReserved: "Choose another port or, for TCP, an AddressPool with addresses of its own; or allow \
                       the port in spec.reservedPorts of the pool.",
        /// No host may serve: all Nodes are excluded from load balancers.
        HostsExcluded: "Remove the label node.kubernetes.io/exclude-from-external-load-balancers from a Node.",
        /// Two routes claim one path or host name. The older one has it.
        RouteConflict: "Claim another path or host name, or remove one of the two routes.",
        /// Another process listens at this address and port of the host.
        PortInUse: "Stop that process (ss -tulpn, as root, names it), or choose another port. Seaway tries again every 2 seconds.",
        /// A Secret or a file holds no certificate, or a key that belongs to another one.
        BadCertificate: "Write a certificate and the key that belongs to it to that Secret or file. The \
                         last good certificate stays in use.",
        /// A certificate has expired, expires soon, or is not valid yet.
        CertificateExpiry: "Renew the certificate. Meanwhile, it is served as it is.",
        /// A certificate that the front door orders (frontDoor.acme) was not issued or not renewed.
        CertificateOrder: "The message has the certificate authority's reason. The host name must resolve to this \
             machine in DNS, and port \
                           80 must be reachable from the internet. Seaway tries again by itself; an older certificate stays in use.",
        /// A host name is served with a certificate that does not name it.
        CertificateName: "Get a certificate for that host name, or name another Secret for it.",
        /// A Secret that is named does not exist, or may not be read.
        NoSuchSecret: "Create the Secret in the namespace of the Service, or let Seaway read it.",
        /// Two pools have the same addresses. Services get them from the older pool.
        PoolOverlap: "Correct the ranges of one of the two pools.",
        /// Seaway lacks a capability, a sysctl, a right of RBAC, or file descriptors.
        NotPermitted: "Give Seaway the right that the message names: docs/security.md lists all that \
                       Seaway needs, and why.",
        /// The place where the Service is served cannot do this.
        Unsupported: "Remove the setting, or choose another class or provider. The message says which part is left out.",
        /// A host name that a Service asks for is not published in DNS, or not with all its addresses.
        NameNotPublished: "The message has the reason: docs/dns-names.md. Records that Seaway did not write are never changed; what \
                           it wrote before stays.",
        /// A DNS name has no answer.
        NameUnresolved: "Check the name, and that the resolver of the host answers for it.",
        /// Members fail the probes of the load balancer of a cloud.
        MembersDown: "Look at the pods, and at security groups on the way to them.",
        /// Changes are not applied: the Service has the annotation seaway.dev/pause.
        Paused: "Remove the annotation to apply the changes.",
        /// What a cloud has for a Service is kept: no setting chooses that cloud any more, or the API server says
        /// that the Service still uses it.
        Released: "Choose the cloud again for the Service; or, if the object in the cloud is not needed, \
                   delete it there: the message names it.",
        /// A cloud has something of this cluster, and its owner was not seen being deleted. It is kept.
        Orphan: "List orphans with seaway openstack gc. If this one is not needed, delete it with the same \
                 command.",
        /// More was to be deleted within an hour than the limit allows, without a Service that asked for it. The rest
        /// waits.
        DeletionLimit: "Find out why so many objects are to be deleted. Deletions resume by themselves \
                        after an hour; the message has the command that approves this one at once.",
        /// The project of a cloud has no quota left for this.
        QuotaExceeded: "Have the quota raised, or delete what is not needed. Seaway tries again.",
        /// Seaway cannot write its state: a file, a ConfigMap or an Address.
        StateUnwritable: "Make room, or give Seaway the right that the message names. Meanwhile, Seaway \
                          allocates no new addresses.",
        /// The API server or a cloud does not answer, or not with what was asked for.
        Unreachable: "Restore access to the API server or the cloud. Traffic continues meanwhile.",
        /// The cluster lacks a kind of objects that Seaway needs.
        NotInstalled: "As an administrator: seaway crds | kubectl apply -f -",
        /// A member is a listener of Seaway itself: requests would be forwarded in a circle.
        Loop: "Name the pods or servers behind that listener instead.",
        /// The administrator does not allow this here, or not to this namespace.
        NotAllowed: "Remove the setting that the message names, or have it allowed in the configuration \
                     (tenants): docs/tenants.md.",
        /// Every client is trusted to say which address it has: source ranges, limits for each client, and logs that go by
        /// addresses protect nothing.
        AddressForgeable: "Name only the networks of the proxies before Seaway: docs/client-addresses.md.",
        /// Another controller writes what Seaway would write.
        OtherController: "Give the Service a loadBalancerClass that only one of the controllers serves, or \
                          stop one of them: docs/adopt.md.",
        /// A Node waits to be initialised, or its addresses are not written: which server of the cloud it is, or which addresses
        /// it has, is not known.
        NodeUninitialized: "Do what the message says of this Node: docs/openstack-nodes.md.",
        /// The server of a Node is in ERROR, or deleted so that it can be restored.
        ServerFailed: "Repair or delete the server: docs/openstack-nodes.md.",
        /// The server of a Node is not found, and the Node is not deleted.
        NodeKept: "If the server was deleted, delete the Node: kubectl delete node NAME. Else correct the credentials: \
                   docs/openstack-nodes.md.",
        /// A pod network of a Node of OpenStack has no route, no allowed address pair, or will have none.
        RouteMissing: "Do what the message says: docs/openstack-routes.md.",
        /// A route of a router is not as it should be, or not needed, and is kept: Seaway did not make it, or its Node may exist.
        RouteForeign: "Remove the route if nothing uses it: docs/openstack-routes.md.",
        /// A newer version of Seaway wrote this. The previous content stays in effect.
        NewerPlan: "Upgrade Seaway on this host.",
        /// A request to a cloud or to the API server failed; the message has its answer.
        Failed: "Do what the message says. Seaway tries again by itself.",
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// All of them: what they are of, where that is seen, and the reasons.
pub const ALL: &[(&str, &str, &[ReasonHelp])] = &[
    (
        "Problems",
        "In `seaway check` and `explain`, the status page, logs, events, the condition `seaway.dev/Problems`, and the metric \
         `seaway_problems`. A Problem of a pool is the reason of its condition `Ready`, too.",
        Reason::HELP,
    ),
    ("The condition seaway.dev/Ready", "Of a Service.", READY),
    ("The condition seaway.dev/Announced", "Of a Service, and `Announced` of an AddressPool.", ANNOUNCED),
    ("The condition Ready of an AddressPool", "Without Problems it has this reason.", POOL_READY),
    ("Events", "Each new Problem is an event, too, with its own reason.", EVENTS),
    ("Labels of metrics", "The label `reason` of metrics other than `seaway_problems`.", METRICS),
];

/// Of the condition `Ready` of an AddressPool, beside those of Problems.
const POOL_READY: &[ReasonHelp] =
    &[ReasonHelp { name: "Used", meaning: "Services get addresses from it.", remedy: "" }];

/// Of the condition `seaway.dev/Ready` of a Service.
const READY: &[ReasonHelp] = &[
    ReasonHelp { name: "Served", meaning: "The Service is served at all of its addresses.", remedy: "" },
    ReasonHelp {
        name: "Pending",
        meaning: "The load balancer is being created; the message says what Seaway waits for.",
        remedy: "Wait. If this reason stays, the condition seaway.dev/Problems or the log of the controller says why.",
    },
    ReasonHelp {
        name: "NoAddress",
        meaning: "The Service has no address.",
        remedy: "The condition seaway.dev/Problems says why.",
    },
    ReasonHelp {
        name: "NotServed",
        meaning: "The Service has addresses, and no host serves them.",
        remedy: "Look at the hosts: kubectl seaway status, and the Problems of each LoadBalancerHost.",
    },
    ReasonHelp {
        name: "PartlyServed",
        meaning: "The Service is served at only some of its addresses; the message names them.",
        remedy: "Look at the hosts, and at the Problems of the Service.",
    },
];

/// Of the condition `seaway.dev/Announced` of a Service.
const ANNOUNCED: &[ReasonHelp] = &[
    ReasonHelp {
        name: "HostAddress",
        meaning: "The addresses are the hosts' own: hosts answer for them anyway.",
        remedy: "",
    },
    ReasonHelp {
        name: "StaticRoute",
        meaning: "The pool says that a router has a route to the hosts.",
        remedy: "",
    },
    ReasonHelp { name: "Cloud", meaning: "The load balancer of a cloud has the addresses.", remedy: "" },
    ReasonHelp {
        name: "Layer2",
        meaning: "A host answers for each of the addresses by ARP or NDP; the message names it.",
        remedy: "",
    },
    ReasonHelp {
        name: "Layer2Pending",
        meaning: "Hosts are to answer for the addresses by ARP or NDP, and no host has said yet that it does.",
        remedy: "Wait some seconds. If it stays so, no host serves the address: see the condition seaway.dev/Ready.",
    },
    ReasonHelp {
        name: "Layer2Failed",
        meaning: "Hosts are to answer for the addresses by ARP or NDP, and cannot.",
        remedy: "The Problems of the Service say why, and what to do.",
    },
    ReasonHelp { name: "BGP", meaning: "Hosts announce each of the addresses by BGP.", remedy: "" },
    ReasonHelp {
        name: "BGPPending",
        meaning: "Hosts are to announce the addresses by BGP, and no host has said yet that it does.",
        remedy: "Wait some seconds. If it stays so, look at the sessions (kubectl seaway status), and whether a host that serves the \
                 address is selected by a BGPPeer and a BGPAdvertisement.",
    },
    ReasonHelp {
        name: "BGPFailed",
        meaning: "Hosts are to announce the addresses by BGP, and cannot.",
        remedy: "The Problems of the Service say why, and what to do.",
    },
    ReasonHelp {
        name: "Disabled",
        meaning: "The pool says that its addresses are not to be announced (announce: none).",
        remedy: "If the addresses are to be announced, change spec.announce of the pool.",
    },
    ReasonHelp { name: "NoAddress", meaning: "There is no address yet.", remedy: "" },
    ReasonHelp {
        name: "MetalLB",
        meaning: "The addresses are from a pool of MetalLB, whose speaker may announce them.",
        remedy: "Check that MetalLB's speaker runs, and that an advertisement names the pool.",
    },
    ReasonHelp {
        name: "PoolMissing",
        meaning: "The pool of the addresses cannot be seen.",
        remedy: "Create the pool again, or give Seaway back the right to list pools.",
    },
    ReasonHelp {
        name: "NotAnnounced",
        meaning: "Seaway does not know of anything that announces the addresses to the network.",
        remedy: "Set spec.announce of the pool to l2, if the addresses are in the network of the hosts (docs/layer2.md), to bgp, if \
                 hosts are to tell a router (docs/bgp.md); or give a router a route for them to the hosts, and then set it to static.",
    },
];

/// Of events alone. Each Problem that comes is an event with its own reason, too.
const EVENTS: &[ReasonHelp] = &[
    ReasonHelp {
        name: "AddressPublished",
        meaning: "The Service can be reached at these addresses.",
        remedy: "",
    },
    ReasonHelp {
        name: "AddressWithdrawn",
        meaning: "The Service can no longer be reached at these addresses.",
        remedy: "If this was not intended, the Problems of the Service say why.",
    },
    ReasonHelp {
        name: "Creating",
        meaning: "Seaway creates a load balancer in the cloud.",
        remedy: "Wait: it may take minutes.",
    },
    ReasonHelp {
        name: "Rebuilding",
        meaning: "A load balancer of the cloud is deleted and created again, or a second one is created; the message says why.",
        remedy: "",
    },
    ReasonHelp {
        name: "FailingOver",
        meaning: "A load balancer of the cloud is in ERROR, and is failed over.",
        remedy: "If the load balancer is in ERROR again, ask the cloud's operators.",
    },
    ReasonHelp {
        name: "FailoverRefused",
        meaning: "The cloud refused to fail a load balancer over.",
        remedy: "Ask the cloud's operators.",
    },
    ReasonHelp {
        name: "Drift",
        meaning: "Another client of the cloud changed what Seaway had made. Seaway changes it back.",
        remedy: "Change the Service instead, or stop the client of the cloud that changes it. seaway.dev/pause leaves \
            the cloud as it is.",
    },
    ReasonHelp {
        name: "Stuck",
        meaning: "A load balancer is PENDING for too long, and Octavia takes no change meanwhile.",
        remedy: "Ask the cloud's operators: the log of Octavia says what it waits for.",
    },
    ReasonHelp {
        name: "DeletionWaits",
        meaning: "The Service is being deleted, but its load balancer cannot be deleted yet; the message says why.",
        remedy: "Do what the message says. The Service is deleted once its load balancer is deleted.",
    },
    ReasonHelp {
        name: "NotDeleted",
        meaning: "The cloud accepted a deletion several times, and the object is still there.",
        remedy: "Ask the cloud's operators. Seaway tries again at its next drift check.",
    },
    ReasonHelp {
        name: "LoadBalancerForcedInternal",
        meaning: "The cloud has no external network for floating IPs: the VIP is the Service's address.",
        remedy: "Name the network in cloud.conf (floating-network-id), or ask for an internal load balancer.",
    },
    ReasonHelp {
        name: "NodeInitialized",
        meaning: "The Node has the providerID, addresses and labels of its server in the cloud.",
        remedy: "",
    },
    ReasonHelp {
        name: "NodeDeleted",
        meaning: "The Node was deleted: its server does not exist any more.",
        remedy: "",
    },
];

/// Labels `reason` of metrics that are no Problems.
const METRICS: &[ReasonHelp] = &[
    ReasonHelp {
        name: "source",
        meaning: "`seaway_refused_total`: the client's address is not in the source ranges of the Service: the connection was reset, or at the front door the request got 403.",
        remedy: "",
    },
    ReasonHelp {
        name: "limit",
        meaning: "`seaway_refused_total`: a limit of connections or of their rate was reached, or file descriptors or memory ran out.",
        remedy: "If the clients are wanted, raise `seaway.dev/max-connections` or `seaway.dev/max-new-connections-per-second` (`tenants.limits` bounds both), the limit of open files, or the limit of memory.",
    },
    ReasonHelp {
        name: "client-rate",
        meaning: "`seaway_refused_total`: a client made more requests than `seaway.dev/requests-per-second-per-client` allows: they got 429.",
        remedy: "If these clients are legitimate, raise that limit, or `seaway.dev/requests-burst-per-client`. If many clients share an address, tell them apart by `seaway.dev/rate-limit-key`.",
    },
    ReasonHelp {
        name: "memory",
        meaning: "`seaway_dataplane_evictions_total`: a connection was closed to free memory.",
        remedy: "Give the process more memory, or lower the limits of connections.",
    },
    ReasonHelp {
        name: "descriptors",
        meaning: "`seaway_dataplane_evictions_total`: a UDP flow was ended to free a file descriptor.",
        remedy: "Raise the limit of open files.",
    },
];
