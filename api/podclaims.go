package api

// PodClaims are the pods that wait for a node with a claim, or with claims that they share, and their other claims of this driver.
// Kube finds them, and controller places the volumes of all of them on one node.
type PodClaims struct {
	Pods   []string // names, the hardest to place first; empty: no pod waits with the claim
	PodUID string   // of the first pod: controller remembers refusals by it
	Claims []PodClaim
}

// PodClaim is one of these other claims.
type PodClaim struct {
	Name, UID string
	Node      string // of its volume or, if it is not bound, the selected node; "": none yet
	Bound     bool
	ByOthers  bool // unbound, and csi-provisioner creates no volume for it: a populator, a restore tool or an admin binds one. Only its Node counts
	Indirect  bool // no pod uses both claims: the claims of further pods connect them

	// For an unbound claim, unless a populator fills it: what csi-provisioner will request of CreateVolume, for this claim or for another.
	Size        int64 // bytes
	Block       bool  // raw block volume
	AccessModes []string
	Parameters  map[string]string // of its StorageClass

	FromSnapshot, FromClaim string // its data source: the name of a VolumeSnapshot, or of a claim, in its namespace
}
