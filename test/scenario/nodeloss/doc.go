// Package nodeloss has the scenario of a node that is lost with its volumes, and comes back with them: nodelvm-controller releases the claim, the
// StatefulSet starts on another node, and an admin adopts the old volume. The demo has the same in short.
//
// Operated is the scenario of an operator that creates pods and claims itself, without a StatefulSet.
//
// The grace period of nodelvm-controller is shorter than the shipped one. Each scenario begins and ends with an empty cluster.
package nodeloss
