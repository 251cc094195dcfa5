//! Services that stay with Seaway because of their class, said before anybody tries to give them away.

use seaway_model::fact::Service;

use crate::member::cloud::CLASS;

/// Why it cannot be given to another controller; nothing, if it can.
pub(super) fn immutable(service: &Service) -> Option<String> {
    let class = service.class.as_ref().filter(|it| it.as_str() == CLASS)?;
    Some(format!(
        "not released: spec.loadBalancerClass {class} cannot be changed, and the cloud provider's controller serves no Service \
         with a class: without Seaway nothing would follow its ports and Nodes. To give it away, make it again without one; \
         seaway.dev/keep-floating-ip: \"true\" keeps its floating IP meanwhile (docs/from-occm-back.md). As long as it is there, it is \
         held by the finalizer seaway.dev/load-balancer-cleanup, so it cannot be deleted once Seaway is gone."
    ))
}

#[cfg(test)]
mod tests {
    use seaway_testkit::facts::shop;

    use super::*;

    #[test]
    fn a_service_of_a_class_is_told_that_it_has_no_way_back() {
        let of = |class: Option<&str>| Service { class: class.map(Into::into), ..shop() };
        let told = immutable(&of(Some(CLASS))).expect("it is told");
        assert!(told.contains("seaway.dev/load-balancer-cleanup"), "{told}");
        assert!(told.contains("cannot be changed") && told.contains("make it again without one"), "{told}");
        assert_eq!(immutable(&of(None)), None);
        assert_eq!(immutable(&of(Some("somebody.else/lb"))), None);
    }
}
