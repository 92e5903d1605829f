package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// fault is a mistake of a user or an admin, or a failure, that a command of the plugin must explain.
type fault struct {
	what    string
	plant   func(context.Context, *scenario.Environment) error
	repair  func(context.Context, *scenario.Environment) error
	command string   // what the user enters
	says    []string // cause and cure
}

// doctor is the command that finds most faults.
const doctor = scenario.DoctorCommand

// listEvents prints each event with its object.
const listEvents = `kubectl get events -A -o jsonpath='{range .items[*]}{.reason} on {.involvedObject.name}: {.message}{"\n"}{end}'`

// explainedWithin is how long a user waits for the explanation, from the fault on.
const explainedWithin = time.Minute

// faultNode is the node whose disks and volume group get faults.
const faultNode = "node-1"

// Scenarios plants one fault after the other, each in a cluster without others, and repairs it.
func Scenarios() []scenario.Scenario {
	sc := scenario.Scenario{Title: "A command names the cause of each fault, and what to do"}
	sc.Steps = append(sc.Steps, scenario.Step{Says: "storage classes are created", Prove: scenario.CreateClasses})
	for _, f := range planted {
		sc.Steps = append(sc.Steps, scenario.Step{Says: f.what + ": " + f.command, Limit: 5 * time.Minute, Prove: f.prove})
	}
	sc.Steps = append(sc.Steps,
		scenario.Step{Says: "kubectl nodelvm doctor finds nothing more", Prove: scenario.DoctorFindsNothing},
		scenario.Step{Says: "no volume is left", Prove: scenario.NoVolumesRemain})
	return []scenario.Scenario{sc}
}

func (f fault) prove(ctx context.Context, env *scenario.Environment) (err error) {
	defer func() {
		ctx, cancel := cluster.CleanUpContext(ctx)
		defer cancel()
		err = errors.Join(err, f.repair(ctx, env))
	}()
	if err := f.plant(ctx, env); err != nil {
		return err
	}
	began := time.Now()
	said, err := explanation(ctx, env, f)
	if err != nil {
		return err
	}
	env.Reporter.Note("after %.0f s it says:", time.Since(began).Seconds())
	for line := range strings.Lines(said) {
		env.Reporter.Note("%s", strings.TrimRight(line, "\n"))
	}
	return nil
}

// explanation runs the command until it explains the fault, or the time is over.
func explanation(ctx context.Context, env *scenario.Environment, f fault) (said string, err error) {
	limited, cancel := context.WithTimeout(ctx, explainedWithin)
	defer cancel()
	err = cluster.Eventually(limited, func() error {
		said, _ = env.Shell(ctx, f.command) // doctor exits with 1 if it finds something
		for _, words := range f.says {
			if !strings.Contains(said, words) {
				return fmt.Errorf("it does not say %q but:\n%s", words, said)
			}
		}
		return nil
	})
	return said, err
}

var planted = []fault{
	{"an admin removes the tag of all groups", retag("--deltag"), retag("--addtag"), doctor,
		[]string{"StorageClasses fast, ", `has a volume group with the LVM tag "fast"`, "vgchange --addtag"}},
	{"a claim that is too large", scenario.PodWithClaim("large", "fast", "500Gi", ""), removePods, "kubectl nodelvm why large -n demo",
		[]string{"no node can have the volume", "the claim requests 500 GiB", "request at most"}},
	{"an admin fills a thin pool", fillPool, emptyPool, doctor, []string{"ThinPool", "vgextend"}},
	{"a disk with a volume dies", loseVolume, findVolume, doctor, []string{"physical volume", "Affected volumes: VolumeDataMissing: ", "demo/lost"}},
	{"a disk that is a whole volume group dies", loseGroup, findGroup, doctor + "; kubectl nodelvm nodes; " + listEvents,
		[]string{"Affected volumes: VolumeDataMissing: claim demo/lone", "PhysicalVolumeMissing,VolumeDataMissing,lost",
			"PhysicalVolumeMissing on " + faultNode + ": volume group vg-lone is not on this node", "VolumeDataMissing on lone: its volume group vg-lone is not on its node"}},
	{"a file system is full", fillFileSystem, removePods, doctor, []string{"(claim demo/full)", "FileSystemFull: ", "kubectl patch pvc full -n demo"}},
	{"a declared disk is not blank", declareDisk, withdrawDisk, doctor, []string{"vg-declared", faultDisk, "ext4"}},
	{"the kubelet has another root directory", moveKubelet, scenario.RestoreDriver, doctor, []string{"kubelet's root directory", "kubeletDir"}},
}
