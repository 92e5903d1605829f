package scenario

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const attackedNode = "node-1"

// AttackActs runs a tenant who has a raw block volume and a pod without privilege, and who writes on the volume what the node
// could take for its own.
func AttackActs() []Act { return []Act{attack(forgeries()), attackThenReboot()} }

func attack(all []forgery) Act {
	steps := []Step{{Says: "a pod without privilege on " + attackedNode + " has a raw block volume of the class", Prove: attackerRuns}}
	for _, f := range all {
		steps = append(steps, Step{Says: "the pod writes " + f.name + ": the published capacity stays that of the node's disks", Limit: 2 * time.Minute,
			Prove: func(ctx context.Context, s *Stage) error { return s.forge(ctx, f) }})
		if f.event != "" {
			steps = append(steps, Step{Says: "an event on the claim says that the volume begins like " + f.event, Limit: 2 * time.Minute,
				Prove: func(ctx context.Context, s *Stage) error {
					_, err := s.eventSaying(ctx, "attacker", "begins like "+f.event)
					return err
				}})
		}
		if f.lvm {
			steps = append(steps, Step{Says: "the next tenant's volume is on the node's disks, and the pod's device shows nothing of it", Limit: 3 * time.Minute, Prove: victimIsSafe})
		}
	}
	return Act{Title: "A tenant attacks from a raw block volume", Steps: append(steps,
		Step{Says: "another tenant's pod runs, and the attacker's pod and volume can be deleted at once", Limit: 2 * time.Minute, Prove: attackerLeaves},
		Step{Says: "everything is deleted", Prove: attackIsOver},
	)}
}

func attackThenReboot() Act {
	forged := forgeries()
	return Act{Title: "The node reboots with forged groups on a raw block volume", Steps: []Step{
		{Says: "a tenant's pod writes data", Prove: func(ctx context.Context, s *Stage) error { return s.victimRuns(ctx) }},
		{Says: "an attacker's pod writes " + forged[3].name, Prove: func(ctx context.Context, s *Stage) error {
			if err := attackerRuns(ctx, s); err != nil {
				return err
			}
			return s.forge(ctx, forged[3])
		}},
		{Says: "the tenant's pod ends; the node's power is cut, and it boots with the attacker's pod alone", Prove: rebootWithAttacker},
		{Says: "the published capacity stays that of the node's disks", Prove: func(ctx context.Context, s *Stage) error { return s.publishedIsReal(ctx, 3*time.Second) }},
		{Says: "the tenant's pod comes back and finds its data", Prove: victimIsBack},
		{Says: "everything is deleted", Prove: attackIsOver},
	}}
}

func attackerRuns(ctx context.Context, s *Stage) error {
	for _, manifest := range []string{"classes.yaml", "attack.yaml"} {
		if err := apply(manifest)(ctx, s); err != nil {
			return err
		}
	}
	if _, err := s.podReady(ctx, "attacker"); err != nil {
		return err
	}
	return s.publishedIsReal(ctx, 0)
}

// forge has the attacker's pod write the content over the beginning of its volume.
func (s *Stage) forge(ctx context.Context, f forgery) error {
	encoded, err := s.run(ctx, attackedNode, "sh", "-c", `dir=$(mktemp -d) && cd $dir && { `+f.script+"\n} | base64 -w0; cd / && rm -r $dir")
	if err != nil {
		return err
	}
	content, err := base64.StdEncoding.DecodeString(string(encoded))
	if err == nil && f.change != nil {
		content, err = f.change(content)
	}
	if err != nil {
		return fmt.Errorf("make %s: %w", f.name, err)
	}
	if len(content) < 1<<20 {
		return fmt.Errorf("%s has %d bytes only", f.name, len(content))
	}
	_, err = s.kubectl(ctx, base64.StdEncoding.EncodeToString(content), "exec", "-i", "-n", Namespace, "attacker", "--",
		"sh", "-ec", "base64 -d | dd of=/dev/raw-volume bs=1M conv=fsync 2>/dev/null; [ $(head -c "+strconv.Itoa(len(content))+" /dev/raw-volume | wc -c) = "+strconv.Itoa(len(content))+" ]")
	if err != nil {
		return err
	}
	if _, err := s.run(ctx, attackedNode, "udevadm", "settle"); err != nil {
		return err
	}
	return s.publishedIsReal(ctx, 3*time.Second)
}

