package scenario

import (
	"context"
	"embed"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

//go:embed manifests
var manifests embed.FS

// apply sends one of the scenario's manifests to the API server.
func apply(name string) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error {
		text, err := manifests.ReadFile("manifests/" + name)
		if err != nil {
			return err
		}
		_, err = s.kubectl(ctx, string(text), "apply", "-f", "-")
		return err
	}
}

// eventually asks again until ok holds; at the end of its time it fails with the last thing it saw.
func eventually(ctx context.Context, ok func() error) error {
	var saw error
	for {
		err := ok()
		if err == nil {
			return nil
		}
		if saw == nil || !isOver(ctx) { // a question that the end of the time cuts off sees nothing
			saw = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within the time: %w", saw)
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// isOver tells whether the time has come to its end, even if the timer that says so is late.
func isOver(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// afterwards gives a minute to what must be done even where the time of a step is over.
func afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
}

// podReady waits until a pod is Ready and returns it.
func (s *Stage) podReady(ctx context.Context, name string) (*corev1.Pod, error) {
	var pod *corev1.Pod
	err := eventually(ctx, func() (err error) {
		pod, err = s.Client.CoreV1().Pods(Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		if !ready || pod.DeletionTimestamp != nil {
			return fmt.Errorf("pod %s is %s, not yet Ready%s", name, pod.Status.Phase, s.lastEvents(ctx, name))
		}
		return nil
	})
	return pod, err
}

// lastEvents renders the newest events of an object, for a failure's message.
func (s *Stage) lastEvents(ctx context.Context, name string) string {
	list, err := s.Client.CoreV1().Events(Namespace).List(context.WithoutCancel(ctx), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	if err != nil {
		return ""
	}
	var text strings.Builder
	for _, e := range list.Items[max(0, len(list.Items)-4):] {
		fmt.Fprintf(&text, "\n%s: %s", e.Reason, e.Message)
	}
	return text.String()
}

// eventSaying waits for an event on an object whose message contains the words.
func (s *Stage) eventSaying(ctx context.Context, object, words string) (string, error) {
	var said string
	err := eventually(ctx, func() error {
		list, err := s.Client.CoreV1().Events(Namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + object})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			if strings.Contains(e.Message, words) {
				said = e.Message
				return nil
			}
		}
		return fmt.Errorf("no event on %s says %q%s", object, words, s.lastEvents(ctx, object))
	})
	return said, err
}

// volume ties together what Kubernetes and LVM each know of one claim's volume.
type volume struct {
	claim, node, group, lv, size string
}

// volumeOf follows a bound claim to its logical volume and proves that it is where the PV says.
func (s *Stage) volumeOf(ctx context.Context, claim string) (volume, error) {
	pvc, err := s.Client.CoreV1().PersistentVolumeClaims(Namespace).Get(ctx, claim, metav1.GetOptions{})
	if err != nil {
		return volume{}, err
	}
	if pvc.Status.Phase != corev1.ClaimBound {
		return volume{}, fmt.Errorf("claim %s is %s", claim, pvc.Status.Phase)
	}
	pv, err := s.Client.CoreV1().PersistentVolumes().Get(ctx, pvc.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return volume{}, err
	}
	node, err := affinityNode(pv)
	if err != nil {
		return volume{}, err
	}
	_, lv, _ := strings.Cut(pv.Spec.CSI.VolumeHandle, "/")
	rows, err := s.logicalVolumes(ctx, node)
	if err != nil {
		return volume{}, err
	}
	for _, row := range rows {
		if row.Name == lv {
			return volume{claim: claim, node: node, group: row.Group, lv: lv, size: row.Size}, nil
		}
	}
	return volume{}, fmt.Errorf("PV %s names node %s and LV %s, but lvs on that node does not show it", pv.Name, node, lv)
}

// affinityNode reads the one node that a PV may be used on.
func affinityNode(pv *corev1.PersistentVolume) (string, error) {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return "", fmt.Errorf("PV %s has no node affinity", pv.Name)
	}
	for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			if e.Key == TopologyKey && len(e.Values) == 1 {
				return e.Values[0], nil
			}
		}
	}
	return "", fmt.Errorf("PV %s has no affinity on %s", pv.Name, TopologyKey)
}

// showVolumes prints who has which volume where.
func (s *Stage) showVolumes(ctx context.Context) error {
	claims, err := s.Client.CoreV1().PersistentVolumeClaims(Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	users, err := s.usersOfClaims(ctx)
	if err != nil {
		return err
	}
	rows := [][]string{}
	for _, pvc := range claims.Items {
		v, err := s.volumeOf(ctx, pvc.Name)
		if err != nil {
			rows = append(rows, []string{users[pvc.Name], pvc.Name, "-", "-", string(pvc.Status.Phase), "-"})
			continue
		}
		rows = append(rows, []string{users[pvc.Name], pvc.Name, v.node, v.group, v.lv, mebibytes(v.size)})
	}
	if len(rows) > 0 {
		s.Narrator.Table([]string{"POD", "CLAIM", "NODE", "VOLUME GROUP", "LOGICAL VOLUME", "SIZE"}, rows)
	}
	return nil
}

// usersOfClaims maps each claim to the pod that mounts it.
func (s *Stage) usersOfClaims(ctx context.Context) (map[string]string, error) {
	pods, err := s.Client.CoreV1().Pods(Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	users := map[string]string{}
	for _, pod := range pods.Items {
		for _, v := range pod.Spec.Volumes {
			if v.PersistentVolumeClaim != nil {
				users[v.PersistentVolumeClaim.ClaimName] = pod.Name
			}
		}
	}
	return users, nil
}
