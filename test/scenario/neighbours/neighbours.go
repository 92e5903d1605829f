package neighbours

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
	"github.com/nodelvm/nodelvm/test/scenario/attack"
)

const (
	node        = scenario.FirstNode // it has the disks of both drivers
	otherDriver = "disks.example"
	diskSize    = 128 << 20
	pod         = "both"
)

// disks are what the other driver hands out, in this order: the pod's two, then those of copies.
var disks = []string{"ubdd", "ubde", "ubdf", "ubdg"}

// Scenarios returns the life of nodelvm and of another driver on one node.
func Scenarios() []scenario.Scenario {
	beside := &beside{}
	attacked := append([]scenario.Step{
		{Says: "the other driver runs on " + node + ", with four disks that were attached a moment ago", Prove: install},
		{Says: "a pod has a volume of nodelvm and two disks of the other driver; the doctor finds nothing", Prove: beside.start},
	}, attack.OnDisk(pod)...)
	return []scenario.Scenario{
		{Title: "Another CSI driver hands out disks of a node", Steps: append(attacked,
			scenario.Step{Says: "the pod writes the same on its second disk: another tenant's volume is on the node's own disks, nothing is written to these two, and the doctor finds nothing", Prove: duplicated},
			scenario.Step{Says: "the other driver copies the disk for a snapshot and a clone: kubectl nodelvm disks says that these two are not accepted", Prove: copied},
			scenario.Step{Says: "nodelvm's driver has not been restarted", Prove: beside.goesOn},
		)},
		claims(),
		{Title: "The other driver's disks stay when their pod ends, the node reboots, and they are detached", Steps: []scenario.Step{
			{Says: "the pod ends: doctor and an event on the node name the disks that nodelvm ignores, and an admin cannot accept one by mistake",
				Prove: scenario.InOrder(podEnds, ignored(disks...), isNamed, isRefused, attack.NextTenant)},
			{Says: "the node reboots: nodelvm goes on, and a pod finds its data on the volumes of both drivers", Prove: rebooted},
			{Says: "a disk is detached, and returns: nodelvm goes on each time, and ignores it again", Prove: returned},
			{Says: "everything is deleted, the other driver too, and the doctor finds nothing",
				Prove: scenario.InOrder(scenario.DeleteSnapshots, scenario.DeleteEverything, uninstall, detach(disks...), ignored(), scenario.NoVolumesRemain, scenario.DoctorFindsNothing)},
		}},
	}
}

// install attaches blank disks, and starts the other driver.
func install(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.CreateClasses(ctx, env); err != nil {
		return err
	}
	for _, disk := range disks {
		if err := env.Lab.AttachDisk(node, disk, diskSize); err != nil {
			return err
		}
	}
	if err := env.Lab.ImportProgram(ctx, "diskdriver", "nodelvm.test/diskdriver:lab", node); err != nil {
		return err
	}
	top, err := cluster.Checkout()
	if err != nil {
		return err
	}
	words := []string{"DISKS", "/dev/" + strings.Join(disks, ",/dev/")}
	for word, key := range map[string]string{"PROVISIONER": "CSI_PROVISIONER_VERSION", "SNAPSHOTTER": "CSI_SNAPSHOTTER_VERSION"} {
		version, err := cluster.Version(filepath.Join(top, "versions.env"), key)
		if err != nil {
			return err
		}
		words = append(words, word, version)
	}
	if err := env.ApplyWith(ctx, "neighbours-driver.yaml", words...); err != nil {
		return err
	}
	_, err = env.Kubectl(ctx, "", "rollout", "status", "-n", "disks", "daemonset/disks")
	return err
}

var podRuns = scenario.InOrder(scenario.Apply("neighbours-pod.yaml"), scenario.PodReady(pod))

// execute returns what a step does to run a script in the pod.
func execute(script string) func(context.Context, *scenario.Environment) error {
	return func(ctx context.Context, env *scenario.Environment) error {
		_, err := env.ExecInPod(ctx, pod, "sh", "-ec", script)
		return err
	}
}

// beside is the run of nodelvm's container beside the other driver.
type beside struct{ run string }

// start creates the pod. What it writes on the volume of nodelvm is there until the end.
func (b *beside) start(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.InOrder(podRuns, execute("echo plain > /data/word; sync"))(ctx, env); err != nil {
		return err
	}
	drivers, err := env.Kubectl(ctx, "", "get", "pv", "--sort-by=.spec.csi.driver", "-o", "jsonpath={.items[*].spec.csi.driver}")
	if err != nil || drivers != otherDriver+" "+otherDriver+" "+cluster.Driver {
		return fmt.Errorf("the volumes are of %s: %w", drivers, err)
	}
	driver, err := env.DriverPodOn(ctx, node)
	if err != nil {
		return err
	}
	b.run = scenario.ContainerOf(&driver)
	return scenario.DoctorFindsNothing(ctx, env)
}

func (b *beside) goesOn(ctx context.Context, env *scenario.Environment) error {
	driver, err := env.DriverPodOn(ctx, node)
	if err == nil && scenario.ContainerOf(&driver) != b.run {
		err = fmt.Errorf("it was %s, and is %s", b.run, scenario.ContainerOf(&driver))
	}
	return err
}

