package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/printable"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// checkModules reports missing kernel modules that the classes' layouts need.
func checkModules(f *facts, found func(where, what, fix string)) {
	needs := map[string][]string{}
	for _, class := range f.classes {
		switch has := (lvm.Class{Layout: lvm.Layout(class.Parameters[api.ParameterLayout])}); {
		case has.Layout == lvm.LayoutThin:
			needs[report.ModuleThinPool] = append(needs[report.ModuleThinPool], class.Name)
		case has.IsRAID():
			needs[report.ModuleRAID] = append(needs[report.ModuleRAID], class.Name)
		}
		if class.Parameters[api.ParameterEncryption] != "" {
			needs[report.ModuleCrypt] = append(needs[report.ModuleCrypt], class.Name)
		}
	}
	for _, a := range f.answering() {
		for _, m := range a.page.Checks.Modules {
			need := "every volume needs"
			if m.Name != report.ModuleDM {
				need = neededBy(needs[m.Name])
			}
			if need != "" && m.State == report.ModuleMissing {
				found(a.node, fmt.Sprintf("the kernel %s has no module %s, which %s", a.page.Checks.Kernel, m.Name, need),
					"install the package with the kernel's extra modules (linux-modules-extra, kernel-modules), or boot the kernel that /lib/modules belongs to")
			}
		}
	}
}

// neededBy returns "StorageClass a needs", or "StorageClasses a, b need"; "": there is no class.
func neededBy(classes []string) string {
	switch len(classes) {
	case 0:
		return ""
	case 1:
		return classWords(classes) + " needs"
	}
	return classWords(classes) + " need"
}

// checkClasses checks the binding mode, the key policy and the parameters of the storage classes.
func checkClasses(f *facts, found func(where, what, fix string)) {
	if !f.unreadable[theClasses] {
		f.keyPolicy.checkNames(func(name string) bool { return f.class(name) != nil }, found)
	}
	for _, class := range f.classes {
		where := "StorageClass " + class.Name
		if bindsAtOnce(class) {
			found(where, "volumeBindingMode is Immediate: its claims stay Pending, because no node is selected for them",
				"delete the class and create it again with volumeBindingMode: WaitForFirstConsumer")
		}
		if key := foreignTopology(class); key != "" {
			found(where, "allowedTopologies names the label "+key+": csi-provisioner compares only "+api.TopologyKey+", and creates no volume for claims that rely on "+key,
				"delete the class and create it again; select nodes by "+api.TopologyKey+", by a tag of their volume groups, or by the pods' node affinity")
		}
		f.keyPolicy.checkKeys(class, found)
		for _, a := range f.answering() {
			if c := classOf(a.page, class.Name); c != nil && c.Error != "" {
				found(where, c.Error, "delete the class and create it again with valid parameters (Kubernetes does not change the parameters of a class)")
				break // the others say the same
			}
		}
	}
}

// foreignTopology returns a label in a class' allowedTopologies that the driver does not register; "": there is none.
func foreignTopology(class storagev1.StorageClass) string {
	for _, term := range class.AllowedTopologies {
		for _, e := range term.MatchLabelExpressions {
			if e.Key != api.TopologyKey {
				return e.Key
			}
		}
	}
	return ""
}

func classOf(page report.Node, name string) *report.Class {
	return find(page.Classes, func(c *report.Class) bool { return c.Name == name })
}

// poolOf returns the thin pool of a class, or "" if its layout is not thin.
func poolOf(parameters map[string]string) string {
	switch {
	case parameters[api.ParameterLayout] != string(lvm.LayoutThin):
		return ""
	case parameters[api.ParameterThinPool] != "":
		return parameters[api.ParameterThinPool]
	default:
		return lvm.DefaultPool
	}
}

// concerns returns why the driver uses a group, because classes name it or a volume is in it; "" if it does not use it.
func concerns(page report.Node, group report.Group) string {
	var served []string
	for _, class := range page.Classes {
		if slices.ContainsFunc(class.Offers, func(o report.Offer) bool { return o.Group == group.Name }) {
			served = append(served, class.Name)
		}
	}
	switch len(served) {
	case 0:
	case 1:
		return classWords(served) + " is served from it"
	default:
		return classWords(served) + " are served from it"
	}
	for _, v := range page.Volumes {
		if strings.HasPrefix(v.ID, string(group.UUID)+"/") {
			return "volumes of the driver are in it"
		}
	}
	return ""
}

