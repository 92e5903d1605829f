package attack

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// forgedContentRestoresNothing: an admin who is deceived, or mistaken, has written the content.
func (t *theft) forgedContentRestoresNothing(ctx context.Context, env *scenario.Environment) error {
	if err := env.ApplyWith(ctx, "attack-content.yaml", "NAME", "stolen", "NODE", thiefNode, "HANDLE", t.snapped); err != nil {
		return err
	}
	claim, err := uidOf(ctx, env, "pvc/stolen")
	if err != nil {
		return err
	}
	ready := fmt.Appendf(nil, `{"status":{"readyToUse":true,"snapshotHandle":%q,"restoreSize":67108864,"creationTime":1}}`, t.snapped)
	return cluster.Eventually(ctx, func() error {
		// csi-snapshotter finds no such snapshot on the thief's node and calls the content not ready; the thief insists.
		err := t.client.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(contents, "forged-stolen", "status").Body(ready).Do(ctx).Error()
		if err != nil {
			return err
		}
		if err := isPending(ctx, env, "stolen"); err != nil {
			return err
		}
		return saysOn(ctx, env, cluster.Namespace, claim, "ProvisioningFailed", t.snapped)
	})
}

// isPending fails if a claim has got a volume.
func isPending(ctx context.Context, env *scenario.Environment, claim string) error {
	pvc, err := env.Claim(ctx, claim)
	if err == nil && pvc.Status.Phase != corev1.ClaimPending {
		err = fmt.Errorf("claim %s is %s", claim, pvc.Status.Phase)
	}
	return err
}

func uidOf(ctx context.Context, env *scenario.Environment, object string) (string, error) {
	return env.Kubectl(ctx, "", "get", object, "-n", cluster.Namespace, "-o", "jsonpath={.metadata.uid}")
}

// saysOn looks for an event on the object with the UID: of its name there may have been others.
func saysOn(ctx context.Context, env *scenario.Environment, namespace, uid, reason, words string) error {
	list, err := env.Client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + uid + ",reason=" + reason})
	if err != nil {
		return err
	}
	said := ""
	for _, e := range list.Items {
		said += "\n" + e.Message
		if strings.Contains(e.Message, words) {
			env.Reporter.Note("%s: %s", reason, e.Message)
			return nil
		}
	}
	return fmt.Errorf("no event %s says %q, but%s", reason, words, said)
}

func (t *theft) forgedContentDeletesNothing(ctx context.Context, env *scenario.Environment) (err error) {
	defer func() { // the node never deletes what it does not have, and the snapshot controller waits for minutes until it asks again
		ctx, cancel := cluster.CleanUpContext(ctx)
		defer cancel()
		for _, object := range []string{"volumesnapshot/stolen", "volumesnapshotcontent/forged-stolen"} {
			_, patched := env.Kubectl(ctx, "", "patch", object, "-n", cluster.Namespace, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
			err = errors.Join(err, patched)
		}
	}()
	content, err := uidOf(ctx, env, "volumesnapshotcontent/forged-stolen")
	if err != nil {
		return err
	}
	if err := deleteForged(ctx, env, "stolen"); err != nil {
		return err
	}
	err = cluster.Eventually(ctx, func() error {
		return saysOn(ctx, env, "default", content, "SnapshotDeleteError", "Failed to delete snapshot")
	})
	if err != nil {
		return err
	}
	return isOnDisks(ctx, env, t.snapped)
}

// deleteForged deletes a claim and a VolumeSnapshot, and with that its content. Before the two are bound the content would stay.
func deleteForged(ctx context.Context, env *scenario.Environment, name string) error {
	const bound = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection"
	err := cluster.Eventually(ctx, func() error {
		finalizers, err := env.Kubectl(ctx, "", "get", "volumesnapshot/"+name, "-n", cluster.Namespace, "-o", "jsonpath={.metadata.finalizers}")
		if err == nil && !strings.Contains(finalizers, bound) {
			err = fmt.Errorf("VolumeSnapshot %s is not bound: its finalizers are %s", name, finalizers)
		}
		return err
	})
	if err != nil {
		return err
	}
	if _, err := env.Kubectl(ctx, "", "delete", "pvc/"+name, "-n", cluster.Namespace, "--wait"); err != nil {
		return err
	}
	_, err = env.Kubectl(ctx, "", "delete", "volumesnapshot/"+name, "-n", cluster.Namespace, "--wait=false")
	return err
}
