{{/* A file of deploy/kubernetes, to which `files/` has a link, so that no object is written twice. Where links were lost, the file is
empty or has a path in it: without roles and definitions, an upgrade would delete them. */}}
{{- define "seaway.file" -}}
{{- $text := .root.Files.Get (printf "files/%s.yaml" .file) -}}
{{- if not (contains "\nkind: " $text) -}}
{{- fail (printf "files/%s.yaml is not a manifest: the links of the chart were lost. Use the archive that `helm package` writes in a clone" .file) -}}
{{- end -}}
{{- $text -}}
{{- end }}

{{/* The same, in the namespace of this release. */}}
{{- define "seaway.text" -}}
{{- include "seaway.file" . | replace "seaway-system" .root.Release.Namespace -}}
{{- end }}

{{/* A dashboard of Grafana, by a link as well. Its own `{{…}}` are for Grafana. */}}
{{- define "seaway.dashboard" -}}
{{- $text := .root.Files.Get (printf "files/seaway-%s.json" .name) -}}
{{- if not (contains "\"schemaVersion\": " $text) -}}
{{- fail (printf "files/seaway-%s.json is not a dashboard: the links of the chart were lost. Use the archive that `helm package` writes in a clone" .name) -}}
{{- end -}}
{{- trimSuffix "\n" $text -}}
{{- end }}

