// Package ondisk reads what LVM wrote on the disks (labels, metadata areas and the metadata text) into a lvm.State. It also
// determines which block devices may have a volume group (position.go) and which are provably blank (eligible.go,
// blankproof.go).
//
// Disks.Read lists block devices in sysfs (devices.go), and determines from device numbers what each is made of (position.go).
// It reads label and metadata area (probe.go, label.go), and parses the text (vgtext.go, vgimport.go, vgsegments.go). Then it
// assembles the groups (metadata.go), and finds what forbids changes (restrictions.go).
//
// CheckedReader compares the readings with LVM's own report (report.go) at start and every ten minutes, and refuses changes in a group in
// which the two differ. The report never supplies state.
//
// Caveats:
//
//   - A tenant can write anything to a volume. The reader never reads a device that is made of a logical volume, and checks
//     sizes before it allocates memory for any device's content.
//   - A reading waits briefly for a commit in progress, and reports an unresponsive device as Unresponsive.
package ondisk
