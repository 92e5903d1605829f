package lvm

import "slices"

// Targets of device-mapper that a part of the classes needs. The kernel's module of a target is "dm-" and its name.
const (
	TargetThinPool = "thin-pool"
	TargetRAID     = "raid"
	TargetCrypt    = "crypt"
)

// Targets lists the targets that not every kernel has.
var Targets = []string{TargetThinPool, TargetRAID, TargetCrypt}

// TargetState says whether volumes can use a device-mapper target.
type TargetState int

const (
	TargetPresent  TargetState = iota // the kernel has it
	TargetLoadable                    // the kernel lacks it, and the module's file is there: LVM loads it
	TargetMissing                     // the kernel lacks it, and no file of its module is there
)

// Targets returns the targets that volumes of the class need.
func (class Class) Targets() (needed []string) {
	switch {
	case class.Layout == LayoutThin:
		needed = append(needed, TargetThinPool)
	case class.IsRAID():
		needed = append(needed, TargetRAID)
	}
	if class.Encryption == EncryptionLUKS2 {
		needed = append(needed, TargetCrypt)
	}
	return needed
}

// CheckTargets refuses a class whose volumes this node's kernel cannot map.
func CheckTargets(s State, class Class) error {
	for _, target := range class.Targets() {
		if slices.Contains(s.MissingTargets, target) {
			return Errorf(KindInsufficientCapacity, "the kernel of this node has no module dm-%s, or cannot load it: install the package with the kernel's extra modules (linux-modules-extra, kernel-modules), load the module when the node boots, or boot the kernel that /lib/modules belongs to", target)
		}
	}
	return nil
}
