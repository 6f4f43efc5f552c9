{{- define "tidegate.access.json" -}}
{
  "issuers": [
    {{- range $oidc := ($.Values.proxy.auth).oidc }}
    {
      "audiences": [{{ range $oidc.audiences }}{{ . | quote }}, {{ end }}],
      "groupsClaim": {{ $oidc.groupsClaim | default "groups" | quote }},
      "issuer": {{ $oidc.issuer | quote }},
      {{- if ne $oidc.jwksUrl nil }}
      "jwksUrl": {{ $oidc.jwksUrl | quote }},
      {{- end }}
    },
    {{- end }}
  ],
  "rateLimit": {
    "burst": {{ int64 (($.Values.proxy.rateLimit).burst | default 100) }},
    "requestsPerMinute": {{ int64 (($.Values.proxy.rateLimit).requestsPerMinute | default 1000) }},
    {{- if ne ($.Values.proxy.rateLimit).tokensPerMinute nil }}
    "tokensPerMinute": {{ int64 ($.Values.proxy.rateLimit).tokensPerMinute }},
    {{- end }}
  },
  "rules": [
    {{- range $access := $.Values.proxy.access }}
    {
      "actions": [{{ range $access.actions | default (list "infer" "inspect") }}{{ . | quote }}, {{ end }}],
      "groups": [{{ range $access.groups }}{{ . | quote }}, {{ end }}],
      "models": [{{ range $access.models | default (list "*") }}{{ . | quote }}, {{ end }}],
      "name": {{ $access.name | quote }},
      "principals": [{{ range $access.principals }}{{ . | quote }}, {{ end }}],
      "servers": [{{ range $access.servers | default (list "*") }}{{ . | quote }}, {{ end }}],
      {{- if ne $access.source nil }}
      "source": {{ $access.source | quote }},
      {{- end }}
    },
    {{- end }}
  ],
  "version": 1,
}
{{- end }}

{{- define "tidegate.any.server.identity.cloud.gcp" -}}
{{- range $server := $.Values.servers }}{{ if and $server.identity (eq $server.identity.cloud "gcp") }}true{{ end }}{{ end }}
{{- end }}

{{- define "tidegate.any.server.kind.default.triton.grpcTls" -}}
{{- range $server := $.Values.servers }}{{ if and (eq ($server.kind | default "triton") "triton") ($server.triton).grpcTls }}true{{ end }}{{ end }}
{{- end }}

{{- define "tidegate.bytes" -}}
{{- $unit := regexFind "[A-Za-z]*$" . -}}
{{- $factors := dict "" 1 "m" 0.001 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "P" 1000000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 -}}
{{- mulf (trimSuffix $unit .) (get $factors $unit) | int64 -}}
{{- end }}

{{- define "tidegate.eviction.json" -}}
{{- $pool := .pool }}
{{- $server := .server }}
{
  "capacityBytes": {{ int64 (include "tidegate.bytes" (required "loading.capacity is required: the memory that the models of a replica may use" $pool.loading.capacity)) }},
  "grpcTls": {{ not (empty ($server.triton).grpcTls) }},
  "idleSeconds": {{ int64 (ternary $pool.loading.idleSeconds 300 (ne $pool.loading.idleSeconds nil)) }},
  "leaseSeconds": {{ int64 ($pool.loading.leaseSeconds | default 15) }},
  "models": [
    {{- range $model := $pool.models }}
    {
      {{- if ne $model.alias nil }}
      "alias": {{ $model.alias | quote }},
      {{- end }}
      {{- if ne $model.footprint nil }}
      "footprintBytes": {{ int64 (include "tidegate.bytes" $model.footprint) }},
      {{- end }}
      {{- if ne $model.idleSeconds nil }}
      "idleSeconds": {{ int64 $model.idleSeconds }},
      {{- end }}
      "name": {{ $model.name | quote }},
      "pinned": {{ $model.pinned | default false }},
      "versions": [
        {{- range $version := $model.versions }}
        {{- if $version.weight }}
        {{ int64 $version.version }},
        {{- end }}
        {{- end }}
      ],
    },
    {{- end }}
  ],
  "policy": {{ $pool.loading.policy | default "break-even" | quote }},
  {{- if eq $server.repository.kind "object-store" }}
  "repository": {{ $server.repository.url | quote }},
  {{- else }}
  "repository": "/models",
  {{- end }}
  {{- if $pool.loading.staging }}
  "staging": {
    "folder": "/var/lib/tidegate-staging",
    "sizeBytes": {{ div (mul (int64 (include "tidegate.bytes" $pool.loading.staging.size)) 15) 16 }},
  },
  {{- end }}
  "version": 1,
  "waitSeconds": {{ int64 (ternary $pool.loading.waitSeconds 20 (ne $pool.loading.waitSeconds nil)) }},
}
{{- end }}

