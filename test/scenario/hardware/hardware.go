package hardware

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// mirror is a database whose volume has two legs, each on an NVMe disk.
type mirror struct {
	acked int64             // acknowledged rows
	names map[string]string // of the devices after the first boot, by serial number
}

// Scenarios returns the scenarios on emulated hardware.
func Scenarios() []scenario.Scenario {
	m := &mirror{}
	return []scenario.Scenario{{Title: "PostgreSQL on mirrored NVMe disks", Steps: []scenario.Step{
		{Says: "a PostgreSQL server runs on a RAID 1 volume of two NVMe disks", Limit: 20 * time.Minute, Prove: m.start},
		{Says: "the volume is expanded while rows are inserted", Prove: m.expand},
		{Says: "each disk in turn is pulled and returns: no transaction fails, events name the disk, and the volume has both legs again",
			Limit: 30 * time.Minute, Prove: m.pullEach},
		{Says: "the power is cut, and the node boots with its disks in another order: every acknowledged row is there", Limit: 20 * time.Minute, Prove: m.reboot},
		{Says: "the database is consistent", Prove: func(ctx context.Context, env *scenario.Environment) error {
			return env.CheckConsistent(ctx, scenario.DatabasePod)
		}},
		{Says: "everything is deleted, and every extent is free", Prove: func(ctx context.Context, env *scenario.Environment) error {
			if err := scenario.DeleteEverything(ctx, env); err != nil {
				return err
			}
			return cluster.Eventually(ctx, func() error { return env.CheckNoVolumes(ctx) })
		}},
	}}, failedPool()}
}

func (m *mirror) start(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.InOrder(scenario.Apply("hardware-class.yaml"), scenario.CapacityIsPublished)(ctx, env); err != nil {
		return err
	}
	if err := env.ApplyWith(ctx, "life-database.yaml", "storageClassName: thin", "storageClassName: mirrored"); err != nil {
		return err
	}
	if err := env.PrepareDatabase(ctx, scenario.DatabasePod); err != nil {
		return err
	}
	var err error
	if m.names, err = legs(ctx, env); err == nil && len(m.names) != 2 {
		err = fmt.Errorf("the volume is on %v: want two disks", m.names)
	}
	return err
}

func (m *mirror) expand(ctx context.Context, env *scenario.Environment) error {
	return m.whileWriting(ctx, env, func() error {
		return env.Expand(ctx, scenario.DatabaseClaim, scenario.DatabasePod, "640Mi")
	})
}

// whileWriting inserts rows until do has returned, and then some more. It fails if a row is not acknowledged.
func (m *mirror) whileWriting(ctx context.Context, env *scenario.Environment, do func() error) error {
	writer, err := env.StartWriter(ctx, scenario.DatabasePod, m.acked)
	if err != nil {
		return err
	}
	more := func() error { return writer.Reaches(ctx, writer.Acked.Load()+5) }
	err = more()
	if err == nil {
		err = do()
	}
	if err == nil {
		err = more()
	}
	err = errors.Join(err, writer.Stop())
	m.acked = writer.Acked.Load()
	if err != nil {
		return err
	}
	_, err = env.CheckRows(ctx, scenario.DatabasePod, m.acked, m.acked)
	return err
}

func (m *mirror) pullEach(ctx context.Context, env *scenario.Environment) error {
	below, err := legs(ctx, env)
	if err != nil {
		return err
	}
	load, err := env.StartPgbench(ctx, scenario.DatabasePod)
	if err != nil {
		return err
	}
	for _, disk := range slices.Sorted(maps.Keys(below)) {
		if err := m.whileWriting(ctx, env, func() error { return pull(ctx, env, disk, below[disk]) }); err != nil {
			return fmt.Errorf("disk %s: %w", disk, err)
		}
	}
	_, err = load.Stop(ctx)
	return err
}

