{{- /*
Refuses two objects with the same name, because the second would replace the first. Refuses pods with a claim that does
not exist, because they would never start.
*/ -}}
{{- define "tidegate.checks" -}}
{{- $objects := list -}}
{{- $seen := dict -}}
{{- range $file := @TEMPLATES@ -}}
  {{- range $document := regexSplit "(?m)^---\\s*$" (include (print $.Template.BasePath "/" $file) $) -1 -}}
    {{- $object := fromYaml $document -}}
    {{- if $object.kind -}}
      {{- $id := printf "%s %s/%s" $object.apiVersion $object.kind $object.metadata.name -}}
      {{- if hasKey $seen $id }}{{ fail (printf "these values create %s twice: rename one of the servers, pools, datasets or models that share this name" $id) }}{{ end -}}
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
    {{- if and $claim (not (hasKey $claims $claim)) }}{{ fail (printf "%s %s reads the claim %s, but neither datasets nor claims has it" $object.kind $object.metadata.name $claim) }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* The number of replicas. */ -}}
{{- define "tidegate.replicas" -}}
{{- with .autoscaling -}}
{{ .min }} to {{ .max }} replicas, {{ ternary "by CPU use" "by queue time, busy calls or waiting requests" (eq .kind "cpu") }}
{{- else -}}
{{ .replicas }} {{ ternary "replica" "replicas" (eq (int .replicas) 1) }}
{{- end -}}
{{- end -}}

{{- /* The device of a replica. */ -}}
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

{{- /* The source of a dataset. */ -}}
{{- define "tidegate.source" -}}
{{- if eq .kind "csi" -}}
{{ .driver }} {{ .volumeHandle }}
{{- else if eq .kind "nfs" -}}
NFS {{ .server }}:{{ .path }}
{{- else -}}
directory {{ .path }} of the node
{{- end -}}
{{- end -}}
