//go:build tools

// Package modules imports one package of every pinned module, so that `go mod tidy` keeps it. Each is a package that
// imports nothing, so that the modules' own requirements stay out of go.mod and go.sum.
package modules

import (
	_ "github.com/cert-manager/cert-manager/pkg/apis"
	_ "github.com/prometheus-operator/prometheus-operator/example/alertmanager-webhook"
	_ "istio.io/api/label"
	_ "k8s.io/pod-security-admission"
	_ "sigs.k8s.io/gateway-api/pkg/consts"
)
