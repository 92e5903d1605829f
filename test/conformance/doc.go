// Package conformance runs Kubernetes' suite for external storage drivers (k8s.io/kubernetes/test/e2e/storage/external) against a
// cluster of the lab, for a linear and for a thin class.
//
// The folder definitions says what the driver claims, and [Exclusions] what is left out and why. Everything else of the
// suite is a claim: a spec that fails, or that the suite skips, counts as not passed. Each outcome is stored in a
// folder, so that an interrupted run continues.
package conformance
