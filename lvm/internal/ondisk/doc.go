// Package ondisk reads what LVM wrote on the disks: labels, metadata areas and the metadata text, into a lvm.State. It also
// decides which block devices may carry a volume group (position.go) and which are provably blank (eligible.go,
// blankproof.go).
//
// The flow of Disks.Read: list block devices in sysfs (devices.go), decide from device numbers what each stands on
// (position.go), read label and metadata area (probe.go, label.go), parse the text (vgtext.go, vgimport.go,
// vgsegments.go), put the groups together (metadata.go) and note what forbids changes (restrictions.go).
//
// CheckedReader compares each reading with LVM's own report (report.go) at start and every ten minutes, and uses the report
// alone once the two differ.
//
// Caveats:
//   - A tenant can write anything on a volume. A device that stands on a logical volume is never read; what any device
//     holds is bounded before memory is allocated for it.
//   - A reading waits for a commit in progress for a moment, and reports a device that does not answer as Silent.
package ondisk