// checkGroups checks the volume groups that serve classes or hold volumes.
func checkGroups(_ *facts, a *answer, found func(where, what, fix string)) {
	for _, g := range a.page.Groups {
		why := concerns(a.page, g)
		if why == "" {
			continue
		}
		where := a.node + ", volume group " + string(g.Name)
		if g.Problem != "" && !hasCondition(a.page, lvm.ConditionPhysicalVolumeMissing, g.Name) { // checkConditions
			found(where, g.Problem, "follow the message; until then the driver creates nothing in it, and "+why)
		}
		if g.AutoActivation {
			found(where, "the host activates its volumes at boot, before the driver can check them", "vgchange --setautoactivation n "+printable.ShellWord(string(g.Name)))
		}
		if g.MetadataSize > 0 && g.MetadataFree*10 < g.MetadataSize {
			found(where, fmt.Sprintf("its metadata area is nearly full: %s are free", lvm.Share(g.MetadataFree, g.MetadataSize)),
				"remove volumes or snapshots; it can never grow: add disks with a larger one (pvcreate --metadatasize 64m) and move everything to them")
		}
	}
}

// staleLock is longer than any LVM command takes, unless it is blocked.
const staleLock = 2 * time.Minute

// checkLocks reports LVM's locks that a process has held for too long.
func checkLocks(_ *facts, a *answer, found func(where, what, fix string)) {
	for _, g := range a.page.Groups {
		if held := time.Duration(g.LockHeldSeconds) * time.Second; held >= staleLock {
			found(a.node+", volume group "+string(g.Name), fmt.Sprintf("an LVM command has held its lock (/run/lock/lvm/V_%s) for %s: all others wait", g.Name, held),
				"find it on the node (fuser -v "+printable.ShellWord("/run/lock/lvm/V_"+string(g.Name))+"): answer an lvm that asks a question at a terminal; one that does not end waits for a disk, see dmesg")
		}
	}
}

// checkDisks reports unreadable, skipped and ignored disks, devices on volumes, and metadata that differs from LVM's report.
func checkDisks(f *facts, a *answer, found func(where, what, fix string)) {
	for _, text := range a.page.Unread {
		found(a.node, "cannot read a disk: "+text, "see the kernel's log (dmesg) on the node")
	}
	for _, text := range a.page.Skipped {
		found(a.node, text, "if a volume group of the driver is on it, move the group to a disk (pvmove); otherwise no action is needed")
	}
	for _, u := range a.page.Unaccepted {
		found(a.node, fmt.Sprintf("the driver ignores %s with the physical volume %s (%s): %s", u.Device, u.PV, u.Identity, u.Reason), f.fixUnaccepted(a, u))
	}
	for _, text := range a.page.OnVolumes {
		found(a.node, text, "exclude the devices of volumes from the host's LVM, mdadm and udev (docs/howto/volume-groups.md), and remove this device: dmsetup remove, mdadm --stop")
	}
	if a.page.MetadataDifference != "" {
		found(a.node, "what the driver reads from the disks differs from LVM's report, so it changes nothing in that volume group: "+a.page.MetadataDifference,
			"please report this, with the output of vgcfgbackup; existing volumes stay usable")
	}
}

// fixUnaccepted says what to do with a physical volume that the driver ignores. The node refuses to accept a second device with a physical volume of its
// groups.
func (f *facts) fixUnaccepted(a *answer, u lvm.UnacceptedPV) string {
	for _, g := range a.page.Groups {
		for _, pv := range g.PVs {
			if pv.UUID == u.PV && pv.Device != "" {
				return fmt.Sprintf("volume group %s uses this physical volume on %s: a copy of it needs no action. If %s replaces that disk, first detach the disk or remove its label (wipefs)", g.Name, pv.Device, u.Device)
			}
		}
	}
	namespace, _, ok := f.account()
	if !ok {
		namespace = "NAMESPACE"
	}
	return "if it is a disk of this node for the driver's volumes: kubectl -n " + namespace + " exec " + printable.ShellWord(a.pod) + " -c nodelvm -- nodelvm disks accept " + printable.ShellWord(u.Device) +
		"; a volume of another storage driver needs no action"
}

