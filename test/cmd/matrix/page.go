package main

import (
	"fmt"
	"strings"

	"github.com/nodelvm/nodelvm/test/hardwaretable"
)

const head = `# Compatibility

The command ` + "`make matrix`" + ` writes this page. It runs the tests below on each version of Kubernetes and on each kind of node, and notes what they
gave. A version of Kubernetes is supported from 1.32 on.

| part | what it runs |
|---|---|
| apiserver | the driver's rights, admission policies, csi-provisioner and csi-snapshotter against a real API server |
| scenarios | the demo and a volume's life on three nodes with kubelets and LVM |
| lvm | ` + "`test/part.sh lvm`" + `: the engine, the driver's binary and csi-sanity with real LVM in lab nodes |

| Kubernetes | apiserver | scenarios |
|---|---|---|
`

// nodesHead is the head of the table of nodes. The host's LVM and the image's, which the driver runs, work on the same groups.
const nodesHead = `
| kernel of Debian | host's LVM of Debian | lvm |
|---|---|---|
`

// hardwareHead is the head of the table of cases on emulated hardware.
const hardwareHead = `
*Not run* says nothing about a version: the part was never run there.

## Disks that are pulled, fail, or have other sectors

` + "`make test-hardware`" + ` runs the tests of this table in a node that qemu emulates ([the lab](development/lab.md#nodes-on-emulated-hardware)), and fails if one
of them shows something else. OLD and NEW are the names of a disk before it is pulled and after its return.

`

const foot = `
## What an API server lacks

The driver and the upstream sidecars find out at run time what an API server lacks:

| feature | from | without it |
|---|---|---|
| VolumeAttributesClass v1 | 1.34 | csi-provisioner switches it off and logs that; no [I/O limits](howto/io-limits.md), and the tests of these are skipped |
| streaming lists (WatchList) | 1.34 | csi-provisioner and the driver list in one answer; the API proxy filters both |
| snapshots | the snapshot CRDs, any version | csi-snapshotter waits for them, the driver detects them later |
| scores of nodes by published capacity (StorageCapacityScoring) | 1.37 | all nodes with enough capacity are equal ([pack or spread](howto/placement.md)) |
| SELinux labels as mount options for each access mode (SELinuxMount) | 1.37 | only for ReadWriteOncePod |

**Pods with their own user namespace** (` + "`hostUsers: false`" + `) share ext4, XFS and btrfs volumes with each other and with ordinary pods, with ` + "`fsGroup`" + ` (` + "`TestUserNamespaces`" + `,
Kubernetes 1.37, Linux 7.2, containerd 2.4, runc 1.4). The runtime maps the ids of each mount, and the driver has no part in it. Kubernetes needs Linux 6.3, containerd 2.0, and
runc 1.2 or crun 1.9 for that, and allows such pods no raw block volumes.

**Another CSI driver**: the tests have a small one, whose raw block volumes are whole disks of a node (` + "`TestNeighbours`" + `, Kubernetes 1.37). A pod uses volumes of both. nodelvm
ignores what a tenant writes on the other driver's disks, also on their copies and after a reboot, and says so. Drivers of clouds and of storage networks were not tried.
`

// page returns the text of docs/compatibility.md.
func page(m matrix, all results, hardware []hardwaretable.Row) string {
	var b strings.Builder
	b.WriteString(head)
	for _, version := range m.kubernetes {
		writeRow(&b, []string{strings.TrimPrefix(version, "v")}, all, version, parts)
	}
	b.WriteString(nodesHead)
	for _, suites := range m.nodes {
		writeRow(&b, strings.Split(suites, "/"), all, suites, nodeParts)
	}
	b.WriteString(hardwareHead + hardwaretable.Table(hardware) + foot)
	return b.String()
}

func writeRow(b *strings.Builder, labels []string, all results, on string, parts []string) {
	for _, part := range parts {
		labels = append(labels, cell(all.find(on, part)))
	}
	b.WriteString("| " + strings.Join(labels, " | ") + " |\n")
}

func cell(r *result) string {
	switch {
	case r == nil:
		return "*not run*"
	case !r.isGood():
		return fmt.Sprintf("**%d failed** (%s), %d passed, %s, %s", len(r.Failed), strings.Join(r.Failed, ", "), r.Passed, r.Date, r.Commit)
	}
	return fmt.Sprintf("%d passed, %s, %s", r.Passed, r.Date, r.Commit)
}