{{/* Stops at values that are right one by one, but not together. */}}
{{- define "seaway.check" -}}
{{- $v := .Values -}}
{{- $configuration := $v.configuration -}}
{{- if regexMatch "^[0-9]+$" .Release.Namespace -}}
{{- fail (printf "the namespace %s: one of digits alone would be read as a number in manifests" .Release.Namespace) -}}
{{- end -}}
{{- if and $v.policies (semverCompare "<1.32-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "policies: they need Kubernetes 1.32, and this is %s, where each host would be refused and counted as dead" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if and $v.hosts.enabled (gt (addf 21.0 (float64 (include "seaway.seconds" ($configuration.drain | default "30s")))) (float64 $v.hosts.terminationGracePeriodSeconds)) -}}
{{- fail (printf "configuration.drain: hosts wait %v for clients and need 21 seconds more, and are killed after hosts.terminationGracePeriodSeconds, %v, with their addresses left on the machine: make it longer than that" ($configuration.drain | default "30s") $v.hosts.terminationGracePeriodSeconds) -}}
{{- end -}}
{{- $strategy := $v.hosts.updateStrategy | default dict -}}
{{- if and $v.hosts.enabled $strategy (ne (toString ($strategy.type | default "RollingUpdate")) "OnDelete") (not (hasKey ($strategy.rollingUpdate | default dict) "maxSurge")) -}}
{{- fail "hosts.updateStrategy: it replaces the strategy of the manifests, and without rollingUpdate.maxSurge the next pod of a host starts only when the old one is gone, and clients are refused meanwhile: set rollingUpdate to {maxSurge: 1, maxUnavailable: 0}, or maxSurge: 0 where that is wanted" -}}
{{- end -}}
{{- if and $v.certificates.everywhere (not $v.certificates.enabled) -}}
{{- fail "certificates.everywhere: it lets controllers read every Secret, and does nothing without certificates.enabled=true" -}}
{{- end -}}
{{- if and $v.certificates.enabled (ne (toString $configuration.certificateCopies) "seaway-certificates") -}}
{{- fail (printf "certificates.enabled: it makes the namespace seaway-certificates, and configuration.certificateCopies is %v: make them the same" $configuration.certificateCopies) -}}
{{- end -}}
{{- if and $v.metrics (not (hasKey ($configuration.admin | default dict) "metrics")) -}}
{{- fail "metrics: nothing serves them without configuration.admin.metrics: --set-json 'configuration.admin={\"metrics\":{}}'" -}}
{{- end -}}
{{- if and ($v.monitoring).serviceMonitor (not $v.metrics) -}}
{{- fail "monitoring.serviceMonitor: there is nothing to scrape without metrics=true" -}}
{{- end -}}
{{- if and $v.metrics $v.networkPolicy (not $v.metricsFrom) -}}
{{- fail "networkPolicy: it would keep Prometheus from the controllers. Say in metricsFrom where it runs: --set-json 'metricsFrom=[{\"namespaceSelector\":{\"matchLabels\":{\"kubernetes.io/metadata.name\":\"monitoring\"}}}]'" -}}
{{- end -}}
{{- end }}

{{/* Of a duration as Go writes it, or plain seconds: `drain` of seaway.yaml. */}}
{{- define "seaway.seconds" -}}
{{- $text := toString . -}}
{{- $sum := 0.0 -}}
{{- if regexMatch "^[0-9.]+$" $text -}}
{{- $sum = float64 $text -}}
{{- else -}}
{{- range regexFindAll "[0-9.]+[a-z]+" $text -1 -}}
{{- $unit := get (dict "h" 3600.0 "m" 60.0 "s" 1.0) (regexFind "[a-z]+$" .) | default 0.0 -}}
{{- $sum = addf $sum (mulf (float64 (regexFind "^[0-9.]+" .)) $unit) -}}
{{- end -}}
{{- end -}}
{{- $sum -}}
{{- end }}

{{- define "seaway.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* Changes an object as values say; prints nothing. */}}
{{- define "seaway.adjust" -}}
{{- $root := .root -}}
{{- $object := .object -}}
{{- if eq $object.kind "ConfigMap" -}}
{{- $_ := set $object.data "seaway.yaml" (toYaml $root.Values.configuration) -}}
{{- else if and (eq $object.kind "ServiceAccount") $root.Values.imagePullSecrets -}}
{{- $names := list -}}
{{- range $root.Values.imagePullSecrets -}}{{- $names = append $names (dict "name" .) -}}{{- end -}}
{{- $_ := set $object "imagePullSecrets" $names -}}
{{- else if has $object.kind (list "Deployment" "DaemonSet") -}}
{{- $values := ternary $root.Values.controller $root.Values.hosts (eq $object.kind "Deployment") -}}
{{- $pod := $object.spec.template.spec -}}
{{- range concat ($pod.initContainers | default list) $pod.containers -}}
{{- $_ := set . "image" (include "seaway.image" $root) -}}
{{- $_ := set . "imagePullPolicy" $root.Values.image.pullPolicy -}}
{{- end -}}
{{- $container := first $pod.containers -}}
{{- $_ := set $container "resources" (mergeOverwrite $container.resources $values.resources) -}}
{{- $_ := set $pod "nodeSelector" (mergeOverwrite $pod.nodeSelector $values.nodeSelector) -}}
{{- if $values.tolerations -}}{{- $_ := set $pod "tolerations" $values.tolerations -}}{{- end -}}
{{- if $values.terminationGracePeriodSeconds -}}
{{- $_ := set $pod "terminationGracePeriodSeconds" $values.terminationGracePeriodSeconds -}}
{{- end -}}
{{- if and $root.Values.layer2 (eq $object.kind "DaemonSet") -}}
{{- $announcing := (fromYaml (include "seaway.text" (dict "root" $root "file" "layer2-hosts"))).spec.template.spec -}}
{{- $theirs := first $announcing.containers -}}
{{- $_ := set $container.securityContext "capabilities" $theirs.securityContext.capabilities -}}
{{- $_ := set $container "volumeMounts" (concat $theirs.volumeMounts $container.volumeMounts) -}}
{{- $_ := set $pod "volumes" (concat $announcing.volumes $pod.volumes) -}}
{{- end -}}
{{- if $values.updateStrategy -}}{{- $_ := set $object.spec "updateStrategy" $values.updateStrategy -}}{{- end -}}
{{- if eq $object.kind "Deployment" -}}
{{- $_ := set $object.spec "replicas" $values.replicas -}}
{{- if $root.Values.openstack.enabled -}}
{{- $cloud := (fromYaml (include "seaway.text" (dict "root" $root "file" "openstack-controller"))).spec.template.spec -}}
{{- $theirs := first $cloud.containers -}}
{{- $_ := set $pod "securityContext" (merge $pod.securityContext $cloud.securityContext) -}}
{{- $args := append (initial $theirs.args) $root.Values.openstack.clusterName -}}
{{- if ne (join "," $root.Values.openstack.controllers) "service" -}}
{{- $args = concat $args (list "--controllers" (join "," $root.Values.openstack.controllers)) -}}
{{- end -}}
{{- $_ := set $container "args" $args -}}
{{- $_ := set $container "volumeMounts" (concat $theirs.volumeMounts $container.volumeMounts) -}}
{{- range $cloud.volumes -}}{{- $_ := set .secret "secretName" $root.Values.openstack.secretName -}}{{- end -}}
{{- $_ := set $pod "volumes" (concat $cloud.volumes $pod.volumes) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