// checkPools reports thin pools of classes and volumes that do not zero new blocks. checkConditions reports full and failed pools.
func checkPools(f *facts, a *answer, found func(where, what, fix string)) {
	for _, g := range a.page.Groups {
		for _, p := range g.Pools {
			name := string(g.Name) + "/" + p.Name
			where := a.node + ", thin pool " + name
			if p.Zero || !poolConcerns(f, a.page, g, p) {
				continue
			}
			found(where, "it does not zero new blocks, so that volumes could show old data: the driver creates none in it", "lvchange --zero y "+printable.ShellWord(name))
		}
	}
}

// poolConcerns reports whether a class names the pool, or a volume is in it.
func poolConcerns(f *facts, page report.Node, g report.Group, p report.Pool) bool {
	for _, class := range f.classes {
		if c := classOf(page, class.Name); c != nil && poolOf(class.Parameters) == p.Name &&
			slices.ContainsFunc(c.Offers, func(o report.Offer) bool { return o.Group == g.Name }) {
			return true
		}
	}
	return slices.ContainsFunc(page.Volumes, func(v report.Volume) bool { return v.Group == g.Name && v.Pool == p.Name })
}

func bindsAtOnce(class storagev1.StorageClass) bool {
	return class.VolumeBindingMode == nil || *class.VolumeBindingMode == storagev1.VolumeBindingImmediate
}

// checkCapacity compares the published capacity with that of the nodes. A class that binds immediately has no published capacity.
func checkCapacity(f *facts, found func(where, what, fix string)) {
	if f.unreadable[theCapacities] {
		return
	}
	type key struct{ node, class string }
	published := map[key]*storagev1.CSIStorageCapacity{}
	for i, c := range f.capacities {
		if c.NodeTopology != nil {
			if node := c.NodeTopology.MatchLabels[api.TopologyKey]; node != "" {
				published[key{node, c.StorageClassName}] = &f.capacities[i]
			}
		}
	}
	atOnce := map[string]bool{}
	for _, class := range f.classes {
		atOnce[class.Name] = bindsAtOnce(class)
	}
	unpublished := map[string][]string{} // classes by node
	for _, a := range f.answering() {
		for _, class := range a.page.Classes {
			var largest lvm.Bytes
			for _, offer := range class.Offers {
				largest = max(largest, offer.Largest)
			}
			c := published[key{a.node, class.Name}]
			switch {
			case class.Error != "", len(class.Offers) == 0 && a.incomplete() != "", atOnce[class.Name], f.provisionerFault(&a) != "":
			case c == nil && len(class.Offers) > 0:
				unpublished[a.node] = append(unpublished[a.node], class.Name)
			case c != nil && c.MaximumVolumeSize != nil && lvm.Bytes(c.MaximumVolumeSize.Value()) > largest:
				found(a.node, fmt.Sprintf("CSIStorageCapacity publishes a maximum volume size of %s for the storage class %s (object %s), but the node has %s",
					lvm.Bytes(c.MaximumVolumeSize.Value()), class.Name, c.Name, largest), capacityFix)
			}
		}
	}
	reportUnpublished(unpublished, found)
}

const capacityFix = "see the log of csi-provisioner in the driver's pod on that node"

// reportUnpublished reports the nodes that publish no capacity, together where the classes are the same.
func reportUnpublished(classesOf map[string][]string, found func(where, what, fix string)) {
	nodesOf := map[string][]string{}
	for _, node := range slices.Sorted(maps.Keys(classesOf)) {
		classes := classWords(classesOf[node])
		nodesOf[classes] = append(nodesOf[classes], node)
	}
	for _, classes := range slices.Sorted(maps.Keys(nodesOf)) {
		found(classes, "no CSIStorageCapacity publishes the capacity of "+nodeWords(nodesOf[classes])+": the scheduler puts no pod with such a claim there", capacityFix)
	}
}
