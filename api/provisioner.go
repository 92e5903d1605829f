package api

// Annotations in which Kubernetes names the driver that provisions a claim; the second is the older one. A claim of a pre-provisioned
// volume has none.
const (
	AnnotationStorageProvisioner     = "volume.kubernetes.io/storage-provisioner"
	AnnotationStorageProvisionerBeta = "volume.beta.kubernetes.io/storage-provisioner"
)

// AnnotationStorageClassBeta is the older place of a claim's StorageClass.
const AnnotationStorageClassBeta = "volume.beta.kubernetes.io/storage-class"

// ProvisionerOf returns the driver that Kubernetes assigned a claim with these annotations to; "": none.
func ProvisionerOf(annotations map[string]string) string {
	if by := annotations[AnnotationStorageProvisioner]; by != "" {
		return by
	}
	return annotations[AnnotationStorageProvisionerBeta]
}

// ClassOf returns the name of the StorageClass of a claim with these annotations and this storageClassName; "": none. As Kubernetes does,
// it prefers the old annotation, also an empty one.
func ClassOf(annotations map[string]string, name *string) string {
	if class, old := annotations[AnnotationStorageClassBeta]; old || name == nil {
		return class
	}
	return *name
}

// ReleasesOnNodeLoss reports whether a StorageClass or VolumeSnapshotClass is one of this driver's and says release.
func ReleasesOnNodeLoss(driver string, annotations map[string]string) bool {
	return driver == DriverName && annotations[AnnotationOnNodeLoss] == OnNodeLossRelease
}
