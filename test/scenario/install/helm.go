package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// Helm returns the scenario of an installation: by Helm's own command with one file of values, to a database that works
// on through an update, and is there again when the driver was away. It ends with the driver as the manifest has it.
func Helm() []scenario.Scenario {
	h := &helmStory{}
	return []scenario.Scenario{
		{Title: "From helm install to a running PostgreSQL", Steps: []scenario.Step{
			{Says: "what the manifest had installed is deleted, and every data disk is made blank", Prove: h.blank},
			{Says: "helm installs the chart with one file of values, which creates the volume groups", Prove: h.install},
			{Says: "each node has its group, with the tag, of its own disks", Prove: h.grouped},
			{Says: "the PostgreSQL of deploy/examples is ready, with its volume", Prove: h.database},
		}},
		{Title: "An upgrade does not disturb a database", Steps: []scenario.Step{
			{Says: "helm upgrade replaces every driver under pgbench's load, and helm rollback every new one: no failed transaction, no remount, no restart", Prove: h.upgrade},
		}},
		{Title: "The driver is uninstalled and installed again, and the data stays", Steps: []scenario.Step{
			{Says: "helm uninstall removes the driver and keeps the CSIDriver object; the database answers as before", Prove: h.uninstall},
			{Says: "the driver is installed again and finds the volume: a new pod has every row", Prove: h.again},
			{Says: "the database and its volume are deleted", Prove: h.clear},
			{Says: "the nodes' own groups and deploy/nodelvm.yaml are restored", Prove: h.restore},
		}},
	}
}

const (
	examplePod   = "postgres-0"
	exampleClaim = "data-postgres-0"
	examplePath  = "/var/lib/postgresql/data"
)

// values is the one file that a user writes; the image's name is the chart's own, under which the lab has it. The disks
// are those of docs/development/lab.md.
const values = `
volumeGroups:
  - name: vg-data
    tags: [fast]
    devices:
      - paths: ["/dev/ubd[b-z]"]
        maxSize: 7Gi
  - name: vg-big
    tags: [fast]
    devices:
      - paths: ["/dev/ubd[b-z]"]
        minSize: 7Gi
storageClasses:
  - name: local
    parameters:
      volumeGroup: "@fast"
`

// helmStory is what one step leaves for the next to know.
type helmStory struct {
	groups map[string]string // node -> the group that its admin had made
	rows   string
}

// blank leaves the nodes as they come: with unused disks. Only empty groups are removed.
func (h *helmStory) blank(ctx context.Context, env *scenario.Environment) error {
	top, err := cluster.Checkout()
	if err != nil {
		return err
	}
	// The pods first: of a namespace that still holds some, Kubernetes looks again after half of their grace period.
	for _, what := range [][]string{{"-n", cluster.DriverNamespace, cluster.DaemonSet, "--cascade=foreground"}, {"-f", filepath.Join(top, "deploy", "nodelvm.yaml")}} {
		if _, err := env.Kubectl(ctx, "", append([]string{"delete", "--ignore-not-found", "--wait"}, what...)...); err != nil {
			return err
		}
	}
	h.groups = map[string]string{}
	for _, node := range env.Lab.NodeNames() {
		groups, err := env.VolumeGroups(ctx, node)
		if err != nil {
			return err
		}
		if len(groups) != 1 {
			return fmt.Errorf("%s has the groups %v, and one was expected", node, groups)
		}
		h.groups[node] = groups[0].Name
		if _, err := env.RunOnNode(ctx, node, "sh", "-c", makeBlank, "sh", groups[0].Name); err != nil {
			return err
		}
	}
	return nil
}

// What a node's admin does before and after the scenario, so that every other scenario finds the groups that it knows. The backup
// is the driver's memory of a group: without it, one that is not there is made again.
const (
	makeBlank = `vgremove "$1" && pvremove /dev/ubd[b-z] && rm -rf "/var/lib/nodelvm/backup/$1" || exit 1
for disk in /dev/ubd[b-z]; do
	size=$(blockdev --getsize64 $disk)
	blkdiscard -z -o 0 -l 2097152 $disk && blkdiscard -z -o $((size - 1048576)) -l 1048576 $disk || exit 1
done`
	makeGroup = `vgcreate --physicalextentsize 4m --setautoactivation n --addtag fast "$1" /dev/ubd[b-z]`
)

// chart runs helm install or helm upgrade as the README says, and waits until all pods are ready.
func chart(ctx context.Context, env *scenario.Environment, verb string, args ...string) error {
	return chartWith(ctx, env, verb, values, args...)
}