// publishedIsReal waits until the node's published capacity equals the free extents of the group on its disks, and then
// watches that for a while: csi-provisioner asks for the capacity each second.
func (s *Stage) publishedIsReal(ctx context.Context, watch time.Duration) error {
	if err := eventually(ctx, func() error { return s.publishedEqualsDisks(ctx) }); err != nil {
		return err
	}
	for began := time.Now(); time.Since(began) < watch; {
		if err := s.publishedEqualsDisks(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(300 * time.Millisecond):
		}
	}
	return nil
}

func (s *Stage) publishedEqualsDisks(ctx context.Context) error {
	groups, err := report[group](ctx, s, attackedNode, "vg", "vgs", "--devices", nodeDisks, "-o", "vg_name,vg_extent_size,vg_free_count")
	if err != nil {
		return err
	}
	if len(groups) != 1 || groups[0].Name != nodeGroup {
		return fmt.Errorf("the node's disks hold %v, want %s alone", groups, nodeGroup)
	}
	count, err := strconv.ParseInt(groups[0].FreeExtents, 10, 64)
	if err != nil {
		return err
	}
	size, err := strconv.ParseInt(groups[0].ExtentSize, 10, 64)
	if err != nil {
		return err
	}
	objects, err := s.Client.StorageV1().CSIStorageCapacities("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, c := range objects.Items {
		if c.StorageClassName != fastClass || c.NodeTopology.MatchLabels[TopologyKey] != attackedNode {
			continue
		}
		if c.Capacity.Value() != count*size {
			return fmt.Errorf("%s publishes %d bytes, its disks have %d extents of %d bytes free", attackedNode, c.Capacity.Value(), count, size)
		}
		return nil
	}
	return fmt.Errorf("%s publishes no capacity for class %s", attackedNode, fastClass)
}

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

// victimIsOnDisks asks LVM, which reads the node's disks alone, whether it has the victim's volume.
func (s *Stage) victimIsOnDisks(ctx context.Context) error {
	pvc, err := s.Client.CoreV1().PersistentVolumeClaims(Namespace).Get(ctx, "victim", metav1.GetOptions{})
	if err != nil {
		return err
	}
	pv, err := s.Client.CoreV1().PersistentVolumes().Get(ctx, pvc.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	vg, lv, _ := strings.Cut(pv.Spec.CSI.VolumeHandle, "/")
	out, err := s.run(ctx, attackedNode, "lvs", "--devices", nodeDisks, "--noheadings", "-o", "vg_uuid,lv_name,devices", "-S", "lv_name="+lv)
	if err != nil {
		return err
	}
	if fields := strings.Fields(string(out)); len(fields) != 3 || fields[0] != vg || !strings.HasPrefix(fields[2], "/dev/ubd") {
		return fmt.Errorf("volume %s: LVM on the node's disks answers %q", pv.Spec.CSI.VolumeHandle, out)
	}
	return nil
}

func attackerLeaves(ctx context.Context, s *Stage) error {
	if err := s.forge(ctx, forgeries()[0]); err != nil {
		return err
	}
	if err := s.victimRuns(ctx); err != nil {
		return err
	}
	began := time.Now()
	if _, err := s.kubectl(ctx, "", "delete", "pod/attacker", "pvc/attacker", "-n", Namespace, "--wait", "--timeout=60s"); err != nil {
		return err
	}
	s.Narrator.Note("the attacker's pod and claim were gone after %.0f s", time.Since(began).Seconds())
	return nil
}

func rebootWithAttacker(ctx context.Context, s *Stage) error {
	if _, err := s.kubectl(ctx, "", "delete", "pod/victim", "-n", Namespace, "--wait"); err != nil {
		return err
	}
	if _, err := s.run(ctx, attackedNode, "sync"); err != nil {
		return err
	}
	if err := s.Lab.PowerCut(attackedNode); err != nil {
		return err
	}
	if err := s.Lab.Boot(ctx, attackedNode); err != nil {
		return err
	}
	return eventually(ctx, func() error {
		if err := s.restarted(ctx, "attacker"); err != nil {
			return err
		}
		_, err := s.inPod(ctx, "attacker", "head", "-c", "1", "/dev/raw-volume")
		return err
	})
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

func attackIsOver(ctx context.Context, s *Stage) error {
	if err := deleteEverything(ctx, s); err != nil {
		return err
	}
	return s.publishedIsReal(ctx, 0)
}
