package iolimits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// neighbours are two pods with PostgreSQL whose volumes are on one disk. One of them has fio, which floods the disk.
type neighbours struct {
	flooded string // the number of the device of the pod with fio
}

const (
	neighbour = "neighbour"
	flooder   = "flooder"

	// What the disk writes for all pods together, in bytes per second. The lab's disk is a file that the machine caches, which one
	// pod cannot keep busy: the node's processor is busy first.
	diskRate = 32 << 20

	// Pairs of measurements. The number is fixed, and the median decides: more pairs until it passes would always pass.
	limitedPairs   = 9
	unlimitedPairs = 3 // without limits the other database stands still

	kept = 0.9 // of its transactions
)

// Where fio writes during one of the two measurements of a pair. The node has one processor, which fio, the meter and the commands that start
// them use too. So while the database is alone on the disk they run as well, and write as much to a tmpfs: the two differ by the disk alone.
const (
	toDisk   = "/data/flood"
	toMemory = "/dev/shm/flood"
)

// limitDisk gives the disk of the logical volumes $1 and $2 a limit of $3 bytes per second for all pods. It fails if they are on several.
const limitDisk = `disk=$(lvs --noheadings -o devices -S "lv_name=$1 || lv_name=$2" | tr -d ' ' | sed 's/([0-9]*)$//' | sort -u)
[ "$(echo "$disk" | wc -w)" = 1 ] || { echo "the volumes are on $disk" >&2; exit 1; }
number=$(cat "/sys/class/block/${disk#/dev/}/dev")
echo "$number rbps=$3 wbps=$3" >/sys/fs/cgroup/kubepods/io.max
grep "^$number " /sys/fs/cgroup/kubepods/io.max`

// freeDisks removes the limits of limitDisk.
const freeDisks = `cd /sys/fs/cgroup/kubepods; for number in $(cut -d' ' -f1 io.max); do echo "$number rbps=max wbps=max" >io.max; done`

func (n *neighbours) begin(ctx context.Context, env *scenario.Environment) error {
	if err := enable(ctx, env); err != nil {
		return err
	}
	archive, err := env.Lab.FioArchive(ctx)
	if err != nil {
		return err
	}
	if err := env.Lab.ImportImage(ctx, archive); err != nil {
		return err
	}
	var volumes []string
	for _, name := range []string{neighbour, flooder} {
		if err := env.ApplyWith(ctx, "limited-database.yaml", "NAME", name); err != nil {
			return err
		}
		if err := env.PrepareDatabase(ctx, name); err != nil {
			return err
		}
		volume, err := env.VolumeOf(ctx, name)
		if err != nil {
			return err
		}
		volumes = append(volumes, volume.Lv)
	}
	if n.flooded, err = deviceOf(ctx, env, flooder); err != nil {
		return err
	}
	if err := write(ctx, env, toDisk); err != nil { // allocates the file
		return err
	}
	_, err = env.RunOnNode(ctx, scenario.FirstNode, "sh", "-ec", limitDisk, "sh", volumes[0], volumes[1], fmt.Sprint(diskRate))
	return err
}

// write lets fio write to a file in its pod, 16 requests at a time.
func write(ctx context.Context, env *scenario.Environment, file string, args ...string) error {
	_, err := env.Kubectl(ctx, "", append([]string{"exec", "-n", cluster.Namespace, flooder, "-c", "fio", "--", "fio", "--name=flood", "--filename=" + file,
		"--size=32m", "--rw=write", "--bs=256k", "--direct=1", "--ioengine=libaio", "--iodepth=16"}, args...)...)
	return err
}

func (n *neighbours) unlimited(ctx context.Context, env *scenario.Environment) error {
	share, rate, err := n.underFlood(ctx, env, unlimitedPairs, diskRate)
	if err != nil {
		return err
	}
	if rate > 1.1*diskRate {
		return fmt.Errorf("the flood writes %.0f bytes per second, and the limit of the disk is %d", rate, diskRate)
	}
	if share > 0.7 {
		return fmt.Errorf("the database keeps %.2f of its transactions: this flood needs no limit", share)
	}
	return nil
}

