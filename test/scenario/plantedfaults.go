package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/test/cluster"
)

// plantedFault is a mistake of a user or an admin, or a failure, that a command of the plugin must explain.
type plantedFault struct {
	what    string
	plant   func(context.Context, *Environment) error
	repair  func(context.Context, *Environment) error
	command string   // what the user enters
	says    []string // cause and cure
}

// explainedWithin is how long a user waits for the explanation, from the fault on.
const explainedWithin = time.Minute

// faultNode is the node whose disks and volume group get faults.
const faultNode = "node-1"

// PlantedFaults plants one fault after the other, each in a cluster without others, and repairs it.
func PlantedFaults() []Scenario {
	sc := Scenario{Title: "A command names the cause of each fault, and what to do"}
	sc.Steps = append(sc.Steps, Step{Says: "storage classes are created", Prove: plantedClasses})
	for _, fault := range plantedFaults {
		sc.Steps = append(sc.Steps, Step{Says: fault.what + ": " + fault.command, Limit: 5 * time.Minute, Prove: fault.prove})
	}
	sc.Steps = append(sc.Steps, Step{Says: "kubectl nodelvm doctor finds nothing more", Prove: doctorIsContent}, Step{Says: "no volume is left", Prove: noVolumesRemain})
	return []Scenario{sc}
}

func plantedClasses(ctx context.Context, env *Environment) error {
	for _, file := range []string{"classes.yaml", "life-classes.yaml"} {
		if err := apply(file)(ctx, env); err != nil {
			return err
		}
	}
	_, err := env.Kubectl(ctx, "", "delete", "storageclass", "too-early", "--ignore-not-found")
	return err
}

func (f plantedFault) prove(ctx context.Context, env *Environment) (err error) {
	defer func() {
		ctx, cancel := cluster.CleanUpContext(ctx)
		defer cancel()
		err = errors.Join(err, f.repair(ctx, env))
	}()
	if err := f.plant(ctx, env); err != nil {
		return err
	}
	began := time.Now()
	said, err := env.explanation(ctx, f)
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
func (env *Environment) explanation(ctx context.Context, f plantedFault) (said string, err error) {
	limited, cancel := context.WithTimeout(ctx, explainedWithin)
	defer cancel()
	err = cluster.Eventually(limited, func() error {
		said, _ = env.shell(ctx, f.command) // doctor exits with 1 if it finds something
		for _, words := range f.says {
			if !strings.Contains(said, words) {
				return fmt.Errorf("it does not say %q but:\n%s", words, said)
			}
		}
		return nil
	})
	return said, err
}

// shell runs a command as a user does in the lab's shell, with lines of any width.
func (env *Environment) shell(ctx context.Context, command string) (string, error) {
	top, err := cluster.Checkout()
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = env.Lab.Shell(ctx, top, nil, &out, &out, "-c", command)
	return out.String(), err
}

func doctorIsContent(ctx context.Context, env *Environment) error {
	return cluster.Eventually(ctx, func() error {
		said, err := env.shell(ctx, doctorCommand)
		if err != nil {
			err = fmt.Errorf("%w: %s", err, said)
		}
		return err
	})
}

const doctorCommand = "kubectl nodelvm doctor"

var plantedFaults = []plantedFault{
	{"a misspelt parameter of a storage class", wrongClass("misspelt"), removePods, "kubectl nodelvm why misspelt -n demo",
		[]string{`unknown parameter "volumegroup" (did you mean volumeGroup?)`, "delete StorageClass misspelt and create it again"}},
	{"a storage class with a tag that no group has", wrongClass("missing"), removePods, "kubectl nodelvm why missing -n demo",
		[]string{`it has no volume group with the LVM tag "archive"`, `add disks or a volume group with the LVM tag "archive"`}},
	{"an admin removes the tag of all groups", retag("--deltag"), retag("--addtag"), doctorCommand,
		[]string{"StorageClasses fast, ", `has a volume group with the LVM tag "fast"`, "vgchange --addtag"}},
	{"a claim that is too large", podOf("large", "fast", "500Gi", ""), removePods, "kubectl nodelvm why large -n demo",
		[]string{"no node can have the volume", "of 500 GiB", "request at most"}},
	{"an admin fills a thin pool", fillPool, emptyPool, doctorCommand, []string{"ThinPool", "vgextend"}},
	{"a disk with a volume dies", loseVolume, findVolume, doctorCommand, []string{"physical volume", "Affected volumes: VolumeDataMissing: ", "demo/lost"}},
	{"a file system is full", fillFileSystem, removePods, doctorCommand, []string{"(claim demo/full)", "FileSystemFull: ", "kubectl patch pvc full -n demo"}},
	{"a declared disk is not blank", declareDisk, withdrawDisk, doctorCommand, []string{"vg-declared", faultDisk, "ext4"}},
	{"the kubelet has another root directory", moveKubelet, restoreDriver, doctorCommand, []string{"kubelet's root directory", "kubeletDir"}},
	{"the CSIDriver object is deleted", deleteDriverObject, restoreDriver, doctorCommand, []string{"no CSIDriver object", "helm upgrade"}},
	{"a raw block volume for a user other than root", apply("planted-block.yaml"), removePods, doctorCommand,
		[]string{"does not run as root: it cannot open the raw block volume of claim block", "device_ownership_from_security_context"}},
	{"a budget blocks each drain", blockDrain, unblockDrain, doctorCommand, []string{"PodDisruptionBudget demo/always", "so no pod can be evicted", "add a replica"}},
}
