package host

import "github.com/nodelvm/nodelvm/internal/dm"

// Modules has the kernel modules of a node.
type Modules interface {
	IsLoaded(name string) bool   // the kernel has it, loaded or built in
	IsLoadable(name string) bool // it has a file below /lib/modules; the kernel may refuse it. Device-mapper's modules alone
}

// ReadModules reads the lists of modules of the kernel with this release, without a process. sys is the mount point of sysfs, dir
// /lib/modules.
func ReadModules(sys, dir, release string) (Modules, error) {
	return dm.Modules{Sys: sys, Dir: dir, Release: release}.Read()
}
