// Package groups has the scenario of group snapshots: a PostgreSQL with data and log on two volumes recovers from each. The snapshot-controller is that
// of the lab; the driver takes and deletes the group snapshots.
//
// The driver runs with groupSnapshots.enabled meanwhile. The last step installs it as shipped again.
package groups