func (n *neighbours) limited(ctx context.Context, env *scenario.Environment) error {
	if err := requestClass(ctx, env, flooder, "confined", confined); err != nil {
		return err
	}
	share, rate, err := n.underFlood(ctx, env, limitedPairs, confined)
	if err != nil {
		return err
	}
	if rate < 0.7*confined || rate > 1.1*confined { // less: the flood has ended before what it is measured with
		return fmt.Errorf("the flood writes %.0f bytes per second, and its limit is %d", rate, confined)
	}
	if share < kept {
		return fmt.Errorf("the database keeps %.2f of its transactions", share)
	}
	return nil
}

// underFlood returns how much of its transactions a database keeps while the other pod floods the disk, and the bytes of the flood per second:
// medians of pairs of measurements. limit is what the flood can write per second.
func (n *neighbours) underFlood(ctx context.Context, env *scenario.Environment, pairs, limit int) (share, rate float64, err error) {
	if _, err := transactions(ctx, env); err != nil { // until the disk has what is left of earlier writes
		return 0, 0, err
	}
	var shares, rates []float64
	for i := range pairs {
		order := []string{toMemory, toDisk}
		if i%2 == 1 { // the database becomes slower while it grows
			slices.Reverse(order)
		}
		perSecond, written := map[string]float64{}, map[string]float64{}
		for _, file := range order {
			if perSecond[file], written[file], err = n.duringWrites(ctx, env, file, limit); err != nil {
				return 0, 0, err
			}
		}
		shares, rates = append(shares, perSecond[toDisk]/perSecond[toMemory]), append(rates, written[toDisk])
	}
	share, rate = median(shares), median(rates)
	env.Reporter.Note("the database keeps %.2f of its transactions (%.2f to %.2f, %d times); the flood writes %.1f MiB per second",
		share, slices.Min(shares), slices.Max(shares), len(shares), rate/(1<<20))
	return share, rate, nil
}

func median(figures []float64) float64 {
	sorted := slices.Sorted(slices.Values(figures))
	return sorted[len(sorted)/2]
}

// duringWrites returns the transactions, and the bytes that the disk gets from the pod with fio, per second, in the middle of fio's writes to a file.
func (n *neighbours) duringWrites(ctx context.Context, env *scenario.Environment, file string, limit int) (perSecond, rate float64, err error) {
	args := []string{"--time_based", "--runtime=20"}
	if file == toMemory {
		args = append(args, fmt.Sprintf("--rate=%d", limit))
	}
	written, measured := make(chan error, 1), make(chan error, 1)
	go func() { written <- write(ctx, env, file, args...) }()
	defer func() { err = errors.Join(err, <-written) }()
	if err := cluster.UnlessEnded(ctx, written, "fio", func() error { return fioRuns(ctx, env) }); err != nil {
		return 0, 0, err
	}
	go func() {
		var err error
		rate, err = writeRate(ctx, env, n.flooded)
		measured <- err
	}()
	perSecond, err = transactions(ctx, env)
	return perSecond, rate, errors.Join(err, <-measured)
}

// fioRuns fails unless fio runs in its pod.
func fioRuns(ctx context.Context, env *scenario.Environment) error {
	text, err := onCgroup(ctx, env, flooder, "cat $(sed 's,.*,/proc/&/comm,' */cgroup.procs)")
	if err == nil && !strings.Contains(text, "fio") {
		err = errors.New("fio does not run")
	}
	return err
}

// transactions returns those of the database beside the flood, per second.
func transactions(ctx context.Context, env *scenario.Environment) (float64, error) {
	return env.TransactionsPerSecond(ctx, neighbour)
}

func (n *neighbours) end(ctx context.Context, env *scenario.Environment) error {
	if _, err := env.RunOnNode(ctx, scenario.FirstNode, "sh", "-ec", freeDisks); err != nil {
		return err
	}
	if err := scenario.DeletePodsAndVolumes(ctx, env); err != nil {
		return err
	}
	if _, err := env.Kubectl(ctx, "", "delete", "volumeattributesclass", "slow", "confined", "free"); err != nil {
		return err
	}
	return scenario.RestoreDriver(ctx, env)
}
