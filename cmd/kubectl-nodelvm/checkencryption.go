package main

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodelvm/nodelvm/api"
)

// restrictionPolicy is the chart's admission policy for a node's writes. Its variable encryptedClasses lists the encrypted classes.
const (
	restrictionPolicy = "nodelvm-node-restriction"
	theKeyPolicy      = "the admission policy " + restrictionPolicy
	encryptedClasses  = "encryptedClasses"
)

// keyPolicy lists the classes whose volumes may refer to Secrets.
type keyPolicy struct {
	classes []string
}

// readKeyPolicy reads the policy; nil: no policy restricts volumes, or no class is encrypted and the user may not read it.
func (c *cluster) readKeyPolicy(ctx context.Context, classes []storagev1.StorageClass) (*keyPolicy, error) {
	var policy admissionv1.ValidatingAdmissionPolicy
	err := c.get(ctx, "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/"+restrictionPolicy, &policy)
	switch {
	case apierrors.IsForbidden(err) && !slices.ContainsFunc(classes, isEncrypted):
		return nil, nil
	case err != nil:
		return nil, ignoreNotFound(err)
	}
	return parseKeyPolicy(&policy), nil
}

func isEncrypted(class storagev1.StorageClass) bool {
	return class.Parameters[api.ParameterEncryption] != ""
}

var (
	classList = regexp.MustCompile(`^\s*\[\s*('[^']*'|"[^"]*")?(\s*,\s*('[^']*'|"[^"]*"))*\s*\]\s*$`)
	className = regexp.MustCompile(`'[^']*'|"[^"]*"`)
)

// parseKeyPolicy returns nil for a policy that an admin rewrote so that the variable is no longer a list of names.
func parseKeyPolicy(policy *admissionv1.ValidatingAdmissionPolicy) *keyPolicy {
	for _, v := range policy.Spec.Variables {
		if v.Name != encryptedClasses || !classList.MatchString(v.Expression) {
			continue
		}
		p := &keyPolicy{}
		for _, quoted := range className.FindAllString(v.Expression, -1) {
			p.classes = append(p.classes, quoted[1:len(quoted)-1])
		}
		return p
	}
	return nil
}

// checkNames reports names of classes that do not exist: no other policy compares the Secrets of their volumes with a class.
func (p *keyPolicy) checkNames(exists func(class string) bool, found func(where, what, fix string)) {
	if p == nil {
		return
	}
	for _, name := range p.classes {
		if !exists(name) {
			found("StorageClass "+name, "it does not exist, and the admission policy "+restrictionPolicy+" lets nodes create its encrypted volumes: whoever has a node's token and its kubelet's credential can read any Secret of the cluster",
				"remove the name from the Helm value nodeRestriction.encryptedClasses, or from the variable encryptedClasses of the policy; or create the class again")
		}
	}
}

// checkKeys reports a class whose volumes the policy refuses, for the Secrets that they refer to.
func (p *keyPolicy) checkKeys(class storagev1.StorageClass, found func(where, what, fix string)) {
	if p == nil {
		return
	}
	where := "StorageClass " + class.Name
	if name := uselessParameter(class); name != "" {
		found(where, "the parameter "+name+" is not for this driver: csi-provisioner creates no volume, or the API server refuses its PersistentVolume, and claims stay Pending",
			"delete the class and create it again without the parameter (docs/reference/parameters.md)")
	}
	if !isEncrypted(class) {
		return
	}
	const effect = ": the API server refuses their PersistentVolumes, and their claims stay Pending without an event"
	if !slices.Contains(p.classes, class.Name) {
		found(where, "its volumes are encrypted, and the admission policy "+restrictionPolicy+" does not name the class"+effect,
			"add the class to the Helm value nodeRestriction.encryptedClasses, or to the variable encryptedClasses of the policy")
	}
	for _, parameter := range []string{
		api.ParameterStageSecretName, api.ParameterStageSecretNamespace, api.ParameterExpandSecretName, api.ParameterExpandSecretNamespace,
	} {
		if strings.Contains(class.Parameters[parameter], "${pvc.annotations[") {
			found(where, "its volumes are encrypted, and the parameter "+parameter+" contains ${pvc.annotations[...]}, which the admission policy does not allow"+effect,
				"delete the class and create it again with ${pvc.name}, ${pvc.namespace} or constant names")
			return
		}
	}
}

// uselessParameter returns a parameter of csi-provisioner that names what no volume of the class may have; "": there is none. The driver does not see it.
func uselessParameter(class storagev1.StorageClass) string {
	secrets := []string{api.ParameterStageSecretName, api.ParameterStageSecretNamespace, api.ParameterExpandSecretName, api.ParameterExpandSecretNamespace}
	for _, name := range slices.Sorted(maps.Keys(class.Parameters)) {
		if strings.HasPrefix(name, api.ParameterPrefix) && name != api.ParameterFSType && (!isEncrypted(class) || !slices.Contains(secrets, name)) {
			return name
		}
	}
	return ""
}
