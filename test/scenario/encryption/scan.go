package encryption

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// cipherDisks are all disks of the node's volume group.
var cipherDisks = []string{"/dev/ubdb", "/dev/ubdc"}

func randomHex(size int) string {
	data := make([]byte, size)
	_, _ = rand.Read(data) // never fails
	return hex.EncodeToString(data)
}

// keyOpens asks cryptsetup on the node whether a key opens a claim's volume.
func keyOpens(ctx context.Context, env *scenario.Environment, claim, key string) (bool, error) {
	v, err := env.VolumeOf(ctx, claim)
	if err != nil {
		return false, err
	}
	const wrongKey = 2
	var words bytes.Buffer
	device, err := env.RunOnNode(ctx, cipherNode, "lvs", "--noheadings", "-o", "lv_dm_path", v.Group+"/"+v.Lv)
	if err != nil {
		return false, err
	}
	code, err := env.Lab.Exec(ctx, cipherNode, strings.NewReader(key), &words, &words,
		"cryptsetup", "open", "--test-passphrase", "--key-file=-", strings.TrimSpace(string(device)))
	if err == nil && code != 0 && code != wrongKey {
		err = fmt.Errorf("cryptsetup exits with %d: %s", code, words.String())
	}
	return code == 0, err
}

// allocated reads LVM's metadata on the node's disks and all extents in use, beside the page cache. The lab's extents have 4 MiB and begin at 1 MiB.
const allocated = `{ for d in $(pvs --noheadings -o pv_name); do dd if=$d bs=1M count=1 iflag=direct status=none; done
lvs -a --noheadings -o seg_pe_ranges | tr ' ' '\n' | grep ^/dev/ | sort -u | while IFS=:- read d first last; do
dd if=$d bs=1M skip=$((1 + 4 * first)) count=$((4 * (last - first + 1))) iflag=direct status=none; done; }`

// onNode searches what a command on the node reads: each of there must be found, and absent must not.
func onNode(ctx context.Context, env *scenario.Environment, reads string, there []string, absent string) error {
	// Each run of zeroes becomes one line: most of a disk is zero.
	const search = ` | tr -s '\000' '\n' | LC_ALL=C grep -a -o -F "$1" | sort | uniq -c`
	texts := there
	if absent != "" {
		texts = append(slices.Clone(there), absent)
	}
	out, err := env.RunOnNode(ctx, cipherNode, "sh", "-c", reads+search, "search", strings.Join(texts, "\n"))
	for _, text := range there {
		if err == nil && !strings.Contains(string(out), text) {
			err = fmt.Errorf("the search finds no %q: %s", text, out)
		}
	}
	if err == nil && absent != "" && strings.Contains(string(out), absent) {
		err = fmt.Errorf("%q is there: %s", absent, out)
	}
	return err
}

// scanDir is where the node keeps the keys to search for, and what was found. It outlives a reboot.
const scanDir = "/root/key-scan"

// watchProcesses searches the arguments and environments of all processes, again and again. The pattern is in a file: it is in no process of the search.
const watchProcesses = `cd ` + scanDir + ` && touch watching && while [ -e watching ]; do
 grep -a -o -H -F -f keys /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null >> hits; touch searched; sleep 0.5; done`

// searchFiles lists the files that were written since the watch began, on the node's own file systems, and contain a key.
const searchFiles = `cd ` + scanDir + ` && find / /run /tmp /dev/shm -xdev -type f -newer begun -size -100000k ! -path '` + scanDir + `/*' -print0 | xargs -0 -r grep -l -a -F -f keys || true`

// encodings are how a key can appear.
func encodings(key string) []string {
	return []string{key, base64.StdEncoding.EncodeToString([]byte(key))}
}

func (c *cipherStory) watch(ctx context.Context, env *scenario.Environment) error {
	// Of a lower priority, it takes little from databases that need the node's only processor.
	_, err := env.RunOnNode(ctx, cipherNode, "sh", "-c", "nohup nice -n 10 sh -c '"+watchProcesses+"' >/dev/null 2>&1 </dev/null &")
	return err
}

// watchBegins proves with planted keys that the search finds them: in arguments, environments, files, and objects.
func (c *cipherStory) watchBegins(ctx context.Context, env *scenario.Environment) error {
	var patterns []string
	for _, key := range c.keys {
		patterns = append(patterns, encodings(key)...)
	}
	var words bytes.Buffer
	code, err := env.Lab.Exec(ctx, cipherNode, strings.NewReader(strings.Join(patterns, "\n")+"\n"), &words, &words,
		"sh", "-c", "rm -rf "+scanDir+" && mkdir -m 700 "+scanDir+" && cd "+scanDir+" && cat > keys && touch begun hits")
	if err != nil || code != 0 {
		return errors.Join(err, fmt.Errorf("exit code %d: %s", code, words.String()))
	}
	if err := c.watch(ctx, env); err != nil {
		return err
	}
	planted := c.keys["planted"]
	const plant = `{ sleep 1; echo "$1" > /tmp/planted; PLANTED=$1 sh -c 'sleep 600; :' "$1" & echo $! > ` + scanDir + `/planter; } >/dev/null 2>&1`
	if _, err := env.RunOnNode(ctx, cipherNode, "sh", "-c", plant, "plant", planted); err != nil {
		return err
	}
	if err := cluster.Eventually(ctx, func() error { return c.plantedIsSeen(ctx, env) }); err != nil {
		return err
	}
	files, err := env.RunOnNode(ctx, cipherNode, "sh", "-c", searchFiles)
	if err == nil && !strings.Contains(string(files), "/tmp/planted\n") {
		err = fmt.Errorf("the search for files found %q and not the planted one", files)
	}
	if err != nil {
		return err
	}
	return errors.Join(c.plantedObjectIsFound(ctx, env), unplant(ctx, env))
}

