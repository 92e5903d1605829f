package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// parameters are the parsed parameters of a StorageClass.
type parameters struct {
	class lvm.Class // absent parameters are zero, except the layout; package lvm has the defaults
	mkfs  string    // not yet checked: the file system determines which options are allowed
}

// parseParameters parses the parameters of a StorageClass. lvm.KindInvalid: an unknown key or value, so that the user learns of
// a typo. Package lvm checks which parameters a layout has.
func parseParameters(values map[string]string) (parameters, error) {
	p := parameters{class: lvm.Class{Layout: lvm.LayoutLinear}, mkfs: values[api.ParameterMkfsOptions]}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		known, is := lvm.FindParameter(key)
		switch {
		case is:
			if err := known.Parse(&p.class, values[key]); err != nil {
				return parameters{}, lvm.Errorf(lvm.KindInvalid, "the StorageClass' parameter %s is %q; %w", key, values[key], err)
			}
		case !strings.HasPrefix(key, api.ParameterPrefix):
			return parameters{}, lvm.Errorf(lvm.KindInvalid, "the StorageClass has the unknown parameter %q%s; known are %s",
				key, lvm.DidYouMean(key), strings.Join(slices.Sorted(slices.Values(lvm.ParameterNames())), ", "))
		}
	}
	if p.class.Group == "" {
		return parameters{}, lvm.Errorf(lvm.KindInvalid, "the StorageClass does not name a volume group; "+
			"set the parameter %s to a volume group's name, or to \"@tag\" for any group with that LVM tag", api.ParameterVolumeGroup)
	}
	return p, nil
}

// claimOf returns the volume's claim, if the provisioner passes it (--extra-create-metadata).
func claimOf(values map[string]string) string {
	namespace, name := values[api.ParameterClaimNamespace], values[api.ParameterClaimName]
	if namespace == "" || name == "" {
		return ""
	}
	return fmt.Sprintf("%s/%s", namespace, name)
}
