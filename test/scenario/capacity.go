package scenario

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/test/cluster"
)

const (
	loadNode  = "node-1" // where the manifests hold the claims of these scenarios
	loadClass = "growing"

	freshOwn   = 3 * time.Second  // what the driver does itself
	freshAdmin = 20 * time.Second // what it has to notice
)

func freshCapacity() Scenario {
	f := &freshness{}
	return Scenario{Title: "The published capacity is up to date, and exact to the extent", Steps: []Step{
		{Says: "storage classes are created, and every node's capacity is published", Prove: f.begin},
		{Says: "it is right 3 s after a volume is created, expanded, deleted and wiped", Prove: f.thick},
		{Says: "it is right 3 s after a thin volume and its snapshot are created and deleted", Prove: f.thin},
		{Says: "it is right 20 s after an admin's lvcreate, lvremove, vgextend and vgreduce, and after a disk is lost and found", Prove: f.admins},
		{Says: "so it was", Prove: f.tell},
	}}
}

// freshness is how late the published figures were.
type freshness struct{ rows [][]string }

func (f *freshness) begin(ctx context.Context, env *Environment) error {
	for _, manifest := range []string{"load-classes.yaml", "life-classes.yaml"} {
		if err := apply(manifest)(ctx, env); err != nil {
			return err
		}
	}
	return cluster.Eventually(ctx, func() error {
		for _, node := range env.Lab.NodeNames() {
			now, err := env.standing(ctx, node)
			if err != nil {
				return err
			}
			if err := env.CheckPublishedCapacity(ctx, loadClass, node, now.room()); err != nil {
				return err
			}
		}
		_, err := env.PublishedCapacity(ctx, thinClass, loadNode)
		return err
	})
}

func (f *freshness) thick(ctx context.Context, env *Environment) error {
	bound := func() error { _, err := env.WaitClaimBound(ctx, "fresh"); return err }
	return f.follow(ctx, env, []change{
		{what: "CreateVolume, 64 MiB", limit: freshOwn, extents: -16, then: bound, by: func() error { return env.claimOf(ctx, "fresh", loadClass, "64Mi") }},
		{what: "expansion to 128 MiB", limit: freshOwn, extents: -16, by: func() error { return env.RequestSize(ctx, "fresh", "128Mi") }},
		{what: "DeleteVolume, wiped and removed", limit: freshOwn, extents: 32, then: env.Deletion(ctx, "pvc/fresh"), by: env.letGo(ctx, "pvc/fresh")},
	})
}

// thin begins with a pool: what that takes for itself is LVM's affair.
func (f *freshness) thin(ctx context.Context, env *Environment) error {
	if err := env.claimOf(ctx, "pooled", thinClass, "64Mi"); err != nil {
		return err
	}
	if _, err := env.WaitClaimBound(ctx, "pooled"); err != nil {
		return err
	}
	if _, err := env.publishedRoom(ctx, loadNode); err != nil { // the changes are counted from that figure
		return err
	}
	bound := func() error { _, err := env.WaitClaimBound(ctx, "fresh"); return err }
	err := f.follow(ctx, env, []change{
		{what: "CreateVolume, thin, 128 MiB", limit: freshOwn, volumes: 1, thin: -128 << 20, then: bound, by: func() error { return env.claimOf(ctx, "fresh", thinClass, "128Mi") }},
		{what: "CreateSnapshot", limit: freshOwn, volumes: 1, thin: -128 << 20, by: func() error { return env.snapshotOf(ctx, "fresh", "fresh") },
			then: func() error { return env.snapshotReady(ctx, "fresh") }},
		{what: "DeleteSnapshot", limit: freshOwn, volumes: -1, thin: 128 << 20, then: env.Deletion(ctx, "volumesnapshot/fresh"), by: env.letGo(ctx, "volumesnapshot/fresh")},
		{what: "DeleteVolume, thin", limit: freshOwn, volumes: -1, thin: 128 << 20, then: env.Deletion(ctx, "pvc/fresh"), by: env.letGo(ctx, "pvc/fresh")},
	})
	return errors.Join(err, env.Delete(ctx, "pvc/pooled"))
}

// letGo deletes an object and does not wait: the expected effect may come before kubectl checks again.
func (env *Environment) letGo(ctx context.Context, object string) func() error {
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

func (f *freshness) admins(ctx context.Context, env *Environment) (err error) {
	group := ""
	groups, err := env.VolumeGroups(ctx, loadNode)
	if err != nil {
		return err
	}
	for _, g := range groups {
		group = g.Name
	}
	words := strings.NewReplacer("GROUP", group, "FILE", loopFile, "DISK", loopDisk)
	admin := func(script string) func() error {
		return func() error {
			_, err := env.RunOnNode(ctx, loadNode, "sh", "-ec", words.Replace(script))
			return err
		}
	}
	defer func() { // also where a change was not followed
		ctx, cancel := cluster.CleanUpContext(ctx)
		defer cancel()
		_, back := env.RunOnNode(ctx, loadNode, "sh", "-ec", words.Replace(tidyUp))
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

func (f *freshness) tell(_ context.Context, env *Environment) error {
	env.Reporter.Table([]string{"CHANGE", "PUBLISHED AFTER", "LIMIT"}, f.rows)
	return nil
}

// standing is what LVM says of a node's groups.
type standing struct{ extents, size, volumes, lost int64 }

// room is what a linear volume can have: nothing, while a disk is lost.
func (n standing) room() int64 {
	if n.lost > 0 {
		return 0
	}
	return n.extents * n.size
}

func (env *Environment) standing(ctx context.Context, node string) (now standing, err error) {
	type row struct {
		Extents string `json:"vg_free_count"`
		Size    string `json:"vg_extent_size"`
		Volumes string `json:"lv_count"`
		Lost    string `json:"vg_missing_pv_count"`
	}
	rows, err := cluster.ReportLVM[row](ctx, env.Cluster, node, "vg", "vgs", "-o", "vg_free_count,vg_extent_size,lv_count,vg_missing_pv_count")
	if err != nil {
		return now, err
	}
	if len(rows) != 1 {
		return now, fmt.Errorf("%s has %d volume groups", node, len(rows))
	}
	for text, to := range map[string]*int64{rows[0].Extents: &now.extents, rows[0].Size: &now.size, rows[0].Volumes: &now.volumes, rows[0].Lost: &now.lost} {
		if *to, err = strconv.ParseInt(text, 10, 64); err != nil {
			return now, err
		}
	}
	return now, nil
}

// claimOf makes a claim that names its node itself.
func (env *Environment) claimOf(ctx context.Context, name, class, size string) error {
	return env.applyWith(ctx, "load-claim.yaml", "NAME", name, "CLASS", class, "SIZE", size, "NODE", loadNode)
}

// claimOn makes a claim of 64 MiB that names its node itself.
func (env *Environment) claimOn(ctx context.Context, node, name string) error {
	return env.applyWith(ctx, "load-claim.yaml", "NAME", name, "CLASS", loadClass, "SIZE", "64Mi", "NODE", node)
}

func (env *Environment) snapshotOf(ctx context.Context, name, claim string) error {
	return env.applyWith(ctx, "load-snapshot.yaml", "NAME", name, "CLAIM", claim)
}

// applyWith sends a manifest with words replaced.
func (env *Environment) applyWith(ctx context.Context, manifest string, replace ...string) error {
	text, err := manifests.ReadFile("manifests/" + manifest)
	if err != nil {
		return err
	}
	_, err = env.Kubectl(ctx, strings.NewReplacer(replace...).Replace(string(text)), "apply", "-f", "-")
	return err
}
