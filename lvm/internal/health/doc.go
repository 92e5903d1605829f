// Package health describes volume groups and volumes as LVM's metadata and the kernel show them: their conditions, the metrics of
// thin pools, and the inventory. It starts no process.
package health
