// Package moves has scenarios of volumes that move to another node: a PostgreSQL with claims for its data and its write-ahead log moves under
// pgbench and back, as annotations on its claims ask for.
// Replicas are restored from one snapshot on three nodes.
//
// The driver runs with move.enabled meanwhile. The last step installs it as shipped again.
package moves
