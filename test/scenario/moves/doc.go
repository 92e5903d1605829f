// Package moves has scenarios of volumes that move to another node: a PostgreSQL with claims for its data and its write-ahead log moves under
// pgbench and back, as annotations on its claims ask for. A node with volumes of all kinds is drained with the plugin, and replaced.
// Replicas are restored from one snapshot on three nodes.
//
// The driver runs with move.enabled meanwhile. The last step installs it as shipped again.
package moves
