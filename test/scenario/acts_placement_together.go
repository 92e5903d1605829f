package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TogetherActs returns a scenario: a pod's volumes are made on one node, or none of them is made. It needs nothing of the
// others, and leaves nothing.
func TogetherActs() []Act {
	return []Act{twoClaims(), nowhereRoom(), claimAndEphemeral()}
}

func twoClaims() Act {
	pod := podWanted{name: "pair", prefers: "node-1", volumes: []volumeWanted{{name: "a", mib: 200}, {name: "b", mib: 200}}}
	return Act{Title: "Two claims of a pod go where both have room", Steps: []Step{
		{Says: "an admin leaves 300 MiB on node-1, 600 MiB on node-2, nothing on node-3", Prove: leave(300, 600, 0)},
		{Says: "a pod with two claims of 200 MiB that prefers node-1 runs on node-2 within a minute", Limit: time.Minute,
			Prove: func(ctx context.Context, s *Stage) error {
				if err := pod.create(ctx, s); err != nil {
					return err
				}
				return pod.runsWhole(ctx, s, "node-2")
			}},
		{Says: "node-1 was tried first, refused both, and holds nothing of it", Prove: func(ctx context.Context, s *Stage) error {
			for _, v := range pod.volumes {
				if err := s.triedOn(ctx, pod.claim(v), "node-1"); err != nil {
					return err
				}
			}
			return s.bare(ctx, "node-1", "node-3")
		}},
		{Says: "when it is deleted, so are its volumes, and node-1 offers its 300 MiB again", Prove: func(ctx context.Context, s *Stage) error {
			if err := endTogether(ctx, s); err != nil {
				return err
			}
			return eventually(ctx, func() error { return errors.Join(s.offers(ctx, "node-1", 300), s.offers(ctx, "node-2", 600)) })
		}},
	}}
}

func nowhereRoom() Act {
	pod := podWanted{name: "couple", prefers: "node-1", volumes: []volumeWanted{{name: "a", mib: 200}, {name: "b", mib: 200}}}
	return Act{Title: "Two claims that have room together nowhere wait, and hold nothing", Steps: []Step{
		{Says: "an admin leaves 300 MiB on node-1 and node-2, nothing on node-3", Prove: leave(300, 300, 0)},
		{Says: "a pod with two claims of 200 MiB is tried on both nodes, and is Pending with no volume anywhere", Prove: func(ctx context.Context, s *Stage) error {
			if err := pod.create(ctx, s); err != nil {
				return err
			}
			for _, node := range []string{"node-1", "node-2"} {
				if err := s.triedOn(ctx, "couple-a", node); err != nil {
					return err
				}
			}
			return errors.Join(s.staysBare(ctx, 5*time.Second), s.pending(ctx, pod.name))
		}},
		{Says: "an admin makes room on node-2: the pod runs there by itself", Prove: func(ctx context.Context, s *Stage) error {
			if err := s.dropFiller(ctx, "node-2"); err != nil {
				return err
			}
			return errors.Join(pod.runsWhole(ctx, s, "node-2"), s.bare(ctx, "node-1", "node-3"))
		}},
		{Says: "it is deleted", Prove: endTogether},
	}}
}

func claimAndEphemeral() Act {
	pod := podWanted{name: "mixed", prefers: "node-1", volumes: []volumeWanted{{name: "data", mib: 200}, {name: "cache", mib: 200, ephemeral: true}}}
	return Act{Title: "A claim and a generic ephemeral volume of a pod go together too", Steps: []Step{
		{Says: "an admin leaves 300 MiB on node-1, 600 MiB on node-2, nothing on node-3", Prove: leave(300, 600, 0)},
		{Says: "a pod with 200 MiB of each that prefers node-1 runs on node-2", Prove: func(ctx context.Context, s *Stage) error {
			if err := pod.create(ctx, s); err != nil {
				return err
			}
			return errors.Join(pod.runsWhole(ctx, s, "node-2"), s.bare(ctx, "node-1", "node-3"))
		}},
		{Says: "it is deleted, and the admin gives all room back", Prove: func(ctx context.Context, s *Stage) error {
			return errors.Join(endTogether(ctx, s), dropFillers(ctx, s))
		}},
	}}
}

func (s *Stage) pending(ctx context.Context, name string) error {
	pod, err := s.Client.CoreV1().Pods(Namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil && (pod.Status.Phase != corev1.PodPending || pod.Spec.NodeName != "") {
		err = fmt.Errorf("pod %s is %s on %q", name, pod.Status.Phase, pod.Spec.NodeName)
	}
	return err
}
