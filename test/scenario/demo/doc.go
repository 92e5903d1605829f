// Package demo is what `make demo` shows and `make test` checks: a PostgreSQL StatefulSet gets LVM volumes on the nodes that the scheduler chose,
// and keeps its data. It also runs the commands of the documentation, as written.
//
// The scenarios build on each other and want a fresh cluster. The clean-up deletes everything, and finds the free extents of the beginning again.
// The death of a node, with which the demo ends, is of package nodeloss.
package demo
