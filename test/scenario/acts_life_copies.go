package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const annSelectedNode = "volume.kubernetes.io/selected-node"

func copies() Act {
	return Act{Title: "A copy is made where its source is, and its pod follows", Steps: []Step{
		{Says: "the pod of a clone is drawn elsewhere, and runs on the source's node", Limit: 6 * time.Minute, Prove: cloneRuns},
		{Says: "a restore of a snapshot that is yet to come, and a clone of that restore: the scheduler sends both to " + otherNode, Limit: 6 * time.Minute, Prove: scheduledElsewhere},
		{Says: "the snapshot is taken on " + sourceNode + ": both are taken back and run there, with what it holds", Limit: 6 * time.Minute, Prove: takenBack},
	}}
}

// besideSource waits until a claim's copy is made, and proves that it was by this driver's choice on the source's node.
func (s *Stage) besideSource(ctx context.Context, name string) error {
	v, err := s.claimBound(ctx, name)
	if err != nil {
		return err
	}
	claim, err := s.claim(ctx, name)
	if err != nil {
		return err
	}
	if v.node != sourceNode || claim.Annotations[annSelectedNode] != sourceNode {
		return fmt.Errorf("claim %s has its volume on %s (selected: %s), its source is on %s",
			name, v.node, claim.Annotations[annSelectedNode], sourceNode)
	}
	said, err := s.claimTold(ctx, name, "SelectedSourceNode", sourceNode)
	if err != nil {
		return err
	}
	s.Narrator.Note("%s: %s", name, said)
	return nil
}

func (s *Stage) runsOn(ctx context.Context, name, node string) error {
	pod, err := s.podReady(ctx, name)
	if err == nil && pod.Spec.NodeName != node {
		err = fmt.Errorf("pod %s runs on %s, not on %s", name, pod.Spec.NodeName, node)
	}
	return err
}

func cloneRuns(ctx context.Context, s *Stage) error {
	if err := apply("life-clone-pod.yaml")(ctx, s); err != nil {
		return err
	}
	return s.runsOn(ctx, "clone-early", sourceNode)
}

var lateCopies = []string{"restore-late", "clone-late"} // claims, and their pods

func scheduledElsewhere(ctx context.Context, s *Stage) error {
	if err := apply("life-late.yaml")(ctx, s); err != nil {
		return err
	}
	for _, name := range lateCopies {
		err := eventually(ctx, func() error {
			claim, err := s.claim(ctx, name)
			if err == nil && claim.Annotations[annSelectedNode] != otherNode {
				err = fmt.Errorf("the node selected for claim %s is %q%s", name, claim.Annotations[annSelectedNode], s.lastEvents(ctx, name))
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func takenBack(ctx context.Context, s *Stage) error {
	if err := apply("life-origin.yaml")(ctx, s); err != nil {
		return err
	}
	if err := s.runsOn(ctx, "origin", sourceNode); err != nil {
		return err
	}
	if err := apply("life-late-snapshot.yaml")(ctx, s); err != nil {
		return err
	}
	for _, name := range lateCopies {
		if err := s.besideSource(ctx, name); err != nil {
			return err
		}
		if err := s.runsOn(ctx, name, sourceNode); err != nil {
			return err
		}
		if content, err := s.inPod(ctx, name, "cat", "/data/file"); err != nil || content != "original" {
			return errors.Join(err, fmt.Errorf("the file in %s says %q", name, content))
		}
	}
	return s.remove(ctx, "pod/restore-late", "pod/clone-late", "pod/origin")
}

func room() Act {
	return Act{Title: "A copy that finds no room waits for it", Steps: []Step{
		{Says: "a volume fills " + sourceNode + " but for 1 GiB", Limit: 6 * time.Minute, Prove: fill},
		{Says: "a restore of 1.5 GiB stays Pending, and an event says why", Limit: 6 * time.Minute, Prove: restoreWaits},
		{Says: "the filler is deleted: the restore proceeds by itself", Limit: 6 * time.Minute, Prove: restoreProceeds},
	}}
}

func fill(ctx context.Context, s *Stage) error {
	free, err := s.publishedRoom(ctx, sourceNode)
	if err != nil {
		return err
	}
	text, err := manifests.ReadFile("manifests/life-filler.yaml")
	if err != nil {
		return err
	}
	sized := strings.ReplaceAll(string(text), "SIZE", fmt.Sprint(free-1<<30))
	if _, err := s.kubectl(ctx, sized, "apply", "-f", "-"); err != nil {
		return err
	}
	return s.runsOn(ctx, "filler", sourceNode)
}

// publishedRoom is the largest thin volume that a node offers, once that stands still: what was made a moment ago may not
// be counted yet.
func (s *Stage) publishedRoom(ctx context.Context, node string) (int64, error) {
	var last int64
	var since time.Time
	err := eventually(ctx, func() error {
		list, err := s.Client.StorageV1().CSIStorageCapacities("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, c := range list.Items {
			if c.StorageClassName != thinClass || c.NodeTopology.MatchLabels[TopologyKey] != node {
				continue
			}
			if now := c.MaximumVolumeSize.Value(); now != last {
				last, since = now, time.Now()
			}
			if standing := time.Since(since); standing < 3*time.Second {
				return fmt.Errorf("%s offers %d bytes, since %s", node, last, standing)
			}
			return nil
		}
		return fmt.Errorf("no CSIStorageCapacity for class %s and node %s", thinClass, node)
	})
	return last, err
}

func restoreWaits(ctx context.Context, s *Stage) error {
	if err := apply("life-restore-large.yaml")(ctx, s); err != nil {
		return err
	}
	said, err := s.claimTold(ctx, "restore-large", "ProvisioningFailed", "until there is room")
	if err != nil {
		return err
	}
	s.Narrator.Note("nodelvm says: %s", said)
	claim, err := s.claim(ctx, "restore-large")
	if err != nil {
		return err
	}
	if claim.Status.Phase != corev1.ClaimPending || claim.Annotations[annSelectedNode] != sourceNode {
		return fmt.Errorf("the claim is %s, its node %q", claim.Status.Phase, claim.Annotations[annSelectedNode])
	}
	return nil
}

func restoreProceeds(ctx context.Context, s *Stage) error {
	if err := s.remove(ctx, "pod/filler", "pvc/filler"); err != nil {
		return err
	}
	if err := s.besideSource(ctx, "restore-large"); err != nil {
		return err
	}
	return s.sizesAgree(ctx, "restore-large", "1536Mi")
}