// pull pulls a disk until the claim has an event about it, puts it back, and waits until the volume uses it again, under another name.
func pull(ctx context.Context, env *scenario.Environment, disk, device string) error {
	if err := env.Lab.ActOnDisk(ctx, "pull", scenario.FirstNode, disk); err != nil {
		return err
	}
	began := time.Now()
	told := env.WaitClaimEvent(ctx, scenario.DatabaseClaim, "VolumeDegraded", disk)
	env.Reporter.Note("%s, %s, was pulled; the claim had an event that names it %.0f s later", disk, device, time.Since(began).Seconds())
	if err := errors.Join(told, env.Lab.ActOnDisk(ctx, "return", scenario.FirstNode, disk)); err != nil {
		return err
	}
	began = time.Now()
	err := cluster.Eventually(ctx, func() error {
		now, err := legs(ctx, env)
		if err != nil {
			return err
		}
		if now[disk] == "" || now[disk] == device {
			return fmt.Errorf("the volume is on %v, and %s was %s", now, disk, device)
		}
		return synchronized(ctx, env)
	})
	if err != nil {
		return err
	}
	env.Reporter.Note("both legs were in use again %.0f s after it returned", time.Since(began).Seconds())
	return cluster.Eventually(ctx, func() error { return scenario.DoctorFindsNothing(ctx, env) })
}

func (m *mirror) reboot(ctx context.Context, env *scenario.Environment) error {
	if err := errors.Join(env.Lab.PowerCut(scenario.FirstNode), env.Lab.Boot(ctx, scenario.FirstNode)); err != nil {
		return err
	}
	if _, err := env.ExecInPodAgain(ctx, scenario.DatabasePod, "psql", "-qtA", "-c", "select", "postgres"); err != nil {
		return err
	}
	after, err := legs(ctx, env)
	if err != nil {
		return err
	}
	env.Reporter.Note("after the first boot the legs were on %v, and after the second one on %v", m.names, after)
	if maps.Equal(m.names, after) {
		return errors.New("the disks have the names of the first boot, so the second one shows nothing")
	}
	if _, err := env.CheckRows(ctx, scenario.DatabasePod, m.acked, m.acked); err != nil {
		return err
	}
	return m.whileWriting(ctx, env, func() error { return nil })
}

// legs returns the devices of the disks that the database's volume is on, by the serial numbers of the disks.
func legs(ctx context.Context, env *scenario.Environment) (map[string]string, error) {
	type row struct {
		Devices string `json:"devices"`
	}
	rows, err := cluster.ReportLVM[row](ctx, env.Cluster, scenario.FirstNode, "lv", "lvs", "-a", "-o", "devices", "-S", "lv_name=~_rimage_")
	if err != nil {
		return nil, err
	}
	disks, err := env.RunOnNode(ctx, scenario.FirstNode, "lsblk", "--nodeps", "--noheadings", "--paths", "--raw", "--output", "NAME,SERIAL")
	if err != nil {
		return nil, err
	}
	below := map[string]string{}
	for line := range strings.Lines(string(disks)) {
		device, serial, _ := strings.Cut(strings.TrimSpace(line), " ")
		if slices.ContainsFunc(rows, func(r row) bool { return strings.Contains(r.Devices, device+"(") }) {
			below[serial] = device
		}
	}
	return below, nil
}

// synchronized fails unless both legs of the volume have its data.
func synchronized(ctx context.Context, env *scenario.Environment) error {
	type row struct {
		Percent string `json:"sync_percent"`
		Health  string `json:"lv_health_status"`
	}
	rows, err := cluster.ReportLVM[row](ctx, env.Cluster, scenario.FirstNode, "lv", "lvs", "-o", "sync_percent,lv_health_status", "-S", "segtype=raid1")
	if err != nil {
		return err
	}
	if len(rows) != 1 || rows[0] != (row{"100.00", ""}) {
		return fmt.Errorf("the RAID 1 volumes are %+v", rows)
	}
	return nil
}
