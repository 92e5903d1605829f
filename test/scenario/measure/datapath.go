package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// dataPath is one kind of volume, and the bare logical volume or disk that a pod's I/O on it is compared with.
type dataPath struct {
	name  string
	class string
	fs    string // "": a raw block volume
	bare  string // creates the logical volume GROUP/bare, in the shell; freeDisk: frees rawDisk
	tune  func(context.Context, *scenario.Environment) error
}

const (
	pathNode   = "node-1"
	pathPod    = "path"
	pathSize   = "400Mi"
	pathKey    = "0123456789abcdefGHIJKLMNOPqrstuv"
	pathRounds = 5 // measurements of each side, in alternating order

	bareLinear  = "lvcreate -qq -y -Wn -L 400m -n bare GROUP"
	bareThin    = "lvextend -qq -L 1200m GROUP/nodelvm-thin; lvcreate -qq -y -Wn -V 400m -T GROUP/nodelvm-thin -n bare"
	bareStriped = "lvcreate -qq -y -Wn -L 400m -i 2 -I 64k -n bare GROUP"
	bareRAID    = "lvcreate -qq -y -Wn -L 400m --type raid1 -m 1 -n bare GROUP"

	// The lab has no spare disk, so the group gives one up meanwhile; LVM refuses that for a disk with extents. fio writes to it only
	// after LVM has removed the physical volume.
	rawDisk    = "/dev/ubdc"
	freeDisk   = "vgreduce -qq GROUP " + rawDisk + "; pvremove -qq " + rawDisk
	returnDisk = "pvs --noheadings -o vg_name " + rawDisk + " 2>/dev/null | grep -qw GROUP || { wipefs -qa " + rawDisk + "; vgextend -qq -y GROUP " + rawDisk + "; }"
)

var dataPaths = []dataPath{
	{name: "linear, raw block, relative to a disk without LVM", class: "fast", bare: freeDisk},
	{name: "linear, raw block", class: "fast", bare: bareLinear},
	{name: "linear, ext4", class: "fast", fs: "ext4", bare: bareLinear},
	{name: "linear, xfs", class: "fast-xfs", fs: "xfs", bare: bareLinear},
	{name: "thin, raw block", class: "thin", bare: bareThin},
	{name: "thin, btrfs", class: "thin-btrfs", fs: "btrfs", bare: bareThin},
	{name: "striped, raw block", class: "path-striped", bare: bareStriped},
	{name: "RAID 1, raw block", class: "path-mirrored", bare: bareRAID},
	{name: "encrypted, raw block, relative to one that is not", class: "path-encrypted", bare: bareLinear},
	{name: "the same without work queues", class: "path-encrypted", bare: bareLinear, tune: withoutWorkQueues},
}

// fioJobs are the requests that fio makes, eight at a time.
var fioJobs = []struct{ name, rw, size string }{
	{"read, 4 KiB", "randread", "4k"}, {"write, 4 KiB", "randwrite", "4k"}, {"read, 1 MiB", "read", "1m"}, {"write, 1 MiB", "write", "1m"},
}

// DataPath compares fio and PostgreSQL in a pod with the same on a bare logical volume of the same layout and size, and fio with that on a
// disk.
func DataPath() []scenario.Scenario {
	sc := scenario.Scenario{Title: "I/O in a pod, relative to a bare logical volume of the same layout"}
	sc.Steps = append(sc.Steps, scenario.Step{Says: "the nodes have an image with fio, and the cluster has the classes", Prove: pathBegins})
	for _, p := range dataPaths {
		sc.Steps = append(sc.Steps, scenario.Step{Says: p.name, Prove: p.prove})
	}
	sc.Steps = append(sc.Steps, scenario.Step{Says: "linear, raw block, relative to limits in the pod's io.max", Prove: proveLimit})
	for _, p := range databasePaths {
		sc.Steps = append(sc.Steps, scenario.Step{Says: p.name, Prove: p.proveDatabase})
	}
	sc.Steps = append(sc.Steps, scenario.Step{Says: "no volume and no class is left", Prove: pathEnds})
	return []scenario.Scenario{sc}
}

func pathEnds(ctx context.Context, env *scenario.Environment) error {
	for _, args := range [][]string{{"storageclass", "path-striped", "path-mirrored", "path-encrypted"}, {"secret", "-n", cluster.Namespace, pathPod}} {
		if _, err := env.Kubectl(ctx, "", append([]string{"delete"}, args...)...); err != nil {
			return err
		}
	}
	return scenario.NoVolumesRemain(ctx, env)
}

func pathBegins(ctx context.Context, env *scenario.Environment) error {
	archive, err := env.Lab.FioArchive(ctx)
	if err != nil {
		return err
	}
	if err := env.Lab.ImportImage(ctx, archive); err != nil {
		return err
	}
	if err := scenario.Apply("classes.yaml", "life-classes.yaml", "path-classes.yaml")(ctx, env); err != nil {
		return err
	}
	if err := env.ReplaceKeySecret(ctx, pathPod, map[string]string{"key": pathKey}); err != nil {
		return err
	}
	return env.SetPolicyVariable(ctx, "encryptedClasses", "['path-encrypted']")
}

