package controller

import (
	"cmp"

	"github.com/nodelvm/nodelvm/lvm"
)

// parameterFS is the file system's type; csi-provisioner takes it out of the parameters, and puts it into the capability.
const (
	parameterFS = reserved + "fstype"
	usualFS     = "ext4"
)

// ParseClass reads the parameters of a StorageClass object as CreateVolume does; checkFileSystem is as in Config.
// lvm.KindInvalid: no volume can ever be made with them.
func ParseClass(parameters map[string]string, checkFileSystem func(fsType, mkfsOptions string) error) (lvm.Class, error) {
	p, err := parseParameters(parameters)
	if err == nil {
		err = checkFileSystem(cmp.Or(parameters[parameterFS], usualFS), p.mkfs)
	}
	return p.class, err
}
