package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// Keys of a StorageClass' parameters.
const (
	parameterGroup  = "volumeGroup"
	parameterLayout = "layout"
	parameterWipe   = "wipe"
)

// reserved is the prefix of the keys that belong to Kubernetes. The provisioner adds the claim's and the PV's names
// under it (--extra-create-metadata) and consumes what it knows itself, the file system type for one.
const reserved = "csi.storage.k8s.io/"

// parseParameters reads a StorageClass' parameters, and whose claim the volume is for: "namespace/name", empty where
// the caller does not say. A key or a value that is not known is lvm.KindInvalid: a typo must not be silent.
func parseParameters(parameters map[string]string) (class lvm.Class, claim string, err error) {
	class = lvm.Class{Layout: lvm.LayoutLinear, Wipe: lvm.WipeZero}
	for _, key := range slices.Sorted(maps.Keys(parameters)) {
		value := parameters[key]
		switch {
		case key == parameterGroup:
			class.Group = value
		case key == parameterLayout:
			class.Layout, err = parseLayout(value)
		case key == parameterWipe:
			class.Wipe, err = parseWipe(value)
		case !strings.HasPrefix(key, reserved):
			err = lvm.Errorf(lvm.KindInvalid, "the StorageClass has the unknown parameter %q; known are %s, %s and %s",
				key, parameterGroup, parameterLayout, parameterWipe)
		}
		if err != nil {
			return lvm.Class{}, "", err
		}
	}
	if class.Group == "" {
		return lvm.Class{}, "", lvm.Errorf(lvm.KindInvalid, "the StorageClass does not say where to carve volumes; "+
			"set the parameter %s to a volume group's name, or to \"@tag\" for any group with that LVM tag", parameterGroup)
	}
	return class, claimOf(parameters), nil
}

// layouts are the layouts of the driver's design; false: not in this version.
var layouts = map[lvm.Layout]bool{
	lvm.LayoutLinear: true,
	"striped":        false,
	"raid1":          false,
	"raid5":          false,
	"raid6":          false,
	"raid10":         false,
	"thin":           false,
}

func parseLayout(value string) (lvm.Layout, error) {
	layout := lvm.Layout(value)
	available, known := layouts[layout]
	switch {
	case !known:
		return "", lvm.Errorf(lvm.KindInvalid, "the StorageClass has the unknown %s %q; available is %s", parameterLayout, value, lvm.LayoutLinear)
	case !available:
		return "", lvm.Errorf(lvm.KindInvalid, "the StorageClass has %s %q, which this version of nodelvm does not make yet; available is %s",
			parameterLayout, value, lvm.LayoutLinear)
	}
	return layout, nil
}

func parseWipe(value string) (lvm.Wipe, error) {
	switch wipe := lvm.Wipe(value); wipe {
	case lvm.WipeZero, lvm.WipeNone:
		return wipe, nil
	}
	return "", lvm.Errorf(lvm.KindInvalid, "the StorageClass has the unknown %s %q; known are %s (every byte is zeroed before its space is used again) and %s",
		parameterWipe, value, lvm.WipeZero, lvm.WipeNone)
}

// claimOf names the claim that the volume is for, where the provisioner tells (--extra-create-metadata).
func claimOf(parameters map[string]string) string {
	namespace, name := parameters[reserved+"pvc/namespace"], parameters[reserved+"pvc/name"]
	if namespace == "" || name == "" {
		return ""
	}
	return fmt.Sprintf("%s/%s", namespace, name)
}
