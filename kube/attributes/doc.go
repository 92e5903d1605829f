// Package attributes changes the I/O limits of this node's volumes as their claims ask for: a claim names a VolumeAttributesClass, which an
// admin wrote.
//
// The flow: the node's agent sees a claim for which Wanted is true. Modify reads the PersistentVolume, which must be on this node, and the
// class. The claim's status then says InProgress. SetLimits records the limits and has them applied. In the end the PersistentVolume names
// the class, and then the claim's status.
//
// plan.go decides, modify.go acts. The states and their order are those of external-resizer 2.3 (pkg/modifycontroller), which works for a
// whole cluster from one place, where it cannot reach another node's volume group. KEP-3751 defines them, so that every version of
// Kubernetes can continue a change. A result is uncertain if the change may still be under way: then its target comes first, whatever the
// claim names now. Nothing watches classes: a claim whose class is missing is checked again at growing intervals.
package attributes
