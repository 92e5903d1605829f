package scenario

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	secret      = "the other tenant's data"
	writeSecret = "for i in 1 2 3 4 5 6 7 8; do echo \"" + secret + "\" >> /data/file; done; sync; grep -c tenant /data/file"
)

func (s *Stage) victimRuns(ctx context.Context) error {
	if err := apply("attack-victim.yaml")(ctx, s); err != nil {
		return err
	}
	if _, err := s.podReady(ctx, "victim"); err != nil {
		return err
	}
	_, err := s.inPod(ctx, "victim", "sh", "-ec", writeSecret)
	return err
}

func victimIsSafe(ctx context.Context, s *Stage) error {
	if err := s.victimRuns(ctx); err != nil {
		return err
	}
	if err := s.victimIsOnDisks(ctx); err != nil {
		return err
	}
	if _, err := s.inPod(ctx, "attacker", "sh", "-ec", "! grep -q \""+secret+"\" /dev/raw-volume"); err != nil {
		return fmt.Errorf("the attacker's device shows the other tenant's data: %w", err)
	}
	if _, err := s.kubectl(ctx, "", "delete", "pod/victim", "pvc/victim", "-n", Namespace, "--wait"); err != nil {
		return err
	}
	return s.publishedIsReal(ctx, 0)
}

func (s *Stage) victimIsOnDisks(ctx context.Context) error {
	bound, err := s.boundTo(ctx, "victim")
	if err != nil {
		return err
	}
	return s.isOnDisks(ctx, bound.volume.Spec.CSI.VolumeHandle)
}

// isOnDisks asks LVM, which reads the node's disks alone, whether it has a volume or a snapshot.
func (s *Stage) isOnDisks(ctx context.Context, handle string) error {
	vg, lv, _ := strings.Cut(handle, "/")
	out, err := s.run(ctx, attackedNode, "lvs", "--devices", nodeDisks, "--noheadings", "-o", "vg_uuid,lv_name", "-S", "lv_name="+lv)
	if err != nil {
		return err
	}
	if fields := strings.Fields(string(out)); !slices.Equal(fields, []string{vg, lv}) {
		return fmt.Errorf("volume %s: LVM on the node's disks answers %q", handle, out)
	}
	return nil
}

func victimIsBack(ctx context.Context, s *Stage) error {
	if err := apply("attack-victim.yaml")(ctx, s); err != nil {
		return err
	}
	if _, err := s.podReady(ctx, "victim"); err != nil {
		return err
	}
	if _, err := s.inPod(ctx, "victim", "grep", "-q", secret, "/data/file"); err != nil {
		return err
	}
	return s.victimIsOnDisks(ctx)
}

// nodeRun is what a restart of the attacked node or of a container of its driver changes.
type nodeRun struct{ was string }

func (r *nodeRun) note(ctx context.Context, s *Stage) (err error) {
	r.was, err = s.runOf(ctx, attackedNode)
	return err
}

func (r *nodeRun) goesOn(ctx context.Context, s *Stage) error {
	is, err := s.runOf(ctx, attackedNode)
	if err == nil && is != r.was {
		err = fmt.Errorf("the run of the node was\n%s\nand is\n%s", r.was, is)
	}
	return err
}

func (s *Stage) runOf(ctx context.Context, node string) (string, error) {
	boot, err := s.run(ctx, node, "cat", "/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	pods, err := s.Client.CoreV1().Pods(driverNamespace).List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=nodelvm", FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return "", err
	}
	run := string(boot)
	for _, pod := range pods.Items {
		for _, c := range pod.Status.ContainerStatuses {
			run += fmt.Sprintf("%s of pod %s: %s, restarted %d times\n", c.Name, pod.UID, c.ContainerID, c.RestartCount)
		}
	}
	return run, nil
}
