{{- /*
Refuses two objects of one name, of which the second would replace the first, and pods that read a claim that does not
exist, for which they would wait for ever.
*/ -}}
{{- define "tidegate.checks" -}}
{{- $objects := list -}}
{{- $seen := dict -}}
{{- range $file := list "dataset-volume.yaml" "environment.yaml" "gpu-placement.yaml" "mesh.yaml" "monitoring.yaml" "network-boundary.yaml" "openai-frontends.yaml" "openai-pool.yaml" "proxy.yaml" "triton-pool.yaml" -}}
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
