package attack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

const (
	thiefNode = "node-2" // its driver's token is stolen
	origin    = "origin" // claim, pod and snapshot of the tenant on the attacked node
	contents  = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents"
)

// theft is what the thief is after: a tenant's volume and a snapshot of it.
type theft struct {
	client           kubernetes.Interface // with the stolen token
	volume           *corev1.PersistentVolume
	content, snapped string // the snapshot's VolumeSnapshotContent and its handle
}

// attackWithToken is a thief who has the token of one node's driver, and forged contents of snapshots.
func attackWithToken() scenario.Scenario {
	t, run := &theft{}, &nodeRun{}
	return scenario.Scenario{Title: "A node's token is stolen, and snapshots are forged", Steps: []scenario.Step{
		{Says: "a tenant's pod on " + attackedNode + " writes data, and its thin volume is snapshotted", Prove: t.begin},
		{Says: "the run of the node and of its driver is noted", Prove: run.note},
		{Says: "the API server refuses to forge, change and delete the tenant's objects with the token of " + thiefNode + "'s driver", Prove: t.everyWriteRefused},
		{Says: "a content of " + thiefNode + " names the tenant's snapshot, and the thief calls it ready: no claim gets a copy, and an event says why", Limit: 5 * time.Minute, Prove: t.forgedContentRestoresNothing},
		{Says: "that content is deleted: the tenant's snapshot stays", Limit: 5 * time.Minute, Prove: t.forgedContentDeletesNothing},
		{Says: "the tenant's volume, claim, data and capacity are as before", Prove: t.nothingChanged},
		{Says: "neither the node nor its driver has been restarted", Prove: run.goesOn},
		{Says: "everything is deleted", Prove: attackIsOver},
	}}
}

func (t *theft) begin(ctx context.Context, env *scenario.Environment) (err error) {
	for _, manifest := range []string{"classes.yaml", "life-classes.yaml", "attack-origin.yaml"} {
		if err := scenario.Apply(manifest)(ctx, env); err != nil {
			return err
		}
	}
	if _, err := env.WaitPodReady(ctx, origin); err != nil {
		return err
	}
	if _, err := env.ExecInPod(ctx, origin, "sh", "-ec", writeSecret); err != nil {
		return err
	}
	if err := env.CreateSnapshot(ctx, origin, origin); err != nil {
		return err
	}
	if err := env.WaitSnapshotReady(ctx, origin); err != nil {
		return err
	}
	bound, err := env.BoundTo(ctx, origin)
	if err != nil {
		return err
	}
	t.volume = bound.Volume
	if t.content, err = env.Kubectl(ctx, "", "get", "volumesnapshot", "-n", cluster.Namespace, origin, "-o", "jsonpath={.status.boundVolumeSnapshotContentName}"); err != nil {
		return err
	}
	if t.snapped, err = env.Kubectl(ctx, "", "get", "volumesnapshotcontent", t.content, "-o", "jsonpath={.status.snapshotHandle}"); err != nil {
		return err
	}
	t.client, err = env.ClientAsDriver(ctx, thiefNode)
	return err
}

// attempt is a request with the stolen token. The policy, or else RBAC, refuses it.
type attempt struct {
	what    string
	refuses string
	do      func(context.Context) error
}

const (
	thePolicy = "nodelvm-node-restriction"
	theRBAC   = "cannot"
)

var errAllowed = errors.New("the request was allowed")

func (t *theft) everyWriteRefused(ctx context.Context, env *scenario.Environment) error {
	if _, err := t.client.CoreV1().PersistentVolumes().Get(ctx, t.volume.Name, metav1.GetOptions{}); err != nil {
		return fmt.Errorf("the token is of no use: %w", err)
	}
	var all error
	for _, a := range t.attempts() {
		if err := a.do(ctx); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), a.refuses) {
			all = errors.Join(all, fmt.Errorf("%s: answered %w; want a refusal that says %q", a.what, cmp.Or(err, errAllowed), a.refuses))
		}
	}
	return all
}

// attempts are one for each kind of the tenant's objects, and one that RBAC refuses.
func (t *theft) attempts() []attempt {
	volumes, claims := t.client.CoreV1().PersistentVolumes(), t.client.CoreV1().PersistentVolumeClaims(cluster.Namespace)
	return []attempt{
		{"create a volume of the thief's node with the tenant's logical volume", thePolicy, func(ctx context.Context) error {
			pv := t.volume.DeepCopy()
			pv.ObjectMeta = metav1.ObjectMeta{Name: "pvc-5b1f6e0c-0000-4000-8000-000000000000", Annotations: pv.Annotations}
			pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{thiefNode}
			_, err := volumes.Create(ctx, pv, metav1.CreateOptions{})
			return err
		}},
		{"delete the volume", thePolicy, func(ctx context.Context) error { return volumes.Delete(ctx, t.volume.Name, metav1.DeleteOptions{}) }},
		{"select the thief's node", thePolicy, func(ctx context.Context) error {
			body := []byte(`{"metadata":{"annotations":{"` + scenario.AnnSelectedNode + `":"` + thiefNode + `"}}}`)
			_, err := claims.Patch(ctx, origin, types.MergePatchType, body, metav1.PatchOptions{})
			return err
		}},
		{"delete the claim", theRBAC, func(ctx context.Context) error { return claims.Delete(ctx, origin, metav1.DeleteOptions{}) }},
		{"publish capacity of the tenant's node", thePolicy, func(ctx context.Context) error {
			size := resource.MustParse("1Ti")
			_, err := t.client.StorageV1().CSIStorageCapacities(cluster.DriverNamespace).Create(ctx, &storagev1.CSIStorageCapacity{
				ObjectMeta: metav1.ObjectMeta{Name: "forged"}, StorageClassName: scenario.FastClass, Capacity: &size,
				NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{cluster.TopologyKey: attackedNode}},
			}, metav1.CreateOptions{})
			return err
		}},
		{"take the content over", thePolicy, func(ctx context.Context) error {
			body := []byte(`{"metadata":{"labels":{"snapshot.storage.kubernetes.io/managed-by":"` + thiefNode + `"}}}`)
			return t.client.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(contents, t.content).Body(body).Do(ctx).Error()
		}},
	}
}

func (t *theft) nothingChanged(ctx context.Context, env *scenario.Environment) error {
	now, err := env.BoundTo(ctx, origin)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(now.Volume.Spec, t.volume.Spec) || !reflect.DeepEqual(now.Volume.Annotations, t.volume.Annotations) {
		return fmt.Errorf("the volume was %v and is %v", t.volume, now.Volume)
	}
	if _, err := env.ExecInPod(ctx, origin, "grep", "-q", secret, "/data/file"); err != nil {
		return err
	}
	if err := isOnDisks(ctx, env, t.volume.Spec.CSI.VolumeHandle); err != nil {
		return err
	}
	return publishedIsReal(ctx, env, 0)
}