func (p dataPath) prove(ctx context.Context, env *scenario.Environment) (err error) {
	defer func() {
		ctx, cancel := cluster.CleanUpContext(ctx)
		defer cancel()
		err = errors.Join(err, removeBare(ctx, env), scenario.DeletePodsAndVolumes(ctx, env), env.RunInGroup(ctx, pathNode, returnDisk))
	}()
	volume, bare, err := p.prepare(ctx, env)
	if err != nil {
		return err
	}
	for _, target := range []string{volume, bare} { // allocates blocks and extents
		if _, err := fio(ctx, env, target, "write", "1m", 0); err != nil {
			return err
		}
	}
	for _, job := range fioJobs {
		ratios, err := alternate(volume, bare, func(target string) (float64, error) { return fio(ctx, env, target, job.rw, job.size, time.Second) })
		if err != nil {
			return err
		}
		env.Reporter.Note("%s: %.2f (%.2f to %.2f)", job.name, ratios[pathRounds/2], ratios[0], ratios[pathRounds-1])
	}
	return nil
}

// prepare creates the pod with the volume, and what it is compared with. It returns what fio uses of each, as paths in the pod.
func (p dataPath) prepare(ctx context.Context, env *scenario.Environment) (volume, bare string, err error) {
	if p.bare == freeDisk { // before the volume is created, so that it is on another disk
		if err := env.RunInGroup(ctx, pathNode, freeDisk); err != nil {
			return "", "", err
		}
	}
	manifest, volume := "path-block.yaml", "/dev/volume"
	if p.fs != "" {
		manifest, volume = "path-filesystem.yaml", "/data/file"
	}
	if err := env.ApplyWith(ctx, manifest, "NAME", pathPod, "CLASS", p.class, "SIZE", pathSize); err != nil {
		return "", "", err
	}
	if _, err := env.WaitPodReady(ctx, pathPod); err != nil {
		return "", "", err
	}
	if p.tune != nil {
		if err := p.tune(ctx, env); err != nil {
			return "", "", err
		}
	}
	bare, err = p.prepareBare(ctx, env)
	return volume, bare, err
}

// prepareBare creates the bare logical volume, with a file system if the pod's volume has one.
func (p dataPath) prepareBare(ctx context.Context, env *scenario.Environment) (string, error) {
	if p.bare == freeDisk {
		return inPod(rawDisk), nil
	}
	if err := env.RunInGroup(ctx, pathNode, p.bare); err != nil {
		return "", err
	}
	if p.fs != "" {
		return "/host-mnt/bare/file", env.RunInGroup(ctx, pathNode, "mkfs."+p.fs+" -q /dev/GROUP/bare; mkdir -p /mnt/bare; mount /dev/GROUP/bare /mnt/bare")
	}
	device, err := env.RunOnNode(ctx, pathNode, "sh", "-ec", "readlink -f $(lvs --noheadings -o lv_dm_path -S lv_name=bare)")
	return inPod(strings.TrimSpace(string(device))), err
}

// inPod is the path in the pod of a device of the node.
func inPod(device string) string { return "/host-dev/" + strings.TrimPrefix(device, "/dev/") }

// withoutWorkQueues changes the open mapping of the pod's volume.
func withoutWorkQueues(ctx context.Context, env *scenario.Environment) error {
	mapping, err := env.MappingOf(ctx, pathPod)
	if err != nil {
		return err
	}
	script := "printf %s " + pathKey + " | cryptsetup refresh --perf-no_read_workqueue --perf-no_write_workqueue --key-file=- " + mapping +
		"; dmsetup table " + mapping + " | grep -q no_read_workqueue"
	_, err = env.RunOnNode(ctx, pathNode, "sh", "-ec", script)
	return err
}

// fio returns the requests per second of direct I/O in the pod. Without a time it writes the whole span once.
func fio(ctx context.Context, env *scenario.Environment, target, rw, size string, last time.Duration) (float64, error) {
	argv := []string{"fio", "--output-format=json", "--name=io", "--filename=" + target, "--size=128m", "--direct=1", "--ioengine=libaio", "--iodepth=8",
		"--rw=" + rw, "--bs=" + size}
	if last > 0 {
		argv = append(argv, "--time_based", "--ramp_time=300ms", "--runtime="+last.String())
	}
	out, err := env.ExecInPod(ctx, pathPod, argv...)
	if err != nil {
		return 0, err
	}
	type side struct {
		IOPS float64 `json:"iops"`
	}
	var report struct {
		Jobs []struct{ Read, Write side } `json:"jobs"`
	}
	if err := json.Unmarshal([]byte(out[max(strings.Index(out, "{"), 0):]), &report); err != nil || len(report.Jobs) != 1 {
		return 0, fmt.Errorf("fio reports %q: %w", out, err)
	}
	rate := report.Jobs[0].Read.IOPS + report.Jobs[0].Write.IOPS
	if rate <= 0 {
		return 0, fmt.Errorf("fio made no request on %s: %s", target, out)
	}
	return rate, nil
}
