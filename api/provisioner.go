package api

// Annotations in which Kubernetes names the driver that provisions a claim; the second is the older one. A claim of a pre-provisioned
// volume has none.
const (
	AnnotationStorageProvisioner     = "volume.kubernetes.io/storage-provisioner"
	AnnotationStorageProvisionerBeta = "volume.beta.kubernetes.io/storage-provisioner"
)

// ProvisionerOf returns the driver that Kubernetes assigned a claim with these annotations to; "": none.
func ProvisionerOf(annotations map[string]string) string {
	if by := annotations[AnnotationStorageProvisioner]; by != "" {
		return by
	}
	return annotations[AnnotationStorageProvisionerBeta]
}

// ReleasesOnNodeLoss reports whether a StorageClass or VolumeSnapshotClass is one of this driver's and says release.
func ReleasesOnNodeLoss(driver string, annotations map[string]string) bool {
	return driver == DriverName && annotations[AnnotationOnNodeLoss] == OnNodeLossRelease
}
