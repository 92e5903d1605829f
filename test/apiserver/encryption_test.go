//go:build e2e

package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// keyedClass creates a storage class as docs/howto/encryption.md has it, with parameters of the test's own; "" removes one.
func keyedClass(t *testing.T, name string, parameters map[string]string) {
	t.Helper()
	all := map[string]string{"volumeGroup": "vg", "layout": "linear", api.ParameterEncryption: string(lvm.EncryptionLUKS2),
		api.ParameterStageSecretName: "${pvc.name}-key", api.ParameterStageSecretNamespace: "${pvc.namespace}",
		api.ParameterExpandSecretName: "${pvc.name}-key", api.ParameterExpandSecretNamespace: "${pvc.namespace}"}
	maps.Copy(all, parameters)
	maps.DeleteFunc(all, func(_, value string) bool { return value == "" })
	newClass(t, name, all)
}

// allowKeysOf names the classes in the policy, as an admin does with the plain manifest, until the test ends.
func allowKeysOf(t *testing.T, classes string) {
	t.Helper()
	setPolicyVariable(t, "encryptedClasses", classes)
}

// setPolicyVariable sets a variable of the node's policy until the test ends.
func setPolicyVariable(t *testing.T, name, value string) {
	t.Helper()
	policies := admin.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	policy, err := policies.Get(t.Context(), "nodelvm-node-restriction", metav1.GetOptions{})
	must(t, err)
	for i, v := range policy.Spec.Variables {
		if v.Name != name {
			continue
		}
		set := func(ctx context.Context, expression string) {
			patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": fmt.Sprintf("/spec/variables/%d/expression", i), "value": expression}})
			must(t, err)
			_, err = policies.Patch(ctx, policy.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
			must(t, err)
		}
		set(t.Context(), value)
		t.Cleanup(func() { set(context.Background(), v.Expression) })
		return
	}
	t.Fatalf("the policy has no variable %s", name)
}

// keyed makes a volume one of an encrypted class, with the Secret of its claim's name.
func keyed(class string) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) {
		pv.Spec.StorageClassName = class
		pv.Spec.CSI.VolumeAttributes[api.AttributeEncryption] = string(lvm.EncryptionLUKS2)
		secret := func() *corev1.SecretReference {
			return &corev1.SecretReference{Namespace: pv.Spec.ClaimRef.Namespace, Name: pv.Spec.ClaimRef.Name + "-key"}
		}
		pv.Spec.CSI.NodeStageSecretRef, pv.Spec.CSI.NodeExpandSecretRef = secret(), secret()
	}
}

// untilKeysAllowed waits until the API server goes by allowKeysOf and by the class.
func (n *node) untilKeysAllowed(t *testing.T, class string) {
	t.Helper()
	client := n.client(t) // beside what the agent writes
	claim := newClaim(t, "probe", func(c *corev1.PersistentVolumeClaim) { c.Annotations[selected] = n.name })
	create := func(class string) error {
		pv := provisioned(n.name, claim)
		keyed(class)(pv)
		_, err := client.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	soon(t, "the API server's policy names the class "+class, func() bool {
		return create(class) == nil && apierrors.IsForbidden(create("thin"))
	})
}

// TestSidecarsProvisionEncryptedVolumes: what the real csi-provisioner creates for an encrypted class is admitted, and refers to the Secret of its claim. A wrong
// class is an event on the claim. The expansion waits for the kubelet, which has the key, for a raw block volume too.
func TestSidecarsProvisionEncryptedVolumes(t *testing.T) {
	here := newNode(t, "a")
	classes := map[string]map[string]string{
		"keyed": nil, "unnamed": nil,
		"luks1":      {api.ParameterEncryption: "luks1"},
		"half-named": {api.ParameterStageSecretNamespace: ""},
		"annotated":  {api.ParameterStageSecretName: "${pvc.annotations['key']}"},
	}
	for name, parameters := range classes {
		keyedClass(t, name, parameters)
	}
	allowKeysOf(t, "['keyed', 'luks1', 'half-named', 'annotated']")
	here.untilKeysAllowed(t, "keyed")
	logs := here.startSidecars(t)
	here.start(t)
	claimOf := func(class string, change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
		return here.selectedClaim(t, class, func(c *corev1.PersistentVolumeClaim) {
			c.Spec.StorageClassName = &class
			c.Annotations["key"] = "root"
			change(c)
		})
	}
	as := func(*corev1.PersistentVolumeClaim) {}
	for class, words := range map[string]string{"luks1": "it can be luks2", "half-named": "Both must be specified"} {
		eventSays(t, namespace(t), claimOf(class, as).Name, "ProvisioningFailed", corev1.EventTypeWarning, words)
	}
	for class, words := range map[string]string{
		"unnamed":   "may create no volume that refers to a Secret",
		"annotated": "${pvc.annotations} is not allowed",
	} {
		name := "pvc-" + string(claimOf(class, as).UID) // csi-provisioner reports what the API server refuses only in its log
		soon(t, "csi-provisioner logs that the volume of the class "+class+" is refused", func() bool {
			return slices.ContainsFunc(strings.Split(logs(), "\n"), func(line string) bool { return strings.Contains(line, name) && strings.Contains(line, words) })
		})
		if _, err := admin.CoreV1().PersistentVolumes().Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("a volume of the class %s: %v", class, err)
		}
	}
	for _, mode := range []corev1.PersistentVolumeMode{corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock} {
		claim := claimOf("keyed", func(c *corev1.PersistentVolumeClaim) {
			c.Name, c.Spec.VolumeMode = strings.ToLower(string(mode)), &mode
		})
		pv := here.untilProvisioned(t, claim)
		want := corev1.SecretReference{Namespace: claim.Namespace, Name: claim.Name + "-key"}
		for field, ref := range map[string]*corev1.SecretReference{"nodeStageSecretRef": pv.Spec.CSI.NodeStageSecretRef, "nodeExpandSecretRef": pv.Spec.CSI.NodeExpandSecretRef} {
			if ref == nil || *ref != want {
				t.Errorf("%s: %s is %v, want %v", mode, field, ref, want)
			}
		}
		if kind := pv.Spec.CSI.VolumeAttributes[api.AttributeEncryption]; kind != string(lvm.EncryptionLUKS2) {
			t.Errorf("%s: the encryption is %q", mode, kind)
		}
		claim = bindTo(t, claim, pv.Name)
		patchVolume(t, pv.Name, "status", `{"status": {"phase": "Bound"}}`)
		request(t, claim, "2Gi")
		claim = until(t, claim, "the kubelet's turn", func(c *corev1.PersistentVolumeClaim) bool {
			return resizeState(c) == corev1.PersistentVolumeClaimNodeResizePending
		})
		expectSize(t, here, claim, 2*lvm.GiB)
		here.untilDeleted(t, pv.Name)
	}
	expectAllowed(t, here)
}
