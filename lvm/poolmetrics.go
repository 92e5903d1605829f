package lvm

// PoolMetrics are the metrics of one thin pool.
type PoolMetrics struct {
	Name         string
	Size         Bytes // of its data
	Used         Bytes // 0 while the pool is not active
	MetadataSize Bytes
	MetadataUsed Bytes // 0 while the pool is not active
	Promised     Bytes // sum of the virtual sizes of its volumes and snapshots
	Grown        int   // how often the driver autoextended it since it started
}
