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
