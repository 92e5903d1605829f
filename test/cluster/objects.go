package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	corev1 "k8s.io/api/core/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WaitPodReady waits until a pod is Ready and returns it.
func (c *Cluster) WaitPodReady(ctx context.Context, name string) (*corev1.Pod, error) {
	var pod *corev1.Pod
	err := Eventually(ctx, func() (err error) {
		pod, err = c.Client.CoreV1().Pods(Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		ready := slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
			return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
		})
		if !ready || pod.DeletionTimestamp != nil {
			return fmt.Errorf("pod %s is %s, not yet Ready%s", name, pod.Status.Phase, c.LastEvents(ctx, name))
		}
		return nil
	})
	return pod, err
}

func (c *Cluster) PodReplaced(ctx context.Context, name string, old types.UID) error {
	pod, err := c.Client.CoreV1().Pods(Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if pod.UID == old {
		return fmt.Errorf("pod %s is still the old one", name)
	}
	return nil
}

func (c *Cluster) Claim(ctx context.Context, name string) (*corev1.PersistentVolumeClaim, error) {
	return c.Client.CoreV1().PersistentVolumeClaims(Namespace).Get(ctx, name, metav1.GetOptions{})
}

// WaitClaimBound waits until a claim has its volume, and returns the volume.
func (c *Cluster) WaitClaimBound(ctx context.Context, name string) (v Volume, err error) {
	err = Eventually(ctx, func() error {
		if v, err = c.VolumeOf(ctx, name); err != nil {
			return fmt.Errorf("%w%s", err, c.LastEvents(ctx, name))
		}
		return nil
	})
	return v, err
}

// WaitClaimEvent waits for an event on a claim with this reason whose message contains the words, and notes the message.
func (c *Cluster) WaitClaimEvent(ctx context.Context, name, reason, words string) error {
	return c.waitEvent(ctx, name, "involvedObject.kind=PersistentVolumeClaim,reason="+reason, words)
}

// WaitEvent waits for an event on an object whose message contains the words, and notes the message.
func (c *Cluster) WaitEvent(ctx context.Context, object, words string) error {
	return c.waitEvent(ctx, object, "", words)
}

func (c *Cluster) waitEvent(ctx context.Context, object, selector, words string) error {
	selector = strings.TrimSuffix("involvedObject.name="+object+","+selector, ",")
	return Eventually(ctx, func() error {
		list, err := c.Client.CoreV1().Events(Namespace).List(ctx, metav1.ListOptions{FieldSelector: selector})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			if strings.Contains(e.Message, words) {
				c.Reporter.Note("%s: %s", e.Reason, e.Message)
				return nil
			}
		}
		return fmt.Errorf("no event with %s says %q%s", selector, words, c.LastEvents(ctx, object))
	})
}

// RequestSize requests a new size for a claim.
func (c *Cluster) RequestSize(ctx context.Context, claim, size string) error {
	patch := fmt.Sprintf(`{"spec":{"resources":{"requests":{"storage":%q}}}}`, size)
	_, err := c.Client.CoreV1().PersistentVolumeClaims(Namespace).Patch(ctx, claim, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// Delete deletes objects (kind/name) and waits until they are gone.
func (c *Cluster) Delete(ctx context.Context, objects ...string) error {
	_, err := c.Kubectl(ctx, "", append([]string{"delete", "-n", Namespace, "--wait"}, objects...)...)
	return err
}

// Deletion returns a function that deletes an object, if it exists, and waits until it is gone.
func (c *Cluster) Deletion(ctx context.Context, object string) func() error {
	return func() error { return c.Delete(ctx, object, "--ignore-not-found") }
}

// LastEvents returns the last events of an object as text for an error.
func (c *Cluster) LastEvents(ctx context.Context, name string) string {
	list, err := c.Client.CoreV1().Events(Namespace).List(context.WithoutCancel(ctx), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	if err != nil {
		return ""
	}
	var text strings.Builder
	for _, e := range list.Items[max(0, len(list.Items)-4):] {
		fmt.Fprintf(&text, "\n%s: %s", e.Reason, e.Message)
	}
	return text.String()
}
