{{- define "tidegate.access.json" -}}
{
  "issuers": [
    {{- range $oidc := $.Values.proxy.auth.oidc }}
    {
      "audiences": [{{ range $oidc.audiences }}{{ . | quote }}, {{ end }}],
      "groupsClaim": {{ $oidc.groupsClaim | quote }},
      "issuer": {{ $oidc.issuer | quote }},
      {{- if ne $oidc.jwksUrl nil }}
      "jwksUrl": {{ $oidc.jwksUrl | quote }},
      {{- end }}
    },
    {{- end }}
  ],
  "rateLimit": {
    "burst": {{ int64 $.Values.proxy.rateLimit.burst }},
    "requestsPerMinute": {{ int64 $.Values.proxy.rateLimit.requestsPerMinute }},
  },
  "rules": [
    {{- range $access := $.Values.proxy.access }}
    {
      "actions": [{{ range $access.actions }}{{ . | quote }}, {{ end }}],
      "groups": [{{ range $access.groups }}{{ . | quote }}, {{ end }}],
      "models": [{{ range $access.models }}{{ . | quote }}, {{ end }}],
      "name": {{ $access.name | quote }},
      "principals": [{{ range $access.principals }}{{ . | quote }}, {{ end }}],
      "servers": [{{ range $access.servers }}{{ . | quote }}, {{ end }}],
    },
    {{- end }}
  ],
  "version": 1,
}
{{- end }}

{{- define "tidegate.any.server.triton.grpcTls" -}}
{{- range $server := $.Values.servers }}{{ if $server.triton.grpcTls }}true{{ end }}{{ end }}
{{- end }}

{{- define "tidegate.eviction.json" -}}
{{- $pool := .pool }}
{{- $server := .server }}
{
  "capacityBytes": {{ int64 $pool.loading.capacityBytes }},
  "grpcTls": {{ not (empty $server.triton.grpcTls) }},
  "idleSeconds": {{ int64 $pool.loading.idleSeconds }},
  "leaseSeconds": {{ int64 $pool.loading.leaseSeconds }},
  "models": [
    {{- range $model := $pool.models }}
    {
      {{- if ne $model.alias nil }}
      "alias": {{ $model.alias | quote }},
      {{- end }}
      {{- if ne $model.footprintBytes nil }}
      "footprintBytes": {{ int64 $model.footprintBytes }},
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
  "policy": {{ $pool.loading.policy | quote }},
  {{- if eq $server.repository.kind "volume" }}
  "repository": "/models",
  {{- else if eq $server.repository.kind "object-store" }}
  "repository": {{ $server.repository.url | quote }},
  {{- end }}
  "version": 1,
  "waitSeconds": {{ int64 $pool.loading.waitSeconds }},
  "warmWindows": [
    {{- range $warmWindow := $pool.loading.warmWindows }}
    {
      "durationSeconds": {{ int64 $warmWindow.durationSeconds }},
      "models": [{{ range $warmWindow.models }}{{ . | quote }}, {{ end }}],
      "name": {{ $warmWindow.name | quote }},
      "opens": {{ $warmWindow.opens | quote }},
      "timeZone": {{ $warmWindow.timeZone | quote }},
    },
    {{- end }}
  ],
}
{{- end }}

{{- define "tidegate.routing.json" -}}
{
  "environment": {{ $.Values.name | quote }},
  "models": [
    {{- range $server := $.Values.servers }}
    {{- range $pool := $server.pools }}
    {{- range $model := $pool.models }}
    {
      {{- if ne $model.alias nil }}
      "alias": {{ $model.alias | quote }},
      {{- end }}
      {{- if ne $model.footprintBytes nil }}
      "footprintBytes": {{ int64 $model.footprintBytes }},
      {{- end }}
      {{- if ne $model.idleSeconds nil }}
      "idleSeconds": {{ int64 $model.idleSeconds }},
      {{- else if eq $pool.loading.mode "on-demand" }}
      "idleSeconds": {{ int64 $pool.loading.idleSeconds }},
      {{- end }}
      "name": {{ $model.name | quote }},
      "pinned": {{ $model.pinned | default false }},
      "pool": {{ $pool.name | quote }},
      "server": {{ $server.name | quote }},
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
      "kind": {{ $server.kind | quote }},
      "name": {{ $server.name | quote }},
      "pools": [
        {{- range $pool := $server.pools }}
        {
          "grpcPort": 8001,
          "grpcTls": {{ not (empty $server.triton.grpcTls) }},
          "host": {{ printf "%s-%s-headless.%s.svc" $server.name $pool.name $.Values.namespace.name | quote }},
          "httpPort": 8000,
          {{- if eq $pool.loading.mode "on-demand" }}
          "leasePort": 8090,
          {{- end }}
          "loading": {{ $pool.loading.mode | quote }},
          "name": {{ $pool.name | quote }},
        },
        {{- end }}
      ],
    },
    {{- end }}
  ],
  "version": 1,
}
{{- end }}

{{- define "tidegate.settings-checksum" -}}
{
  {{- if $.Values.proxy.auth.apiKeys }}
  "TIDEGATE_PROXY_API_KEYS": "true",
  {{- else }}
  "TIDEGATE_PROXY_API_KEYS": "false",
  {{- end }}
  "TIDEGATE_PROXY_BODY_LIMIT_BYTES": {{ int64 $.Values.proxy.bodyLimitBytes | quote }},
  "TIDEGATE_PROXY_CONCURRENCY": {{ int64 $.Values.proxy.concurrency | quote }},
  "TIDEGATE_PROXY_CONNECT_TIMEOUT_SECONDS": {{ int64 $.Values.proxy.timeouts.connectSeconds | quote }},
  "TIDEGATE_PROXY_DRAIN_SECONDS": {{ int64 $.Values.proxy.timeouts.drainSeconds | quote }},
  "TIDEGATE_PROXY_ENVIRONMENT": {{ $.Values.name | quote }},
  "TIDEGATE_PROXY_LOG_LEVEL": {{ $.Values.proxy.logLevel | quote }},
  "TIDEGATE_PROXY_REPLICAS_HOST": {{ printf "inference-proxy-headless.%s.svc" $.Values.namespace.name | quote }},
  "TIDEGATE_PROXY_REQUEST_TIMEOUT_SECONDS": {{ int64 $.Values.proxy.timeouts.requestSeconds | quote }},
  {{- if $.Values.proxy.tls }}
  "TIDEGATE_PROXY_TLS": "true",
  {{- else }}
  "TIDEGATE_PROXY_TLS": "false",
  {{- end }}
  {{- if and $.Values.domino $.Values.proxy.auth.dominoPrincipal }}
  "TIDEGATE_PROXY_DOMINO_PRINCIPAL_URL": {{ printf "http://nucleus-frontend.%s:80/v4/auth/principal" $.Values.domino.platformNamespace | quote }},
  {{- end }}
}
{{- end }}
