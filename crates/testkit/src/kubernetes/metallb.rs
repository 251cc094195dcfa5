/// MetalLB's own definition of its pools, as far as it matters to whoever reads them.
pub const METALLB: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ipaddresspools.metallb.io}
spec:
  group: metallb.io
  scope: Namespaced
  names: {kind: IPAddressPool, listKind: IPAddressPoolList, plural: ipaddresspools, singular: ipaddresspool}
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";
