package attack

import (
	"context"
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
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
		{Says: "a content of " + thiefNode + " names the tenant's snapshot, and the thief calls it ready: no claim gets a copy, and an event says why", Limit: 5 * time.Minute, Prove: t.forgedContentRestoresNothing},
		{Says: "that content is deleted: the tenant's snapshot stays", Limit: 5 * time.Minute, Prove: t.forgedContentDeletesNothing},
		{Says: "the tenant's volume, claim, data and capacity are as before", Prove: t.nothingChanged},
		{Says: "neither the node nor its driver has been restarted", Prove: run.goesOn},
		{Says: "everything is deleted", Prove: attackIsOver},
	}}
}

func (t *theft) begin(ctx context.Context, env *scenario.Environment) (err error) {
	if err := scenario.InOrder(scenario.Apply("classes.yaml", "life-classes.yaml", "attack-origin.yaml"), scenario.PodReady(origin))(ctx, env); err != nil {
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