// chartWith is chart with other values.
func chartWith(ctx context.Context, env *scenario.Environment, verb, values string, args ...string) error {
	top, err := cluster.Checkout()
	if err != nil {
		return err
	}
	file := filepath.Join(os.TempDir(), fmt.Sprintf("nodelvm-values-%d.yaml", os.Getpid()))
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		return err
	}
	args = append(append([]string{verb, "nodelvm", filepath.Join(top, "deploy", "chart", "nodelvm"),
		"--namespace", cluster.DriverNamespace, "--wait", "--timeout", "9m"}, args...), "--values", file)
	if err := errors.Join(env.Helm(ctx, args...), os.Remove(file)); err != nil {
		return err
	}
	_, err = env.Kubectl(ctx, "", "rollout", "status", "-n", cluster.DriverNamespace, cluster.DaemonSet)
	return err
}

func (h *helmStory) install(ctx context.Context, env *scenario.Environment) error {
	return errors.Join(driverNamespace(ctx, env), chart(ctx, env, "install"))
}

// driverNamespace creates the driver's namespace, as the README says.
func driverNamespace(ctx context.Context, env *scenario.Environment) error {
	for _, args := range [][]string{
		{"create", "namespace", cluster.DriverNamespace},
		{"label", "namespace", cluster.DriverNamespace, "pod-security.kubernetes.io/enforce=privileged"},
	} {
		if _, err := env.Kubectl(ctx, "", args...); err != nil {
			return err
		}
	}
	return nil
}

// grouped asks LVM on each node; no command that changes anything was typed there.
func (h *helmStory) grouped(ctx context.Context, env *scenario.Environment) error {
	for _, node := range env.Lab.NodeNames() {
		out, err := env.RunOnNode(ctx, node, "vgs", "--noheadings", "-o", "vg_name,vg_tags,pv_count")
		if err != nil {
			return err
		}
		if got, want := strings.Fields(string(out)), []string{h.groups[node], "fast,nodelvm.node=" + node, "2"}; !slices.Equal(got, want) {
			return fmt.Errorf("%s has the groups %q, want %q", node, got, want)
		}
	}
	return nil
}

// database applies the example as a user would, with one replica and a size that fits.
func (h *helmStory) database(ctx context.Context, env *scenario.Environment) error {
	top, err := cluster.Checkout()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(top, "deploy", "examples", "postgresql.yaml"))
	if err != nil {
		return err
	}
	objects := string(text) // its class is the one that the values have made
	for _, change := range [][2]string{{"replicas: 3", "replicas: 1"}, {"storage: 2Gi", "storage: 1Gi"}} {
		if !strings.Contains(objects, change[0]) {
			return fmt.Errorf("deploy/examples/postgresql.yaml has no %q", change[0])
		}
		objects = strings.Replace(objects, change[0], change[1], 1)
	}
	namespace := "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + cluster.Namespace + "}\n---\n"
	if _, err := env.Kubectl(ctx, namespace+objects, "apply", "-n", cluster.Namespace, "-f", "-"); err != nil {
		return err
	}
	if _, err := env.WaitPodReady(ctx, examplePod); err != nil {
		return err
	}
	if _, err := env.VolumeOf(ctx, exampleClaim); err != nil {
		return err
	}
	_, err = env.QueryIn(ctx, examplePod, "select 1")
	if err == nil {
		_, err = env.ExecInPod(ctx, examplePod, "pgbench", "-i", "-q", "-s", "1", "postgres")
	}
	return err
}

