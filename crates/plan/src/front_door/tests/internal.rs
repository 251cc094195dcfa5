//! What asks for an internal load balancer, as clouds have them: no client of Seaway's hosts reaches it.

use seaway_model::{Config, Kind, ObjectRef, fact::ServiceKind, load_balancer::HostPattern};

use super::{protected::open, routes::route_to, scene::*};
use crate::annotations::nobody;

const INTERNAL: (&str, &str) = ("seaway.dev/internal", "true");

#[test]
fn what_is_to_be_internal_is_served_to_no_client_wherever_it_is() {
    let host = ("seaway.dev/host", "a.example");
    for (say, expected) in [
        (&[INTERNAL][..], false),
        (&[INTERNAL, host], false),
        (&[INTERNAL, host, ("seaway.dev/tls-passthrough", "true")], false),
        (&[INTERNAL, ("seaway.dev/source-ranges", "10.0.0.0/8")], true),
        (&[("seaway.dev/internal", "false")], true),
        (&[("seaway.dev/internl", "true")], false),
        (&[("seaway.dev/internl", "false")], true),
        (&[("seaway.dev/private", "true")], false),
    ] {
        let shop = saying(service("shop", &[80]), say);
        let at_front_door = world(Config::default(), [put(&shop), backed(&shop)]);
        assert_eq!(!served(&at_front_door).is_empty(), expected, "{say:?}: {:?}", served(&at_front_door));
        let named = problems(&at_front_door).iter().filter(|it| it.contains(say[0].0)).count();
        assert_eq!(
            named == 1,
            say[0].1 == "true" || say[0].0 != INTERNAL.0,
            "{say:?}: {:?}",
            problems(&at_front_door)
        );
        let mut own = shop.clone();
        own.kind = ServiceKind::LoadBalancer;
        let at_its_address = world(Config::default(), [put(&own), backed(&own)]);
        assert_eq!(!open(&at_its_address, &own).is_empty(), expected, "{say:?}");
        // A route opens nothing that is closed.
        let mut route = route_to("shop", 80);
        route.hosts = vec![HostPattern::Exact("b.example".into())];
        let by_route = world(Config::default(), [put(&shop), backed(&shop), put_route(&route)]);
        let view = by_route.front_door().expect("it is open");
        let route = ObjectRef::new(Kind::HTTPRoute, "default", route.meta.name.clone());
        let leads = view.entrances.iter().filter(|it| it.object == route).flat_map(|it| &it.leads);
        assert!(leads.clone().count() > 0, "{say:?}");
        for lead in leads {
            assert_eq!(lead.sources == nobody(), !expected, "{say:?}: {lead:?}");
        }
    }
}