{{- define "tidegate.routing.json" -}}
{
  {{- if ne $.Values.called nil }}
  "environment": {{ $.Values.called | quote }},
  {{- else }}
  "environment": {{ $.Values.name | quote }},
  {{- end }}
  "models": [
    {{- range $server := $.Values.servers }}
    {{- range $pool := $server.pools }}
    {{- range $model := $pool.models }}
    {
      {{- if ne $model.alias nil }}
      "alias": {{ $model.alias | quote }},
      {{- end }}
      {{- if ne $model.footprint nil }}
      "footprintBytes": {{ int64 (include "tidegate.bytes" $model.footprint) }},
      {{- end }}
      {{- if ne $model.idleSeconds nil }}
      "idleSeconds": {{ int64 $model.idleSeconds }},
      {{- else if eq $pool.loading.mode "on-demand" }}
      "idleSeconds": {{ int64 (ternary $pool.loading.idleSeconds 300 (ne $pool.loading.idleSeconds nil)) }},
      {{- end }}
      "name": {{ $model.name | quote }},
      "pinned": {{ $model.pinned | default false }},
      {{- if ne $pool.called nil }}
      "pool": {{ $pool.called | quote }},
      {{- else }}
      "pool": {{ $pool.name | quote }},
      {{- end }}
      {{- if $model.servedNames }}
      "servedNames": [{{ range $model.servedNames }}{{ . | quote }}, {{ end }}],
      {{- end }}
      {{- if ne $server.called nil }}
      "server": {{ $server.called | quote }},
      {{- else }}
      "server": {{ $server.name | quote }},
      {{- end }}
      "versions": [
        {{- range $version := $model.versions }}
        {
          "version": {{ int64 $version.version }},
          "weight": {{ int64 $version.weight }},
        },
        {{- end }}
      ],
    },
    {{- end }}
    {{- end }}
    {{- end }}
  ],
  "servers": [
    {{- range $server := $.Values.servers }}
    {
      "kind": {{ $server.kind | default "triton" | quote }},
      {{- if ne $server.called nil }}
      "name": {{ $server.called | quote }},
      {{- else }}
      "name": {{ $server.name | quote }},
      {{- end }}
      {{- if eq ($server.kind | default "triton") "triton" }}
      "pools": [
        {{- range $pool := $server.pools }}
        {
          {{- if and (not $pool.autoscaling) (not (ternary $pool.replicas 1 (ne $pool.replicas nil))) }}
          "empty": true,
          {{- end }}
          "grpcPort": 8001,
          "grpcTls": {{ not (empty ($server.triton).grpcTls) }},
          "host": {{ printf "%s-%s-headless.%s.svc" $server.name $pool.name $.Values.namespace.name | quote }},
          "httpPort": 8000,
          {{- if eq $pool.loading.mode "on-demand" }}
          "leasePort": 8090,
          {{- end }}
          "loading": {{ $pool.loading.mode | quote }},
          {{- if ne $pool.called nil }}
          "name": {{ $pool.called | quote }},
          {{- else }}
          "name": {{ $pool.name | quote }},
          {{- end }}
          {{- if and (and $pool.autoscaling (eq $pool.autoscaling.kind "queue")) (not $pool.autoscaling.min) }}
          "wakeSeconds": {{ int64 ($pool.autoscaling.wakeSeconds | default 45) }},
          {{- end }}
        },
        {{- end }}
      ],
      {{- else if eq $server.kind "openai" }}
      "pools": [
        {{- range $pool := $server.pools }}
        {
          {{- if and (not $pool.autoscaling) (not (ternary $pool.replicas 1 (ne $pool.replicas nil))) }}
          "empty": true,
          {{- end }}
          "grpcTls": false,
          {{- if eq $server.openai.engine "dynamo" }}
          {{- if ne $server.openai.frontends nil }}
          "host": {{ printf "%s-frontends.%s.svc" $server.name $.Values.namespace.name | quote }},
          {{- else }}
          "host": {{ printf "%s-%s-headless.%s.svc" $server.name $pool.name $.Values.namespace.name | quote }},
          {{- end }}
          {{- else }}
          "host": {{ printf "%s-%s-headless.%s.svc" $server.name $pool.name $.Values.namespace.name | quote }},
          {{- end }}
          "httpPort": 8000,
          {{- if eq $pool.loading.mode "on-demand" }}
          "leasePort": 8090,
          {{- end }}
          {{- if eq $server.openai.engine "dynamo" }}
          "livePath": "/live",
          {{- else if eq $server.openai.engine "vllm" }}
          "livePath": "/health",
          {{- else if eq $server.openai.engine "sglang" }}
          "livePath": "/health",
          {{- else if eq $server.openai.engine "nim" }}
          "livePath": "/v1/health/live",
          {{- else if eq $server.openai.engine "custom" }}
          "livePath": {{ $server.openai.livePath | default "/health" | quote }},
          {{- end }}
          "loading": {{ $pool.loading.mode | quote }},
          {{- if ne $pool.called nil }}
          "name": {{ $pool.called | quote }},
          {{- else }}
          "name": {{ $pool.name | quote }},
          {{- end }}
          {{- if and (and $pool.autoscaling (eq $pool.autoscaling.kind "queue")) (not $pool.autoscaling.min) }}
          "wakeSeconds": {{ int64 ($pool.autoscaling.wakeSeconds | default 45) }},
          {{- end }}
        },
        {{- end }}
      ],
      {{- end }}
    },
    {{- end }}
  ],
  "version": 1,
}
{{- end }}