// plantedIsSeen fails until the watch has seen the planted key in the arguments and in the environment of a process.
func (c *cipherStory) plantedIsSeen(ctx context.Context, env *scenario.Environment) error {
	hits, err := env.RunOnNode(ctx, cipherNode, "cat", scanDir+"/hits")
	for _, where := range []string{"/cmdline:", "/environ:"} {
		if err == nil && !strings.Contains(string(hits), where+c.keys["planted"]) {
			err = fmt.Errorf("the watch has not seen the planted key in %s: %q", where, hits)
		}
	}
	return err
}

func unplant(ctx context.Context, env *scenario.Environment) error {
	_, err := env.RunOnNode(ctx, cipherNode, "sh", "-c", "pkill -P $(cat "+scanDir+"/planter); kill $(cat "+scanDir+"/planter); rm /tmp/planted "+scanDir+"/planter")
	return err
}

func (c *cipherStory) plantedObjectIsFound(ctx context.Context, env *scenario.Environment) error {
	configMaps := env.Client.CoreV1().ConfigMaps(cluster.Namespace)
	planted := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "planted"}, BinaryData: map[string][]byte{"file": []byte(c.keys["planted"])}}
	if _, err := configMaps.Create(ctx, planted, metav1.CreateOptions{}); err != nil {
		return err
	}
	objects, err := objectsWithoutSecrets(ctx, env)
	if err == nil && c.keyIn(objects) != "planted" {
		err = errors.New("the search does not find the key in a ConfigMap")
	}
	return errors.Join(err, configMaps.Delete(ctx, planted.Name, metav1.DeleteOptions{}))
}

// keyIn says which key a text has; "": none.
func (c *cipherStory) keyIn(text string) string {
	for use, key := range c.keys {
		if slices.ContainsFunc(encodings(key), func(s string) bool { return strings.Contains(text, s) }) {
			return use
		}
	}
	return ""
}

// objectsWithoutSecrets are all objects of the cluster but the Secrets.
func objectsWithoutSecrets(ctx context.Context, env *scenario.Environment) (string, error) {
	names, err := env.Kubectl(ctx, "", "api-resources", "--verbs=list", "-o", "name")
	if err != nil {
		return "", err
	}
	kinds := slices.DeleteFunc(strings.Fields(names), func(kind string) bool { return kind == "secrets" || kind == "componentstatuses" })
	return env.Kubectl(ctx, "", "get", strings.Join(kinds, ","), "-A", "-o", "json")
}

// noKeyWasSeen searches what the scenario has left; each text must be there.
func (c *cipherStory) noKeyWasSeen(ctx context.Context, env *scenario.Environment) error {
	searched, err := env.RunOnNode(ctx, cipherNode, "find", scanDir+"/searched", "-mmin", "-1")
	if err != nil || len(searched) == 0 {
		return errors.Join(err, errors.New("the watch of processes has ended"))
	}
	hits, err := env.RunOnNode(ctx, cipherNode, "cat", scanDir+"/hits")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(hits)) {
		if _, key, _ := strings.Cut(strings.TrimSpace(line), ":"); c.keyIn(key) != "planted" {
			return fmt.Errorf("a process showed the key of %s: %s", c.keyIn(key), line)
		}
	}
	files, err := env.RunOnNode(ctx, cipherNode, "sh", "-c", searchFiles)
	if err != nil || len(files) > 0 {
		return errors.Join(err, fmt.Errorf("files of the node have a key: %s", files))
	}
	texts, err := textsOfDriver(ctx, env)
	if err != nil {
		return err
	}
	for what, text := range texts {
		if use := c.keyIn(text); use != "" || len(text) < 100 {
			return fmt.Errorf("%s (%d bytes) has the key of %q", what, len(text), use)
		}
	}
	_, err = env.RunOnNode(ctx, cipherNode, "rm", "-r", scanDir)
	return err
}

// textsOfDriver is what people and programs read of the driver of the node.
func textsOfDriver(ctx context.Context, env *scenario.Environment) (map[string]string, error) {
	pod, err := env.DriverPodOn(ctx, cipherNode)
	if err != nil {
		return nil, err
	}
	texts := map[string]string{}
	tags, err := env.RunOnNode(ctx, cipherNode, "sh", "-c", "lvs -a -o name,tags; dmsetup table; for d in "+strings.Join(cipherDisks, " ")+"; do head -c 2097152 $d | tr -cd '[:print:]'; done")
	texts["LVM's metadata"] = string(tags)
	read := func(what string, get func() (string, error)) {
		if err == nil {
			texts[what], err = get()
		}
	}
	read("the objects", func() (string, error) { return objectsWithoutSecrets(ctx, env) })
	read("the log", func() (string, error) {
		return env.Kubectl(ctx, "", "logs", "-n", cluster.DriverNamespace, pod.Name, "--all-containers")
	})
	read("the earlier log", func() (string, error) {
		return env.Kubectl(ctx, "", "logs", "-n", cluster.DriverNamespace, pod.Name, "-c", "nodelvm", "--previous")
	})
	for _, page := range []string{"/metrics", "/v1/status"} {
		read(page, func() (string, error) { return env.DriverPage(ctx, pod.Name, page) })
	}
	return texts, err
}
