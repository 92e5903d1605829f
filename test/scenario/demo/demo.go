package demo

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
	"github.com/nodelvm/nodelvm/test/scenario/nodeloss"
)

// Scenarios returns the scenarios of `make demo` in order. The last one leaves the cluster without a node, unless it is to be repaired: then
// two more bring the node back and delete what the demo has created.
func Scenarios(repaired bool) []scenario.Scenario {
	dies, returns := nodeloss.ForDemo()
	all := append(withoutLoss(), dies)
	if repaired {
		all = append(all, returns, removal())
	}
	return all
}

// Whole returns the scenarios of the demo, with those of details that it leaves out. It ends before the node dies: package nodeloss has these
// steps.
func Whole() []scenario.Scenario {
	return slices.Insert(withoutLoss(), 3, memory(), blockAndXFS())
}

func withoutLoss() []scenario.Scenario {
	s := &state{freeAtFirst: map[string]int64{}}
	return []scenario.Scenario{s.topologyAndCapacity(), delayedBinding(), s.dataStays(), expansionAndSnapshot(), placement(), s.cleanUp(), mistake()}
}

// state is what one step leaves for a later one to know.
type state struct {
	freeAtFirst map[string]int64 // node -> free extents before the first volume
	rows        string           // the fingerprint of the database
}

func expansionAndSnapshot() scenario.Scenario {
	return scenario.Scenario{Title: "A volume is expanded, and a snapshot restored", Steps: []scenario.Step{
		{Says: "the claim of pg-1 requests 2 GiB: its file system is expanded while the database uses it", Prove: expandDatabase},
		{Says: "a pod writes to a thin volume, and a snapshot of it is taken", Prove: snapshotNotes},
		{Says: "the pod overwrites its data; a claim restored from the snapshot has the old data", Prove: restoreNotes},
	}}
}

const expandedClaim = "data-" + databasePod

func expandDatabase(ctx context.Context, env *scenario.Environment) error {
	if err := env.Expand(ctx, expandedClaim, databasePod, "2Gi"); err != nil {
		return err
	}
	size, err := env.ExecInPod(ctx, databasePod, "df", "-h", "--output=size", "/var/lib/postgresql/data")
	if err == nil && !strings.Contains(size, "2.0G") {
		err = fmt.Errorf("the file system has %q", size)
	}
	return err
}

func snapshotNotes(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.InOrder(scenario.Apply("demo-notes.yaml"), scenario.PodReady("notes"))(ctx, env); err != nil {
		return err
	}
	if _, err := env.ExecInPod(ctx, "notes", "sh", "-c", "echo before > /data/note && sync"); err != nil {
		return err
	}
	if err := scenario.Apply("demo-snapshot.yaml")(ctx, env); err != nil {
		return err
	}
	return env.WaitSnapshotReady(ctx, "notes")
}

func restoreNotes(ctx context.Context, env *scenario.Environment) error {
	if _, err := env.ExecInPod(ctx, "notes", "sh", "-c", "echo after > /data/note && sync"); err != nil {
		return err
	}
	if err := scenario.InOrder(scenario.Apply("demo-restored.yaml"), scenario.PodReady("restored"))(ctx, env); err != nil {
		return err
	}
	note, err := env.ExecInPod(ctx, "restored", "cat", "/data/note")
	if err != nil || note != "before" {
		return fmt.Errorf("the restored volume has %q: %w", note, err)
	}
	_, err = env.Kubectl(ctx, "", "delete", "volumesnapshot", "-n", cluster.Namespace, "notes", "--wait")
	return err
}

func removal() scenario.Scenario {
	return scenario.Scenario{Title: "The demo removes what it created", Steps: []scenario.Step{
		{Says: "the demo's storage classes, snapshot class and namespace are deleted", Prove: removeObjects},
	}}
}

func removeObjects(ctx context.Context, env *scenario.Environment) error {
	if _, err := env.Kubectl(ctx, "", "delete", "--wait", "namespace", cluster.Namespace); err != nil {
		return err
	}
	classes, err := env.Kubectl(ctx, "", "get", "storageclass,volumesnapshotclass", "-o", "name")
	if err != nil || classes == "" {
		return err
	}
	_, err = env.Kubectl(ctx, "", append([]string{"delete"}, strings.Fields(classes)...)...)
	return err
}

func mistake() scenario.Scenario {
	return scenario.Scenario{Title: "The doctor names a mistake", Steps: []scenario.Step{
		{Says: "a storage class names a tag that no volume group has: kubectl nodelvm doctor says so, and what to do", Prove: doctorNamesMistake},
		{Says: "without that class it finds nothing", Prove: doctorFindsNothing},
	}}
}

func doctorNamesMistake(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.Apply("demo-mistake.yaml")(ctx, env); err != nil {
		return err
	}
	said, err := env.Shell(ctx, scenario.DoctorCommand)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(said, `LVM tag "archive"`) {
		return fmt.Errorf("it says %q: %w", said, err)
	}
	for line := range strings.Lines(said) {
		env.Reporter.Note("%s", strings.TrimRight(line, "\n"))
	}
	return nil
}

func doctorFindsNothing(ctx context.Context, env *scenario.Environment) error {
	if _, err := env.Kubectl(ctx, "", "delete", "storageclass", "archive"); err != nil {
		return err
	}
	said, err := env.Shell(ctx, scenario.DoctorCommand)
	if err != nil {
		return fmt.Errorf("it says %q: %w", said, err)
	}
	return nil
}
