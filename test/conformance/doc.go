// Package conformance runs upstream's suite for storage drivers (test/e2e/storage/external in Kubernetes) against a
// cluster of the lab, for a linear and for a thin class.
//
// What is claimed stands in definitions/, what is left out and why in [Exclusions]. Everything else of the suite is a
// claim: a spec that fails, or that the suite itself skips, is one that did not pass. The claimed specs are run in
// shards. The outcome of each is kept in a folder, so that a run that was cut off goes on where it was.
package conformance