// duplicated leaves one physical volume on three devices: one of the node, and two of the other driver, to which nothing else is written.
var duplicated = scenario.InOrder(execute("dd if=/dev/raw-volume of=/dev/twin bs=1M count=2 conv=fsync"), attack.NextTenant,
	execute("cmp -n 4194304 /dev/raw-volume /dev/twin"), scenario.DoctorFindsNothing)

// copied has forged metadata on disks that no pod uses.
var copied = scenario.InOrder(scenario.Apply("neighbours-copies.yaml"), func(ctx context.Context, env *scenario.Environment) error {
	return env.WaitSnapshotReady(ctx, "disk")
}, ignored(disks[2:]...), attack.NextTenant)

// ignored waits until exactly these disks are not accepted, as kubectl nodelvm disks says.
func ignored(want ...string) func(context.Context, *scenario.Environment) error {
	return func(ctx context.Context, env *scenario.Environment) error {
		return cluster.Eventually(ctx, func() error {
			said, err := env.Shell(ctx, "kubectl nodelvm disks")
			if err != nil {
				return err
			}
			missing := slices.ContainsFunc(want, func(disk string) bool { return !strings.Contains(said, "/dev/"+disk+" ") })
			if missing || strings.Count(said, "not accepted") != len(want) {
				return fmt.Errorf("not accepted should be %v:\n%s", want, said)
			}
			return nil
		})
	}
}

func podEnds(ctx context.Context, env *scenario.Environment) error {
	return env.Delete(ctx, "pod/"+pod)
}

// isNamed waits until doctor and an event on the node name the disks, and the one that they are copies of.
func isNamed(ctx context.Context, env *scenario.Environment) error {
	words := []string{"the node's record has its physical volume on another device, last /dev/ubdb", "/dev/" + disks[0], "/dev/" + disks[3]}
	return cluster.Eventually(ctx, func() error {
		said, err := env.Shell(ctx, scenario.DoctorCommand)
		if err == nil {
			return errors.New("the doctor finds nothing")
		}
		events, err := env.Kubectl(ctx, "", "get", "events", "-A", "--field-selector", "reason=PhysicalVolumeNotAccepted,involvedObject.name="+node, "-o", "jsonpath={.items[*].message}")
		if err != nil {
			return err
		}
		for _, word := range words {
			if !strings.Contains(said, word) || !strings.Contains(events, word) {
				return fmt.Errorf("%q is not in both; doctor says\n%s\nand events %s", word, said, events)
			}
		}
		return nil
	})
}

// isRefused: the command that doctor prints would give the node's group to the tenant.
func isRefused(ctx context.Context, env *scenario.Environment) error {
	driver, err := env.DriverPodOn(ctx, node)
	if err != nil {
		return err
	}
	said, err := env.Kubectl(ctx, "", "exec", "-n", cluster.DriverNamespace, driver.Name, "-c", "nodelvm", "--", "nodelvm", "disks", "accept", "/dev/"+disks[0])
	if err == nil || !strings.Contains(err.Error(), "is also on /dev/ubdb") {
		return fmt.Errorf("nodelvm disks accept said %q (%w)", said, err)
	}
	return nil
}

// rebooted boots the node with the disks attached: no pod holds them when the driver starts.
var rebooted = scenario.InOrder(func(ctx context.Context, env *scenario.Environment) error { return env.RebootNode(ctx, node) },
	func(ctx context.Context, env *scenario.Environment) error {
		return cluster.Eventually(ctx, func() error { return env.WaitDriverRolledOut(ctx) })
	}, ignored(disks...), attack.NextTenant, podRuns,
	execute("grep -q plain /data/word; for d in raw-volume twin; do head -c 600 /dev/$d | grep -q LABELONE; done"), podEnds)

var returned = scenario.InOrder(detach(disks[0]), ignored(disks[1:]...), attack.NextTenant,
	func(ctx context.Context, env *scenario.Environment) error {
		return env.Lab.AttachDisk(node, disks[0], diskSize)
	}, ignored(disks...), attack.NextTenant, podRuns, execute("head -c 600 /dev/raw-volume | grep -q LABELONE"))

// detach waits until the kubelet and the readers have closed the disks.
func detach(which ...string) func(context.Context, *scenario.Environment) error {
	return func(ctx context.Context, env *scenario.Environment) error {
		for _, disk := range which {
			if err := cluster.Eventually(ctx, func() error { return env.Lab.DetachDisk(node, disk) }); err != nil {
				return err
			}
		}
		return nil
	}
}

// uninstall leaves the cluster as it was: the folders of the other driver tell nodelvm that it is there.
func uninstall(ctx context.Context, env *scenario.Environment) error {
	for _, object := range []string{"namespace/disks", "clusterrolebinding/disks", "storageclass/disks", "volumesnapshotclass/disks", "csidriver/" + otherDriver} {
		if _, err := env.Kubectl(ctx, "", "delete", object, "--wait"); err != nil {
			return err
		}
	}
	_, err := env.RunOnNode(ctx, node, "rm", "-rf", "/var/lib/kubelet/plugins/"+otherDriver, "/var/lib/kubelet/plugins_registry/"+otherDriver+"-reg.sock", "/var/lib/"+otherDriver)
	return err
}
