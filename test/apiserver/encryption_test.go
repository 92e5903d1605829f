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

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

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
	late, yes := storagev1.VolumeBindingWaitForFirstConsumer, true
	_, err := admin.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: driver, VolumeBindingMode: &late, AllowVolumeExpansion: &yes, Parameters: all,
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		must(t, admin.StorageV1().StorageClasses().Delete(context.Background(), name, metav1.DeleteOptions{}))
	})
}

// allowKeysOf names the classes in the policy, as an admin does with the plain manifest, until the test ends.
func allowKeysOf(t *testing.T, classes string) {
	t.Helper()
	policies := admin.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	policy, err := policies.Get(t.Context(), "nodelvm-node-restriction", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range policy.Spec.Variables {
		if v.Name != "encryptedClasses" {
			continue
		}
		set := func(ctx context.Context, expression string) {
			patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": fmt.Sprintf("/spec/variables/%d/expression", i), "value": expression}})
			must(t, err)
			_, err = policies.Patch(ctx, policy.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
			must(t, err)
		}
		set(t.Context(), classes)
		t.Cleanup(func() { set(context.Background(), v.Expression) })
		return
	}
	t.Fatal("the policy has no variable encryptedClasses")
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
	client, err := kubernetes.NewForConfig(config(n.token)) // beside what the agent writes
	must(t, err)
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

// TestPolicyForEncryptedVolumes: a node's token creates an encrypted volume only of a class that the policy names, and only with the
// Secrets of that class.
func TestPolicyForEncryptedVolumes(t *testing.T) {
	here := newNode(t, "a")
	client, err := kubernetes.NewForConfig(here.restConfig())
	must(t, err)
	keyedClass(t, "keyed", nil)
	keyedClass(t, "unnamed", nil)
	keyedClass(t, "annotated", map[string]string{api.ParameterStageSecretName: "${pvc.annotations['key']}"})
	claim := newClaim(t, "data", func(c *corev1.PersistentVolumeClaim) { c.Annotations[selected] = here.name })
	create := func(class string, changes ...func(*corev1.PersistentVolume)) error {
		pv := provisioned(here.name, claim)
		keyed(class)(pv)
		for _, change := range changes {
			change(pv)
		}
		_, err := client.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	const unnamed, asClass = "may create no volume that refers to a Secret", "are those of its storage class"
	soon(t, "the API server's policy refuses the keys of all classes", func() bool { return apierrors.IsForbidden(create("keyed")) })
	expectTried(t, tried{"before the policy names the class", unnamed, create("keyed")})
	allowKeysOf(t, "['keyed', 'annotated']")
	here.untilKeysAllowed(t, "keyed")
	stage := func(namespace, name string) func(*corev1.PersistentVolume) {
		return func(pv *corev1.PersistentVolume) {
			pv.Spec.CSI.NodeStageSecretRef = &corev1.SecretReference{Namespace: namespace, Name: name}
		}
	}
	root := &corev1.SecretReference{Namespace: "kube-system", Name: "root"}
	expectTried(t,
		tried{"a class that the policy does not name", unnamed, create("unnamed")},
		tried{"a class without encryption", "Secret", create("thin")}, // both policies refuse it, and the API server reports one of them
		tried{"another claim's key", asClass, create("keyed", stage(claim.Namespace, "other-key"))},
		tried{"a key of another namespace", asClass, create("keyed", stage("kube-system", "data-key"))},
		tried{"another key for expansion", asClass, create("keyed", func(pv *corev1.PersistentVolume) { pv.Spec.CSI.NodeExpandSecretRef = root })},
		tried{"a Secret for publishing", unnamed, create("keyed", func(pv *corev1.PersistentVolume) { pv.Spec.CSI.NodePublishSecretRef = root })},
		tried{"a Secret for the controller", unnamed, create("keyed", func(pv *corev1.PersistentVolume) { pv.Spec.CSI.ControllerExpandSecretRef = root })},
		tried{"no key", asClass, create("keyed", func(pv *corev1.PersistentVolume) {
			pv.Spec.CSI.NodeStageSecretRef, pv.Spec.CSI.NodeExpandSecretRef = nil, nil
		})},
		tried{"not encrypted", asClass, create("keyed", func(pv *corev1.PersistentVolume) { delete(pv.Spec.CSI.VolumeAttributes, api.AttributeEncryption) })},
		tried{"a key that an annotation of the claim names", asClass, create("annotated", stage(claim.Namespace, "any"))},
	)
}

// TestNodeTokenReadsNoSecret: only the kubelet reads the keys. Pods and tokens of other accounts would be ways to them.
func TestNodeTokenReadsNoSecret(t *testing.T) {
	here := newNode(t, "a")
	client, err := kubernetes.NewForConfig(here.restConfig())
	must(t, err)
	for _, space := range []string{namespace(t), system} {
		key := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "key"}, StringData: map[string]string{"key": "k"}}
		_, err := admin.CoreV1().Secrets(space).Create(t.Context(), key, metav1.CreateOptions{})
		must(t, err)
		t.Cleanup(func() {
			must(t, admin.CoreV1().Secrets(space).Delete(context.Background(), "key", metav1.DeleteOptions{}))
		})
		secrets := client.CoreV1().Secrets(space)
		_, get := secrets.Get(t.Context(), "key", metav1.GetOptions{})
		_, list := secrets.List(t.Context(), metav1.ListOptions{})
		_, watch := secrets.Watch(t.Context(), metav1.ListOptions{})
		_, update := secrets.Update(t.Context(), key, metav1.UpdateOptions{})
		_, patch := secrets.Patch(t.Context(), "key", types.MergePatchType, []byte(`{"stringData": {"key": "x"}}`), metav1.PatchOptions{})
		_, create := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, metav1.CreateOptions{})
		_, run := client.CoreV1().Pods(space).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "i", EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "key"}}}}}},
		}}, metav1.CreateOptions{})
		_, token := client.CoreV1().ServiceAccounts(space).CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		for what, err := range map[string]error{"get": get, "list": list, "watch": watch, "update": update, "patch": patch, "create": create,
			"delete": secrets.Delete(t.Context(), "key", metav1.DeleteOptions{}), "a pod": run, "a token": token} {
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s in the namespace %s: %v; want a refusal", what, space, err)
			}
		}
	}
}

// provisioningFails waits until csi-provisioner says on the claim why it has no volume.
func provisioningFails(t *testing.T, claim *corev1.PersistentVolumeClaim, words string) {
	t.Helper()
	soon(t, "claim "+claim.Name+" has an event that says "+words, func() bool {
		list, err := admin.CoreV1().Events(claim.Namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(claim.UID)})
		return err == nil && slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
			return e.Type == corev1.EventTypeWarning && e.Reason == "ProvisioningFailed" && strings.Contains(e.Message, words)
		})
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
	here.start(t, nil)
	claimOf := func(class string, change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
		return here.selectedClaim(t, class, func(c *corev1.PersistentVolumeClaim) {
			c.Spec.StorageClassName = &class
			c.Annotations["key"] = "root"
			change(c)
		})
	}
	as := func(*corev1.PersistentVolumeClaim) {}
	provisioningFails(t, claimOf("luks1", as), "it can be luks2")
	provisioningFails(t, claimOf("half-named", as), "Both must be specified")
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
		patchClaim(t, claim, "", fmt.Sprintf(`{"spec": {"volumeName": %q}}`, pv.Name))
		claim = patchClaim(t, claim, "status", `{"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}}`)
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