{{- define "tidegate.settings-checksum" -}}
{
  {{- if ($.Values.proxy.auth).apiKeys }}
  "TIDEGATE_PROXY_API_KEYS": "true",
  {{- else }}
  "TIDEGATE_PROXY_API_KEYS": "false",
  {{- end }}
  "TIDEGATE_PROXY_BODY_LIMIT_BYTES": {{ int64 (include "tidegate.bytes" ($.Values.proxy.bodyLimit | default "64Mi")) | quote }},
  "TIDEGATE_PROXY_CONCURRENCY": {{ int64 ($.Values.proxy.concurrency | default 1024) | quote }},
  "TIDEGATE_PROXY_CONNECT_TIMEOUT_SECONDS": {{ int64 (($.Values.proxy.timeouts).connectSeconds | default 2) | quote }},
  "TIDEGATE_PROXY_DRAIN_SECONDS": {{ int64 (($.Values.proxy.timeouts).drainSeconds | default 60) | quote }},
  "TIDEGATE_PROXY_ENVIRONMENT": {{ $.Values.name | quote }},
  "TIDEGATE_PROXY_LOG_LEVEL": {{ $.Values.proxy.logLevel | default "info" | quote }},
  "TIDEGATE_PROXY_REPLICAS_HOST": {{ printf "inference-proxy-headless.%s.svc" $.Values.namespace.name | quote }},
  "TIDEGATE_PROXY_REQUEST_TIMEOUT_SECONDS": {{ int64 (($.Values.proxy.timeouts).requestSeconds | default 60) | quote }},
  {{- if $.Values.proxy.tls }}
  "TIDEGATE_PROXY_TLS": "true",
  {{- else }}
  "TIDEGATE_PROXY_TLS": "false",
  {{- end }}
  {{- if ($.Values.proxy.auth).authorities }}
  "TIDEGATE_PROXY_AUTHORITIES": "true",
  {{- end }}
  {{- if and (eq ($.Values.proxy.exposure).kind "ingress") (not (eq (($.Values.proxy.exposure).path | default "/") "/"))
        }}
  "TIDEGATE_PROXY_PATH": {{ ($.Values.proxy.exposure).path | default "/" | quote }},
  {{- end }}
  {{- if and (eq ($.Values.proxy.exposure).kind "http-route") (not (eq (($.Values.proxy.exposure).path | default "/")
        "/")) }}
  "TIDEGATE_PROXY_PATH": {{ ($.Values.proxy.exposure).path | default "/" | quote }},
  {{- end }}
  {{- if $.Values.proxy.tracing }}
  "TIDEGATE_PROXY_OTLP_ENDPOINT": {{ $.Values.proxy.tracing.endpoint | quote }},
  "TIDEGATE_PROXY_TRACE_PERCENT": {{ int64 (ternary $.Values.proxy.tracing.percent 1 (ne $.Values.proxy.tracing.percent nil)) | quote }},
  {{- end }}
  {{- if ne $.Values.proxy.metrics nil }}
  "TIDEGATE_PROXY_METRICS_CALLERS": {{ int64 ($.Values.proxy.metrics.callers | default 0) | quote }},
  "TIDEGATE_PROXY_METRICS_MODELS": {{ int64 (ternary $.Values.proxy.metrics.models 1000 (ne $.Values.proxy.metrics.models nil)) | quote }},
  {{- end }}
  {{- if and (ne $.Values.domino nil) ($.Values.proxy.auth).dominoPrincipal }}
  {{- if ne $.Values.domino.principalUrl nil }}
  "TIDEGATE_PROXY_DOMINO_PRINCIPAL_URL": {{ $.Values.domino.principalUrl | quote }},
  {{- else }}
  "TIDEGATE_PROXY_DOMINO_PRINCIPAL_URL": {{ printf "http://nucleus-frontend.%s.svc:80/v4/auth/principal" ($.Values.domino.platformNamespace | default "domino-platform") | quote }},
  {{- end }}
  {{- end }}
}
{{- end }}
