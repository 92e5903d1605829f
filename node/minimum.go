package node

import "github.com/nodelvm/nodelvm/lvm"

// MinimumSize is the size of the smallest device that a file system of the type can be made on; 0: any.
func MinimumSize(fsType string) lvm.Bytes { return minimums[fsType] }
