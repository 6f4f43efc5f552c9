// Modules of which the tests need files, not programs: CRDs, and Kubernetes' Pod Security fixtures. Some of them, such as
// cert-manager, need newer modules than Helm and Kubernetes. pinned.go keeps `go mod tidy` from removing them.
module tidegate.dev/tools/modules

go 1.26.0

require (
	github.com/cert-manager/cert-manager v1.21.2
	github.com/prometheus-operator/prometheus-operator v0.85.0
	istio.io/api v1.31.1
	k8s.io/pod-security-admission v0.36.4
	sigs.k8s.io/gateway-api v1.6.3
)
