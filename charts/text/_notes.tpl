{{- /*
What NOTES.txt is made of. It reads the objects themselves, as the chart's templates make them, so that it speaks of
nothing else than of what is installed.
*/ -}}

{{- /*
Every object of the chart, as a JSON list. Two of one name are refused: the second would replace the first. So are pods
that read a claim that nobody has: they would wait for it forever.
*/ -}}
{{- define "tidegate.objects" -}}
{{- $objects := list -}}
{{- $seen := dict -}}
{{- range $file := @TEMPLATES@ -}}
  {{- range $document := regexSplit "(?m)^---\\s*$" (include (print $.Template.BasePath "/" $file) $) -1 -}}
    {{- $object := fromYaml $document -}}
    {{- if $object.kind -}}
      {{- $id := printf "%s %s/%s" $object.apiVersion $object.kind $object.metadata.name -}}
      {{- if hasKey $seen $id }}{{ fail (printf "these values make %s twice: two servers, pools, datasets or models have names that give it the same name" $id) }}{{ end -}}
      {{- $_ := set $seen $id true -}}
      {{- $objects = append $objects $object -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $claims := dict -}}
{{- range $claim := .Values.claims }}{{ $_ := set $claims $claim.name true }}{{ end -}}
{{- range $object := $objects }}{{ if eq $object.kind "PersistentVolumeClaim" }}{{ $_ := set $claims $object.metadata.name true }}{{ end }}{{ end -}}
{{- range $object := $objects -}}
  {{- range $volume := dig "spec" "template" "spec" "volumes" list $object -}}
    {{- $claim := dig "persistentVolumeClaim" "claimName" "" $volume -}}
    {{- if and $claim (not (hasKey $claims $claim)) }}{{ fail (printf "%s %s reads the claim %s, which neither datasets nor claims have" $object.kind $object.metadata.name $claim) }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- toJson $objects -}}
{{- end -}}

{{- /* Whether a cluster can be asked: not when rendering, nor in a dry run by the client, nor where it is forbidden. */ -}}
{{- define "tidegate.asked" -}}
{{- if ne (dig "lookup" true (.Values.global | default dict)) false -}}
  {{- if lookup "v1" "Namespace" "" "kube-system" }}yes{{ end -}}
{{- end -}}
{{- end -}}

