package scenario

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/test/cluster"
)

// Demo returns the scenarios of `make demo` in order. The last one leaves the cluster without a node: see Repair.
func Demo() []Scenario {
	return []Scenario{topologyAndCapacity(), delayedBinding(), dataStays(), expansionAndSnapshot(), placement(), cleanUp(), mistake(), nodeDies()}
}

// Whole returns the scenarios of the demo, with those of details that it leaves out. It ends before the node dies: NodeLoss has these steps.
func Whole() []Scenario {
	return slices.Insert(Demo()[:len(Demo())-1], 3, power(), blockAndXFS())
}

// Repair returns the scenario that brings back the node that Demo has lost.
func Repair() []Scenario {
	return []Scenario{{Title: "The node returns with its data", Steps: []Step{
		{Says: lostNode + " is booted, and its driver is ready", Prove: nodeComesBack},
		{Says: "nodelvm adopt makes a claim of its old volume, and a pod reads the old data", Prove: adoptedWithData},
		{Says: "no volume is left", Prove: lostIsCleared},
	}}}
}

func expansionAndSnapshot() Scenario {
	return Scenario{Title: "A volume is expanded, and a snapshot restored", Steps: []Step{
		{Says: "the claim of pg-1 requests 2 GiB: its file system is expanded while the database uses it", Prove: expandDatabase},
		{Says: "a pod writes to a thin volume, and a snapshot of it is taken", Prove: snapshotNotes},
		{Says: "the pod overwrites its data; a claim restored from the snapshot has the old data", Prove: restoreNotes},
	}}
}

const expandedClaim = "data-" + databasePod

func expandDatabase(ctx context.Context, env *Environment) error {
	if err := env.grow(ctx, expandedClaim, databasePod, "2Gi"); err != nil {
		return err
	}
	size, err := env.ExecInPod(ctx, databasePod, "df", "-h", "--output=size", "/var/lib/postgresql/data")
	if err == nil && !strings.Contains(size, "2.0G") {
		err = fmt.Errorf("the file system has %q", size)
	}
	return err
}

func snapshotNotes(ctx context.Context, env *Environment) error {
	if err := apply("demo-notes.yaml")(ctx, env); err != nil {
		return err
	}
	if _, err := env.WaitPodReady(ctx, "notes"); err != nil {
		return err
	}
	if _, err := env.ExecInPod(ctx, "notes", "sh", "-c", "echo before > /data/note && sync"); err != nil {
		return err
	}
	if err := apply("demo-snapshot.yaml")(ctx, env); err != nil {
		return err
	}
	return env.snapshotReady(ctx, "notes")
}

func restoreNotes(ctx context.Context, env *Environment) error {
	if _, err := env.ExecInPod(ctx, "notes", "sh", "-c", "echo after > /data/note && sync"); err != nil {
		return err
	}
	if err := apply("demo-restored.yaml")(ctx, env); err != nil {
		return err
	}
	if _, err := env.WaitPodReady(ctx, "restored"); err != nil {
		return err
	}
	note, err := env.ExecInPod(ctx, "restored", "cat", "/data/note")
	if err != nil || note != "before" {
		return fmt.Errorf("the restored volume has %q: %w", note, err)
	}
	_, err = env.Kubectl(ctx, "", "delete", "volumesnapshot", "-n", cluster.Namespace, "notes", "--wait")
	return err
}

func mistake() Scenario {
	return Scenario{Title: "The doctor names a mistake", Steps: []Step{
		{Says: "a storage class names a tag that no volume group has: kubectl nodelvm doctor says so, and what to do", Prove: doctorNamesMistake},
		{Says: "without that class it finds nothing", Prove: doctorFindsNothing},
	}}
}

func doctorNamesMistake(ctx context.Context, env *Environment) error {
	if err := apply("demo-mistake.yaml")(ctx, env); err != nil {
		return err
	}
	said, err := env.shell(ctx, doctorCommand)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(said, `LVM tag "archive"`) {
		return fmt.Errorf("it says %q: %w", said, err)
	}
	for line := range strings.Lines(said) {
		env.Reporter.Note("%s", strings.TrimRight(line, "\n"))
	}
	return nil
}

func doctorFindsNothing(ctx context.Context, env *Environment) error {
	if _, err := env.Kubectl(ctx, "", "delete", "storageclass", "archive"); err != nil {
		return err
	}
	said, err := env.shell(ctx, doctorCommand)
	if err != nil {
		return fmt.Errorf("it says %q: %w", said, err)
	}
	return nil
}

func nodeDies() Scenario {
	return Scenario{Title: "A node dies, and its claim is released", Steps: []Step{
		{Says: "the janitor is installed as shipped, but for a grace period of 15 s, on node-1", Prove: installJanitor},
		{Says: "a StatefulSet of a class that says release writes to its volume on " + lostNode, Prove: memberWrites},
		{Says: "the power of " + lostNode + " is cut and its Node object deleted: events on the claim say so", Prove: loseNode},
		{Says: "the StatefulSet starts with a new volume on another node, and each step is an event", Prove: startsAfresh},
	}}
}
