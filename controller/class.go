package controller

import (
	"cmp"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// ParseClass reads the parameters of a StorageClass object as CreateVolume does; checkFileSystem is as in Config.
// lvm.KindInvalid: no volume can ever be made with them.
func ParseClass(parameters map[string]string, checkFileSystem func(fsType, mkfsOptions string) error) (lvm.Class, error) {
	p, err := parseParameters(parameters)
	if err == nil {
		err = checkFileSystem(cmp.Or(parameters[api.ParameterFSType], api.DefaultFSType), p.mkfs)
	}
	return p.class, err
}
