package scenario

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LifeActs returns a second scenario: how volumes grow, are snapshotted and are copied. It needs nothing of the first; the
// thin pools that it leaves on the nodes are meant to stay.
func LifeActs() []Act {
	l := &life{}
	return []Act{
		growing(),
		l.snapshot(),
		copies(),
		room(),
		infeasible(),
		access(),
		lifeEnds(),
	}
}

// life is what one act leaves for the next to know.
type life struct {
	acked    int64 // the writer's rows that were acknowledged before the snapshot was asked for
	begun    int64 // the rows that it had sent when the snapshot was ready
	unloaded int64 // pgbench's transactions before it was at work at the snapshot
}

const (
	thinClass  = "thin"
	sourceNode = "node-1" // where the manifests hold every source
	otherNode  = "node-3" // where they draw the copies' pods
)

func lifeEnds() Act {
	return Act{Title: "A life ends, and nothing is left behind", Steps: []Step{
		{Says: "every database, pod and claim is deleted, the sources before their snapshots", Prove: deleteEverything},
		{Says: "the snapshots are deleted", Prove: deleteSnapshots},
		{Says: "of all volumes and snapshots none remains on any node, only the pools", Prove: func(ctx context.Context, s *Stage) error {
			return eventually(ctx, func() error { return s.onlyPools(ctx) })
		}},
	}}
}

func deleteSnapshots(ctx context.Context, s *Stage) error {
	if _, err := s.kubectl(ctx, "", "delete", "volumesnapshot", "-n", Namespace, "--all", "--wait"); err != nil {
		return err
	}
	return eventually(ctx, func() error {
		left, err := s.kubectl(ctx, "", "get", "volumesnapshotcontent", "-o", "name")
		if err == nil && left != "" {
			err = fmt.Errorf("these are still there: %s", left)
		}
		return err
	})
}

// onlyPools fails if a node has a logical volume that is not the driver's pool.
func (s *Stage) onlyPools(ctx context.Context) error {
	for _, node := range s.Lab.NodeNames() {
		rows, err := s.logicalVolumes(ctx, node)
		if err != nil {
			return err
		}
		rows = slices.DeleteFunc(rows, logicalVolume.isPool)
		if len(rows) > 0 {
			return fmt.Errorf("%s has %d logical volumes: %v", node, len(rows), rows)
		}
	}
	return nil
}

func (s *Stage) claim(ctx context.Context, name string) (*corev1.PersistentVolumeClaim, error) {
	return s.Client.CoreV1().PersistentVolumeClaims(Namespace).Get(ctx, name, metav1.GetOptions{})
}

// claimBound waits until a claim has its volume and tells where that is.
func (s *Stage) claimBound(ctx context.Context, name string) (v volume, err error) {
	err = eventually(ctx, func() error {
		if v, err = s.volumeOf(ctx, name); err != nil {
			return fmt.Errorf("%w%s", err, s.lastEvents(ctx, name))
		}
		return nil
	})
	return v, err
}

// claimTold waits until an event on a claim gives that reason and says those words.
func (s *Stage) claimTold(ctx context.Context, name, reason, words string) (said string, err error) {
	list := metav1.ListOptions{FieldSelector: "involvedObject.kind=PersistentVolumeClaim,involvedObject.name=" + name + ",reason=" + reason}
	err = eventually(ctx, func() error {
		events, err := s.Client.CoreV1().Events(Namespace).List(ctx, list)
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if said = e.Message; strings.Contains(said, words) {
				return nil
			}
		}
		return fmt.Errorf("no event %s on claim %s says %q%s", reason, name, words, s.lastEvents(ctx, name))
	})
	return said, err
}

// remove deletes objects (kind/name) and waits until they are gone.
func (s *Stage) remove(ctx context.Context, objects ...string) error {
	_, err := s.kubectl(ctx, "", append([]string{"delete", "-n", Namespace, "--wait"}, objects...)...)
	return err
}
