// Package lifecycle has the life of volumes in use: expansion under load, snapshots, restores and clones, copies that wait for capacity, file
// systems and kinds of mounts, deletion. One PostgreSQL is the source of most of it: it grows, its snapshot is restored beside it, and what was
// acknowledged before the snapshot must be in the restore.
//
// The scenarios build on each other. The last deletes everything but the thin pools.
package lifecycle