{{- /* What the objects need of the cluster, as a JSON list of mappings: what (in words), and how it is looked up. */ -}}
{{- define "tidegate.needs" -}}
{{- $needs := list -}}
{{- $objects := include "tidegate.objects" . | fromJsonArray -}}
{{- $made := dict "ConfigMap/kube-root-ca.crt" true -}}{{/* Kubernetes makes it in every namespace. */ -}}
{{- range $object := $objects }}{{ $_ := set $made (print $object.kind "/" $object.metadata.name) true }}{{ end -}}
{{- $providers := dict "monitoring.coreos.com" "the Prometheus operator" "cert-manager.io" "cert-manager" "keda.sh" "KEDA" "gateway.networking.k8s.io" "the Gateway API" "security.istio.io" "Istio" "resource.k8s.io" "Kubernetes 1.34 or later" -}}
{{- range $object := $objects -}}
  {{- $namespace := $object.metadata.namespace | default "" -}}
  {{- $group := splitList "/" $object.apiVersion | first -}}
  {{- if hasKey $providers $group -}}
    {{- $needs = append $needs (dict "words" (printf "%s, which brings the kind %s of %s" (get $providers $group) $object.kind $object.apiVersion) "api" (print $object.apiVersion "/" $object.kind)) -}}
  {{- end -}}
  {{- $spec := $object.spec | default dict -}}
  {{- with $object.imagePullSecrets -}}
    {{- range . }}{{ $needs = append $needs (dict "words" "to pull images with" "api" "v1" "kind" "Secret" "namespace" $namespace "name" .name) }}{{ end -}}
  {{- end -}}
  {{- if eq $object.kind "PersistentVolume" -}}
    {{- with $spec.csi -}}
      {{- $needs = append $needs (dict "words" "the CSI driver that mounts a dataset" "api" "storage.k8s.io/v1" "kind" "CSIDriver" "name" .driver) -}}
      {{- with .nodePublishSecretRef }}{{ $needs = append $needs (dict "words" "which the CSI driver reads" "api" "v1" "kind" "Secret" "namespace" .namespace "name" .name) }}{{ end -}}
    {{- end -}}
    {{- with $spec.storageClassName }}{{ $needs = append $needs (dict "words" "named by a dataset, whose volume binds without it all the same" "api" "storage.k8s.io/v1" "kind" "StorageClass" "name" .) }}{{ end -}}
  {{- else if eq $object.kind "HorizontalPodAutoscaler" -}}
    {{- $needs = append $needs (dict "words" "a metrics server (metrics.k8s.io), by which an autoscaler sees CPU use" "api" "metrics.k8s.io/v1beta1") -}}
  {{- else if eq $object.kind "Ingress" -}}
    {{- with $spec.ingressClassName }}{{ $needs = append $needs (dict "words" "of the Ingress" "api" "networking.k8s.io/v1" "kind" "IngressClass" "name" .) }}{{ end -}}
  {{- else if eq $object.kind "HTTPRoute" -}}
    {{- range $spec.parentRefs }}{{ $needs = append $needs (dict "words" "to which the route attaches" "api" "gateway.networking.k8s.io/v1" "kind" "Gateway" "namespace" .namespace "name" .name) }}{{ end -}}
  {{- else if eq $object.kind "Certificate" -}}
    {{- $_ := set $made (print "Secret/" $spec.secretName) true -}}
    {{- $where := ternary $namespace "" (eq $spec.issuerRef.kind "Issuer") -}}
    {{- $needs = append $needs (dict "words" "which issues the proxy's certificate" "api" "cert-manager.io/v1" "kind" $spec.issuerRef.kind "namespace" $where "name" $spec.issuerRef.name) -}}
  {{- else if eq $object.kind "Role" -}}
    {{- range $object.rules }}{{ if has "dynamoworkermetadatas" .resources }}{{ $needs = append $needs (dict "words" "of NVIDIA's chart, without which Dynamo's workers end at once" "api" "apiextensions.k8s.io/v1" "kind" "CustomResourceDefinition" "name" "dynamoworkermetadatas.nvidia.com") }}{{ end }}{{ end -}}
  {{- else if eq $object.kind "ResourceClaimTemplate" -}}
    {{- range $spec.spec.devices.requests }}{{ $needs = append $needs (dict "words" "of NVIDIA's DRA driver" "api" "resource.k8s.io/v1" "kind" "DeviceClass" "name" .exactly.deviceClassName) }}{{ end -}}
  {{- end -}}
  {{- $pod := dig "template" "spec" dict $spec -}}
  {{- with $pod.priorityClassName }}{{ $needs = append $needs (dict "words" "without which no pod is made" "api" "scheduling.k8s.io/v1" "kind" "PriorityClass" "name" .) }}{{ end -}}
  {{- range $volume := $pod.volumes -}}
    {{- with $volume.secret }}{{ $needs = append $needs (dict "words" "which pods mount" "api" "v1" "kind" "Secret" "namespace" $namespace "name" .secretName) }}{{ end -}}
    {{- with $volume.projected }}{{ range $source := .sources }}{{ range $kind := list "Secret" "ConfigMap" }}{{ with get $source (untitle $kind) }}{{ $needs = append $needs (dict "words" "which pods mount" "api" "v1" "kind" $kind "namespace" $namespace "name" .name) }}{{ end }}{{ end }}{{ end }}{{ end -}}
    {{- with dig "ephemeral" "volumeClaimTemplate" "spec" "storageClassName" "" $volume }}{{ $needs = append $needs (dict "words" "of volumes that pods stage models in" "api" "storage.k8s.io/v1" "kind" "StorageClass" "name" .) }}{{ end -}}
    {{- with $volume.persistentVolumeClaim }}{{ $needs = append $needs (dict "words" "which pods mount" "api" "v1" "kind" "PersistentVolumeClaim" "namespace" $namespace "name" .claimName) }}{{ end -}}
  {{- end -}}
  {{- range $container := concat ($pod.initContainers | default list) ($pod.containers | default list) -}}
    {{- range $container.env }}{{ with dig "valueFrom" "secretKeyRef" "" . }}{{ $needs = append $needs (dict "words" "whose values containers have" "api" "v1" "kind" "Secret" "namespace" $namespace "name" .name) }}{{ end }}{{ end -}}
    {{- range $resource, $_ := dig "resources" "limits" dict $container -}}
      {{- if contains "/" $resource }}{{ $needs = append $needs (dict "words" (printf "a node for %s" $object.metadata.name) "resource" $resource "selector" ($pod.nodeSelector | default dict)) }}{{ end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $others := list -}}
{{- range $needs }}{{ if not (and .name (hasKey $made (print .kind "/" .name))) }}{{ $others = append $others . }}{{ end }}{{ end -}}
{{- uniq $others | toJson -}}
{{- end -}}

