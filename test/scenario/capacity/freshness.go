package capacity

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

const (
	freshOwn   = 3 * time.Second  // what the driver does itself
	freshAdmin = 20 * time.Second // what it has to notice
)

// Published returns the scenario of the published capacity: after each change it is right in time, and exact to the extent. It needs nothing of
// the others; the thin pools that it leaves on the nodes are meant to stay.
func Published() []scenario.Scenario {
	f := &freshness{}
	return []scenario.Scenario{{Title: "The published capacity is up to date, and exact to the extent", Steps: []scenario.Step{
		{Says: "storage classes are created, and every node's capacity is published", Prove: scenario.CapacityIsPublished},
		{Says: "it is right 3 s after a volume is created, expanded, deleted and wiped", Prove: f.thick},
		{Says: "it is right 3 s after a thin volume and its snapshot are created and deleted", Prove: f.thin},
		{Says: "it is right 20 s after an admin's lvcreate, lvremove, vgextend and vgreduce, and after a disk is lost and found", Prove: f.admins},
		{Says: "so it was", Prove: f.tell},
	}}}
}

// freshness is how late the published figures were.
type freshness struct{ rows [][]string }

func (f *freshness) thick(ctx context.Context, env *scenario.Environment) error {
	bound := func() error { _, err := env.WaitClaimBound(ctx, "fresh"); return err }
	return f.follow(ctx, env, []change{
		{what: "CreateVolume, 64 MiB", limit: freshOwn, extents: -16, then: bound, by: func() error { return createClaim(ctx, env, "fresh", scenario.GrowingClass, "64Mi") }},
		{what: "expansion to 128 MiB", limit: freshOwn, extents: -16, by: func() error { return env.RequestSize(ctx, "fresh", "128Mi") }},
		{what: "DeleteVolume, wiped and removed", limit: freshOwn, extents: 32, then: env.Deletion(ctx, "pvc/fresh"), by: letGo(ctx, env, "pvc/fresh")},
	})
}

// thin begins with a pool: what that takes for itself is LVM's affair.
func (f *freshness) thin(ctx context.Context, env *scenario.Environment) error {
	if err := createClaim(ctx, env, "pooled", scenario.ThinClass, "64Mi"); err != nil {
		return err
	}
	if _, err := env.WaitClaimBound(ctx, "pooled"); err != nil {
		return err
	}
	if _, err := env.StableThinCapacity(ctx, scenario.FirstNode); err != nil { // the changes are counted from that figure
		return err
	}
	bound := func() error { _, err := env.WaitClaimBound(ctx, "fresh"); return err }
	err := f.follow(ctx, env, []change{
		{what: "CreateVolume, thin, 128 MiB", limit: freshOwn, volumes: 1, thin: -128 << 20, then: bound, by: func() error { return createClaim(ctx, env, "fresh", scenario.ThinClass, "128Mi") }},
		{what: "CreateSnapshot", limit: freshOwn, volumes: 1, thin: -128 << 20, by: func() error { return env.CreateSnapshot(ctx, "fresh", "fresh") },
			then: func() error { return env.WaitSnapshotReady(ctx, "fresh") }},
		{what: "DeleteSnapshot", limit: freshOwn, volumes: -1, thin: 128 << 20, then: env.Deletion(ctx, "volumesnapshot/fresh"), by: letGo(ctx, env, "volumesnapshot/fresh")},
		{what: "DeleteVolume, thin", limit: freshOwn, volumes: -1, thin: 128 << 20, then: env.Deletion(ctx, "pvc/fresh"), by: letGo(ctx, env, "pvc/fresh")},
	})
	return errors.Join(err, env.Delete(ctx, "pvc/pooled"))
}

// createClaim creates a claim on the node whose capacity is compared.
func createClaim(ctx context.Context, env *scenario.Environment, name, class, size string) error {
	return env.CreateClaim(ctx, scenario.FirstNode, name, class, size)
}

// letGo deletes an object and does not wait: the expected effect may come before kubectl checks again.
func letGo(ctx context.Context, env *scenario.Environment, object string) func() error {
	return func() error { return env.Delete(ctx, object, "--wait=false") }
}

// A disk of the admin's own: a file behind a loop device, which can vanish from the node and come back. It is taken back at
// whatever change the scenario ended.
const (
	loopFile = "/var/tmp/fresh.img"
	loopDisk = "/dev/loop7"
	tidyUp   = `losetup DISK >/dev/null 2>&1 || losetup DISK FILE || true
lvremove -qq -y GROUP/admins 2>/dev/null || true
if vgs -o pv_name GROUP | grep -q DISK; then vgreduce -qq GROUP DISK; fi
losetup -d DISK 2>/dev/null || true
rm -f FILE`
)

func (f *freshness) admins(ctx context.Context, env *scenario.Environment) (err error) {
	group := ""
	groups, err := env.VolumeGroups(ctx, scenario.FirstNode)
	if err != nil {
		return err
	}
	for _, g := range groups {
		group = g.Name
	}
	words := strings.NewReplacer("GROUP", group, "FILE", loopFile, "DISK", loopDisk)
	admin := func(script string) func() error {
		return func() error {
			_, err := env.RunOnNode(ctx, scenario.FirstNode, "sh", "-ec", words.Replace(script))
			return err
		}
	}
	defer func() { // also where a change was not followed
		ctx, cancel := cluster.CleanUpContext(ctx)
		defer cancel()
		_, back := env.RunOnNode(ctx, scenario.FirstNode, "sh", "-ec", words.Replace(tidyUp))
		err = errors.Join(err, back)
	}()
	if err := admin(`truncate -s 132M FILE; mknod -m 660 DISK b 7 7 2>/dev/null || true; losetup DISK FILE; pvcreate -qq -y DISK`)(); err != nil {
		return err
	}
	return f.follow(ctx, env, []change{
		{what: "an admin's lvcreate", limit: freshAdmin, extents: -10, by: admin(`lvcreate -qq -y -Wn -Zn -l 10 -n admins GROUP`)},
		{what: "an admin's lvremove", limit: freshAdmin, extents: 10, by: admin(`lvremove -qq -y GROUP/admins`)},
		{what: "an admin's vgextend", limit: freshAdmin, extents: 32, by: admin(`vgextend -qq GROUP DISK`)},
		{what: "a disk is lost", limit: freshAdmin, lost: 1, by: admin(`losetup -d DISK`)},
		{what: "the disk is back", limit: freshAdmin, lost: -1, by: admin(`losetup DISK FILE`)},
		{what: "an admin's vgreduce", limit: freshAdmin, extents: -32, by: admin(`vgreduce -qq GROUP DISK`)},
	})
}

func (f *freshness) tell(_ context.Context, env *scenario.Environment) error {
	env.Reporter.Table([]string{"CHANGE", "PUBLISHED AFTER", "LIMIT"}, f.rows)
	return nil
}
