// Package kubetest reads docs/kubernetes.yaml as Kubernetes does. It is a module of its own, so that the types of
// Kubernetes are no dependencies of the plugin.
package kubetest