{{- /* Whether a need is met, by what the cluster says; the context is a list of the root and the need. */ -}}
{{- define "tidegate.met" -}}
{{- $root := first . }}{{ $need := last . -}}
{{- if $need.resource -}}
  {{- range $node := (lookup "v1" "Node" "" "").items -}}
    {{- $fits := ne (dig "status" "allocatable" $need.resource "0" $node) "0" -}}
    {{- range $key, $value := $need.selector }}{{ if ne (dig "metadata" "labels" $key "" $node) $value }}{{ $fits = false }}{{ end }}{{ end -}}
    {{- if $fits }}yes{{ end -}}
  {{- end -}}
{{- else if not $need.name -}}
  {{- if $root.Capabilities.APIVersions.Has $need.api }}yes{{ end -}}
{{- else if $root.Capabilities.APIVersions.Has (print $need.api "/" $need.kind) -}}
  {{- if lookup $need.api $need.kind ($need.namespace | default "") $need.name }}yes{{ end -}}
{{- end -}}
{{- end -}}

{{- /* A need in words. */ -}}
{{- define "tidegate.need" -}}
{{- if .resource -}}
{{ .words }} that offers {{ .resource }}{{ if .selector }} and is labelled {{ range $number, $key := keys .selector | sortAlpha }}{{ if $number }}, {{ end }}{{ $key }}={{ get $.selector $key }}{{ end }}{{ end }} (NVIDIA's GPU operator)
{{- else if .name -}}
{{ .kind }} {{ with .namespace }}{{ . }}/{{ end }}{{ .name }}, {{ .words }}
{{- else -}}
{{ .words }}
{{- end -}}
{{- end -}}

{{- /* How many replicas. */ -}}
{{- define "tidegate.replicas" -}}
{{- with .autoscaling -}}
{{ .min }} to {{ .max }} replicas, {{ ternary "by CPU use" "by what waits in queues" (eq .kind "cpu") }}
{{- else -}}
{{ .replicas }} {{ ternary "replica" "replicas" (eq (int .replicas) 1) }}
{{- end -}}
{{- end -}}

{{- /* What a replica runs on. */ -}}
{{- define "tidegate.device" -}}
{{- if eq .kind "cpu" -}}
CPU
{{- else if eq .kind "gpu" -}}
{{ .count }} whole {{ ternary "GPU" "GPUs" (eq (int .count) 1) }}
{{- else if eq .kind "mig" -}}
MIG {{ .profile }}
{{- else if eq .kind "dra" -}}
{{ .deviceClass }}{{ with .profile }} {{ . }}{{ end }}
{{- else -}}
share of a GPU by {{ .kind }}
{{- end -}}
{{- with .product }} of {{ . }}{{ end -}}
{{- end -}}

{{- /* Where a dataset is. */ -}}
{{- define "tidegate.source" -}}
{{- if eq .kind "csi" -}}
{{ .driver }} {{ .volumeHandle }}
{{- else if eq .kind "nfs" -}}
NFS {{ .server }}:{{ .path }}
{{- else -}}
folder {{ .path }} of the node
{{- end -}}
{{- end -}}
