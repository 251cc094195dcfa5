//! A process that has counted more each time it is scraped, with all metrics that there are.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use prometheus_client::{
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram as Observed, exponential_buckets},
    },
    registry::{Registry, Unit},
};
use seaway_admin::{
    Binding, BoundSockets, View, api_server_metrics, logging::LogHandle, node_controller_metrics,
    view::ProcessRole,
};
use seaway_model::latency::{Histogram, LATENCY_BUCKETS, Latencies};

use crate::{api_server, view};

/// At two addresses, as if there were two controllers, and at that of a host.
pub(crate) fn serving(test: impl FnOnce(&[SocketAddr])) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let looks = AtomicU64::new(0);
    let source = move || Arc::new(at(looks.fetch_add(1, Ordering::Relaxed)));
    let at_ports = |count| Binding::Exactly(vec!["127.0.0.1:0".parse().unwrap(); count]);
    let (controllers_at, host_at) = (at_ports(2), at_ports(1));
    let host_looks = AtomicU64::new(0);
    let host =
        move || Arc::new(View { part: ProcessRole::Host, ..at(host_looks.fetch_add(1, Ordering::Relaxed)) });
    let (admin, host) = runtime.block_on(async {
        let asked = Arc::new(AtomicU64::new(1));
        let bind = |at: &Binding| {
            let asked = asked.clone();
            let api_server = move || api_server::at(asked.fetch_add(1, Ordering::Relaxed));
            let bound = BoundSockets::bind(at).unwrap().with_metrics_source(Box::new(of_openstack));
            bound
                .with_metrics_source(api_server_metrics(api_server))
                .with_metrics_source(node_controller_metrics(|| api_server::node_controllers(1)))
        };
        let log = LogHandle::detached;
        let admin = bind(&controllers_at).serve(seaway_admin::immediate_source(source), log());
        (admin, bind(&host_at).serve(seaway_admin::immediate_source(host), log()))
    });
    test(&[admin.addresses(), host.addresses()].concat());
    runtime.block_on(async {
        admin.stop().await;
        host.stop().await;
    });
}

/// With requests and latencies of all pools.
fn at(look: u64) -> View {
    let mut view = view::at(1_000 + 500 * look);
    let times = Histogram { buckets: [10 * look; LATENCY_BUCKETS], sum: 1_000_000 * look };
    view.drivers.iter_mut().for_each(|it| it.times = times);
    for pool in view.services.iter_mut().flat_map(|it| &mut it.pools) {
        pool.latencies = Some(Box::new(Latencies { connect: times, first_byte: times, request: times }));
    }
    view
}

type Labels = Vec<(&'static str, &'static str)>;

/// The counters are new in each scrape, and say more in each.
static SCRAPES: AtomicU64 = AtomicU64::new(1);

/// As crates/openstack counts its calls: names and labels of docs/openstack-calls.md, which this program cannot make.
fn of_openstack(registry: &mut Registry) {
    let call: Labels = vec![("service", "octavia"), ("operation", "list load balancers")];
    let calls = Family::<Labels, Counter>::default();
    let times: Family<Labels, Observed, fn() -> Observed> =
        Family::new_with_constructor(|| Observed::new(exponential_buckets(0.005, 2.0, 15)));
    let repeats = Family::<Labels, Counter>::default();
    let sign_ins = Family::<Labels, Counter>::default();
    let stuck: Gauge = Gauge::default();
    let count = SCRAPES.fetch_add(1, Ordering::Relaxed);
    calls.get_or_create(&[call.clone(), vec![("outcome", "ok")]].concat()).inc_by(count);
    (0..count).for_each(|_| times.get_or_create(&call).observe(0.1));
    repeats.get_or_create(&call).inc_by(count);
    sign_ins.get_or_create(&vec![("outcome", "ok")]).inc_by(count);
    stuck.set(1);
    registry.register("seaway_openstack_calls", "Calls", calls);
    registry.register_with_unit("seaway_openstack_call_duration", "Times", Unit::Seconds, times);
    registry.register("seaway_openstack_repeats", "Repeats", repeats);
    registry.register("seaway_openstack_sign_ins", "Tokens", sign_ins);
    registry.register("seaway_openstack_stuck_load_balancers", "Stuck", stuck);
}