// untouched is what changes if a database is restarted or its volume mounted again.
func untouched(ctx context.Context, env *scenario.Environment) (string, error) {
	pod, err := env.WaitPodReady(ctx, examplePod)
	if err != nil {
		return "", err
	}
	began, err := env.QueryIn(ctx, examplePod, "select pg_postmaster_start_time()")
	if err != nil {
		return "", err
	}
	mounts, err := env.ExecInPod(ctx, examplePod, "grep", " "+examplePath+" ", "/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	id, _, _ := strings.Cut(mounts, " ")
	staged, err := env.RunOnNode(ctx, pod.Spec.NodeName, "grep", "plugins/kubernetes.io/csi/nodelvm.io", "/proc/self/mountinfo")
	return fmt.Sprintf("container %s, began %s, mount %s in the pod, on the node:\n%s", scenario.ContainerOf(pod), began, id, staged), err
}

func (h *helmStory) upgrade(ctx context.Context, env *scenario.Environment) error {
	old, err := env.DriverPods(ctx)
	if err != nil {
		return err
	}
	before, err := untouched(ctx, env)
	if err != nil {
		return err
	}
	load, err := env.StartPgbench(ctx, examplePod)
	if err != nil {
		return err
	}
	changed := upgradeAndBack(ctx, env, old)
	transactions, err := load.Stop(ctx)
	if err := errors.Join(changed, err); err != nil {
		return err
	}
	after, err := untouched(ctx, env)
	if err != nil {
		return err
	}
	if after != before {
		return fmt.Errorf("before the update: %s\nafter it: %s", before, after)
	}
	env.Reporter.Note("every driver was replaced twice during %d transactions of pgbench's, of which none failed", transactions)
	return nil
}

// upgradeAndBack upgrades the release and rolls it back. Each replaces every driver.
func upgradeAndBack(ctx context.Context, env *scenario.Environment, old []string) error {
	for _, change := range []func() error{
		func() error { return chart(ctx, env, "upgrade", "--set", "logLevel=debug") },
		func() error {
			return errors.Join(env.Helm(ctx, "rollback", "nodelvm", "--namespace", cluster.DriverNamespace, "--wait", "--timeout", "9m"), env.WaitDriverRolledOut(ctx))
		},
	} {
		if err := change(); err != nil {
			return err
		}
		now, err := env.DriverPods(ctx)
		if err != nil {
			return err
		}
		if len(now) != len(env.Lab.NodeNames()) || slices.ContainsFunc(now, func(pod string) bool { return slices.Contains(old, pod) }) {
			return fmt.Errorf("the driver's pods were %v and are %v", old, now)
		}
		old = now
	}
	return nil
}

// uninstallChart returns when the driver's pods have ended; Helm waits for their DaemonSet alone.
func uninstallChart(ctx context.Context, env *scenario.Environment) error {
	if err := env.Helm(ctx, "uninstall", "nodelvm", "--namespace", cluster.DriverNamespace, "--wait"); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error {
		pods, err := env.DriverPods(ctx)
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("pods %v are still there", pods)
		}
		return err
	})
}

func (h *helmStory) uninstall(ctx context.Context, env *scenario.Environment) error {
	before, err := untouched(ctx, env)
	if err != nil {
		return err
	}
	if h.rows, err = env.QueryIn(ctx, examplePod, scenario.FingerprintQuery); err != nil {
		return err
	}
	if err := uninstallChart(ctx, env); err != nil {
		return err
	}
	if _, err := env.Kubectl(ctx, "", "get", "csidriver", cluster.Driver); err != nil { // without it, Kubernetes waits for an attachment
		return err
	}
	rows, err := env.QueryIn(ctx, examplePod, scenario.FingerprintQuery)
	if err != nil {
		return err
	}
	after, err := untouched(ctx, env)
	if err == nil && (rows != h.rows || after != before) {
		err = fmt.Errorf("rows %s, %s; they were %s, %s", rows, after, h.rows, before)
	}
	return err
}

func (h *helmStory) again(ctx context.Context, env *scenario.Environment) error {
	if err := chart(ctx, env, "install"); err != nil {
		return err
	}
	old, err := env.WaitPodReady(ctx, examplePod)
	if err != nil {
		return err
	}
	if _, err := env.Kubectl(ctx, "", "delete", "pod", "-n", cluster.Namespace, examplePod, "--wait"); err != nil {
		return err
	}
	if err := cluster.Eventually(ctx, func() error { return env.PodReplaced(ctx, examplePod, old.UID) }); err != nil {
		return err
	}
	if _, err := env.WaitPodReady(ctx, examplePod); err != nil {
		return err
	}
	rows, err := env.QueryIn(ctx, examplePod, scenario.FingerprintQuery)
	if err == nil && rows != h.rows {
		err = fmt.Errorf("the database holds %s and held %s", rows, h.rows)
	}
	return err
}

func (h *helmStory) clear(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.DeleteEverything(ctx, env); err != nil {
		return err
	}
	if _, err := env.Kubectl(ctx, "", "delete", "-n", cluster.Namespace, "service/postgres", "secret/postgres"); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error { return env.CheckOnlyPools(ctx) })
}

func (h *helmStory) restore(ctx context.Context, env *scenario.Environment) error {
	if err := uninstallChart(ctx, env); err != nil {
		return err
	}
	for node, group := range h.groups {
		for _, script := range []string{makeBlank, makeGroup} {
			if _, err := env.RunOnNode(ctx, node, "sh", "-c", script, "sh", group); err != nil {
				return err
			}
		}
	}
	return manifestInstalled(ctx, env)
}

// manifestInstalled installs the driver as the other scenarios expect it.
func manifestInstalled(ctx context.Context, env *scenario.Environment) error {
	top, err := cluster.Checkout()
	if err != nil {
		return err
	}
	if err := env.ApplyDriver(ctx, filepath.Join(top, "deploy", "nodelvm.yaml")); err != nil {
		return err
	}
	_, err = env.Kubectl(ctx, "", "rollout", "status", "-n", cluster.DriverNamespace, cluster.DaemonSet)
	return err
}
