// Package backup has backups with Velero, which moves the data of snapshots to an S3 server. It follows the page docs/howto/backup.md as written. Then it backs up
// a PostgreSQL under load, with its log on a second claim and a raw volume beside it, and restores it on another node, and once more when that node is lost. What
// was acknowledged before a backup must be in the restore.
//
// The scenarios build on each other. The last one removes Velero, and leaves thin pools.
package backup
