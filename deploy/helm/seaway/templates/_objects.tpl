{{/* What a file of deploy/kubernetes says, in the namespace of this release. `files/` has links to them, so that no object is written
twice. */}}
{{- define "seaway.text" -}}
{{- .root.Files.Get (printf "files/%s.yaml" .file) | replace "seaway-system" .root.Release.Namespace -}}
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
{{- if $values.resources -}}{{- $_ := set $container "resources" $values.resources -}}{{- end -}}
{{- if $values.nodeSelector -}}{{- $_ := set $pod "nodeSelector" $values.nodeSelector -}}{{- end -}}
{{- if $values.tolerations -}}{{- $_ := set $pod "tolerations" $values.tolerations -}}{{- end -}}
{{- if $values.updateStrategy -}}{{- $_ := set $object.spec "updateStrategy" $values.updateStrategy -}}{{- end -}}
{{- if eq $object.kind "Deployment" -}}
{{- $_ := set $object.spec "replicas" $values.replicas -}}
{{- if $root.Values.openstack.enabled -}}
{{- $cloud := (fromYaml (include "seaway.text" (dict "root" $root "file" "openstack-controller"))).spec.template.spec -}}
{{- $theirs := first $cloud.containers -}}
{{- $_ := set $pod "securityContext" (merge $pod.securityContext $cloud.securityContext) -}}
{{- $_ := set $container "args" (append (initial $theirs.args) $root.Values.openstack.clusterName) -}}
{{- $_ := set $container "volumeMounts" (concat $theirs.volumeMounts $container.volumeMounts) -}}
{{- range $cloud.volumes -}}{{- $_ := set .secret "secretName" $root.Values.openstack.secretName -}}{{- end -}}
{{- $_ := set $pod "volumes" (concat $cloud.volumes $pod.volumes) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
