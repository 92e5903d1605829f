package measure

import (
	"context"
	"errors"
	"slices"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// databasePaths are those of the data path on which a database is compared, too.
var databasePaths = []dataPath{
	{name: "PostgreSQL: linear, ext4", class: "fast", fs: "ext4", bare: bareLinear},
	{name: "PostgreSQL: thin, btrfs", class: "thin-btrfs", fs: "btrfs", bare: bareThin},
}

// The ports of the two servers in path-database.yaml.
const (
	portOnVolume = "5432"
	portOnBare   = "5433"
)

// proveDatabase compares pgbench on two PostgreSQL servers of one pod: one on a volume, one on a bare logical volume with the same file system.
func (p dataPath) proveDatabase(ctx context.Context, env *scenario.Environment) (err error) {
	defer func() {
		ctx, cancel := cluster.CleanUpContext(ctx)
		defer cancel()
		_, deleted := env.Kubectl(ctx, "", "delete", "pod", pathPod, "-n", cluster.Namespace, "--ignore-not-found", "--wait") // it holds the bare volume's mount
		err = errors.Join(err, deleted, removeBare(ctx, env), scenario.DeletePodsAndVolumes(ctx, env))
	}()
	if p.class == "thin-btrfs" { // bareThin needs the pool
		if err := env.ApplyWith(ctx, "path-filesystem.yaml", "NAME", "pool", "CLASS", p.class, "SIZE", pathSize); err != nil {
			return err
		}
		if _, err := env.WaitPodReady(ctx, "pool"); err != nil {
			return err
		}
	}
	if err := env.RunInGroup(ctx, pathNode, p.bare+"; mkfs."+p.fs+" -q /dev/GROUP/bare; mkdir -p /mnt/bare; mount /dev/GROUP/bare /mnt/bare; chown 999:999 /mnt/bare"); err != nil {
		return err
	}
	if err := env.ApplyWith(ctx, "path-database.yaml", "NAME", pathPod, "CLASS", p.class, "SIZE", pathSize); err != nil {
		return err
	}
	if _, err := env.WaitPodReady(ctx, pathPod); err != nil {
		return err
	}
	for _, port := range []string{portOnVolume, portOnBare} {
		if _, err := env.ExecInPod(ctx, pathPod, "pgbench", "-h", "127.0.0.1", "-p", port, "-i", "-q", "-s", "3", "postgres"); err != nil {
			return err
		}
	}
	ratios, err := alternate(portOnVolume, portOnBare, func(port string) (float64, error) {
		return env.TransactionsPerSecond(ctx, pathPod, "-h", "127.0.0.1", "-p", port)
	})
	if err != nil {
		return err
	}
	env.Reporter.Note("pgbench, transactions: %.2f (%.2f to %.2f)", ratios[pathRounds/2], ratios[0], ratios[pathRounds-1])
	return nil
}

// removeBare removes the bare logical volume, if it is there.
func removeBare(ctx context.Context, env *scenario.Environment) error {
	return env.RunInGroup(ctx, pathNode, "umount /mnt/bare 2>/dev/null || true; ! lvs GROUP/bare >/dev/null 2>&1 || lvremove -qq -y GROUP/bare")
}

// alternate measures two sides in turns, pathRounds times, and returns the first relative to the second; the lowest ratio is first.
func alternate(volume, bare string, measure func(side string) (float64, error)) ([]float64, error) {
	var ratios []float64
	for turn := range pathRounds {
		rates := map[string]float64{}
		for i := range 2 {
			side := []string{volume, bare}[(i+turn)%2]
			rate, err := measure(side)
			if err != nil {
				return nil, err
			}
			rates[side] = rate
		}
		ratios = append(ratios, rates[volume]/rates[bare])
	}
	slices.Sort(ratios)
	return ratios, nil
}
