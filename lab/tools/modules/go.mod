// Modules of which we want files, not programs: CRDs, and the Kubernetes project's own Pod Security fixtures.
// They stand in a module of their own because in tools/go.mod each would have a say in the versions that helm and the
// Kubernetes programs are built with (cert-manager asks for newer ones). pinned.go keeps `go mod tidy` from
// dropping them.
module tidegate.dev/tools/modules

go 1.26.0

require (
	github.com/cert-manager/cert-manager v1.21.2
	github.com/prometheus-operator/prometheus-operator v0.85.0
	istio.io/api v1.31.1
	k8s.io/pod-security-admission v0.36.4
	sigs.k8s.io/gateway-api v1.6.3
)
