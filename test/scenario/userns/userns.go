// Package userns has the scenario of pods with their own user namespace (hostUsers: false). Their users have other ids on the node than in the
// pod, and the runtime maps them at each mount of a volume: the volume has the ids of the pod.
package userns

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/lab"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// The pods of userns-pod.yaml run as user 1000, one container as root, with fsGroup 2000. Each writes a file as each of them.
var pods = []string{"mapped-1", "mapped-2", "ordinary"}

// Scenarios returns how pods with and without a user namespace use the same volumes.
func Scenarios() []scenario.Scenario {
	return []scenario.Scenario{{Title: "Pods with their own user namespaces share volumes with an ordinary pod", Steps: []scenario.Step{
		{Says: "the node has a runtime that maps the ids of mounts", Prove: install},
		{Says: "two pods with hostUsers: false have different ids on the node, and an ordinary pod runs beside them", Prove: begin},
		{Says: "each writes to ext4, xfs and btrfs volumes with fsGroup", Prove: write},
		{Says: "each reads all files, which have the pod's ids and the fsGroup", Prove: read},
		{Says: "the files have these ids on the disks", Prove: onDisk},
		{Says: "the pods and volumes are deleted", Prove: scenario.DeletePodsAndVolumes},
	}}}
}

func install(ctx context.Context, env *scenario.Environment) error {
	if err := env.Lab.InstallRunc(ctx, scenario.FirstNode); err != nil {
		return err
	}
	if err := scenario.InOrder(scenario.CreateClasses, scenario.Apply("userns.yaml"))(ctx, env); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error {
		node, err := env.Client.CoreV1().Nodes().Get(ctx, scenario.FirstNode, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, h := range node.Status.RuntimeHandlers {
			if h.Name == lab.UserNamespaces && h.Features != nil && h.Features.UserNamespaces != nil && *h.Features.UserNamespaces {
				return nil
			}
		}
		return fmt.Errorf("node %s has no runtime handler with user namespaces: %v", node.Name, node.Status.RuntimeHandlers)
	})
}

func begin(ctx context.Context, env *scenario.Environment) error {
	var first []string // the id on the node of the pod's root
	for _, name := range pods {
		if err := env.ApplyWith(ctx, "userns-pod.yaml", "NAME", name, "HOSTUSERS", fmt.Sprint(name == "ordinary")); err != nil {
			return err
		}
		if _, err := env.WaitPodReady(ctx, name); err != nil {
			return err
		}
		ids, err := env.ExecInPod(ctx, name, "cat", "/proc/self/uid_map")
		if err != nil {
			return err
		}
		fields := strings.Fields(ids)
		if len(fields) != 3 || fields[0] != "0" {
			return fmt.Errorf("the ids of pod %s are %q", name, ids)
		}
		first = append(first, fields[1])
	}
	env.Reporter.Note("root of the pods is %s on the node", strings.Join(first, ", "))
	if first[2] != "0" || first[0] == "0" || first[1] == "0" || first[0] == first[1] {
		return fmt.Errorf("root of the pods is %v on the node", first)
	}
	return nil
}

// writeFiles writes a file with the name $0 to each volume, whose file system is of the type that its path says.
const writeFiles = `for d in /ext4 /xfs /btrfs; do grep -q " $d ${d#/} " /proc/mounts; done
for d in /ext4 /xfs /btrfs /sub; do echo "$0" >"$d/$0"; done; sync`

func write(ctx context.Context, env *scenario.Environment) error {
	for _, name := range pods {
		if _, err := env.ExecInPod(ctx, name, "sh", "-ec", writeFiles, name); err != nil {
			return err
		}
	}
	return nil
}

// listFiles prints owner, group and name of each file below the folders $@.
const listFiles = `for d; do for f in "$d"/*; do [ ! -f "$f" ] || stat -c '%u:%g %n' "$f"; done; done`

// wantFiles is what listFiles prints for a folder.
func wantFiles(folder string) (want []string) {
	for _, name := range pods {
		want = append(want, "1000:2000 "+folder+"/"+name, "0:2000 "+folder+"/"+name+"-root")
	}
	slices.Sort(want)
	return want
}

func read(ctx context.Context, env *scenario.Environment) error {
	folders := []string{"/ext4", "/xfs", "/btrfs", "/sub"}
	var want []string
	for _, folder := range folders {
		want = append(want, wantFiles(folder)...)
	}
	slices.Sort(want)
	for _, name := range pods {
		said, err := env.ExecInPod(ctx, name, append([]string{"sh", "-ec", listFiles, "sh"}, folders...)...)
		if err != nil {
			return err
		}
		if err := expectLines(said, want); err != nil {
			return fmt.Errorf("pod %s: %w", name, err)
		}
		content, err := env.ExecInPod(ctx, name, "sh", "-ec", `cat "$@"`, "sh", "/ext4/mapped-1", "/xfs/mapped-2", "/btrfs/ordinary", "/sub/mapped-1")
		if err != nil {
			return err
		}
		if content != "mapped-1\nmapped-2\nordinary\nmapped-1" {
			return fmt.Errorf("pod %s reads %q", name, content)
		}
	}
	return nil
}

// onDisk lists the files where the driver mounted the volumes, which is not mapped.
func onDisk(ctx context.Context, env *scenario.Environment) error {
	pod, err := env.WaitPodReady(ctx, pods[0])
	if err != nil {
		return err
	}
	for _, claim := range []string{"ext4", "xfs", "btrfs"} {
		bound, err := env.Claim(ctx, claim)
		if err != nil {
			return err
		}
		folder := fmt.Sprintf("/var/lib/kubelet/pods/%s/volumes/kubernetes.io~csi/%s/mount", pod.UID, bound.Spec.VolumeName)
		said, err := env.RunOnNode(ctx, scenario.FirstNode, "sh", "-ec", listFiles, "sh", folder)
		if err != nil {
			return err
		}
		if err := expectLines(string(said), wantFiles(folder)); err != nil {
			return err
		}
	}
	return nil
}

func expectLines(said string, want []string) error {
	got := strings.Split(strings.TrimSpace(said), "\n")
	if slices.Sort(got); !slices.Equal(got, want) {
		return fmt.Errorf("the files are %q, want %q", got, want)
	}
	return nil
}
