package node

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"

	"github.com/nodelvm/nodelvm/lvm"
)

const keyPage = "../docs/howto/encryption.md"

// fakeKubectl creates a Secret as files: FOLDER/NAME/FIELD. It answers any other question with a claim's UID.
const fakeKubectl = `#!/bin/sh
while [ $# -gt 0 ]; do
	case "$1" in
	generic) name=$2 ;;
	--from-file=*) fields="$fields ${1#--from-file=}" ;;
	esac
	shift
done
[ -n "$name" ] || { echo 11111111-2222-3333-4444-555555555555; exit; }
mkdir -p "$SECRETS/$name"
for field in $fields; do cp "${field#*=}" "$SECRETS/$name/${field%%=*}"; done
`

// TestDocumentedKeys runs each block of the page that creates a Secret. The kubelet can pass the Secret to the driver, and the driver opens a volume
// with it: a request is a proto3 message, whose strings are UTF-8.
func TestDocumentedKeys(t *testing.T) {
	page, err := os.ReadFile(keyPage)
	must(t, err)
	blocks := 0
	for _, block := range regexp.MustCompile("(?ms)^ *```sh\n(.*?)^ *```").FindAllStringSubmatch(string(page), -1) {
		if !strings.Contains(block[1], "create secret") {
			continue
		}
		blocks++
		for name, secret := range secretsOf(t, block[1]) {
			if err := newEncrypted().stageEncrypted(t, passed(t, secret)); err != nil {
				t.Errorf("Secret %s: %v; its block:\n%s", name, err, block[1])
			}
		}
	}
	if blocks < 2 {
		t.Errorf("%d blocks of %s create a Secret", blocks, keyPage)
	}
}

// secretsOf runs the commands of a page in an empty folder, and returns the Secrets that they create.
func secretsOf(t *testing.T, commands string) map[string]map[string]string {
	t.Helper()
	dir := t.TempDir()
	bin, secrets := filepath.Join(dir, "bin"), filepath.Join(dir, "secrets")
	for _, folder := range []string{bin, secrets, filepath.Join(dir, "work")} {
		must(t, os.Mkdir(folder, 0o700))
	}
	must(t, os.WriteFile(filepath.Join(bin, "kubectl"), []byte(fakeKubectl), 0o700))
	sh := exec.CommandContext(t.Context(), "sh", "-euc", commands)
	sh.Dir = filepath.Join(dir, "work")
	sh.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "SECRETS=" + secrets}
	if out, err := sh.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s\n%s", err, out, commands)
	}
	created := map[string]map[string]string{}
	files, err := filepath.Glob(filepath.Join(secrets, "*", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no Secret was created (%v) by\n%s", err, commands)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		must(t, err)
		name := filepath.Base(filepath.Dir(file))
		if created[name] == nil {
			created[name] = map[string]string{}
		}
		created[name][filepath.Base(file)] = string(content)
	}
	return created
}

// passed returns a Secret as the driver gets it from the kubelet.
func passed(t *testing.T, secret map[string]string) map[string]string {
	t.Helper()
	wire, err := proto.Marshal(&csi.NodeStageVolumeRequest{Secrets: secret})
	if err != nil {
		t.Fatalf("the kubelet cannot pass the Secret: %v", err)
	}
	var r csi.NodeStageVolumeRequest
	must(t, proto.Unmarshal(wire, &r))
	return r.GetSecrets()
}

// TestKeyThatIsNotText: the page's table has the message of a key that the kubelet cannot pass.
func TestKeyThatIsNotText(t *testing.T) {
	_, err := proto.Marshal(&csi.NodeStageVolumeRequest{Secrets: map[string]string{"key": strings.Repeat("\xff\xfe", 16)}})
	if err == nil {
		t.Fatal("the kubelet can pass any bytes")
	}
	_, words, _ := strings.Cut(err.Error(), "string field")
	page, failed := os.ReadFile(keyPage)
	if failed != nil || !strings.Contains(string(page), "\n| `grpc: error while marshaling: string field"+words+"` |") {
		t.Errorf("%s has no row for %q (%v)", keyPage, err, failed)
	}
}

// TestAdviceForAKey: the command in the message about a key that is not random creates one that the kubelet can pass and the driver accepts.
func TestAdviceForAKey(t *testing.T) {
	err := newEncrypted().stageEncrypted(t, map[string]string{"key": strings.Repeat("ab", 32)})
	if lvm.KindOf(err) != lvm.KindInvalid {
		t.Fatal(err)
	}
	command := regexp.MustCompile("`(head [^`]*)`").FindStringSubmatch(err.Error())
	if command == nil {
		t.Fatalf("no command in %q", err)
	}
	key, err := exec.CommandContext(t.Context(), "sh", "-euc", command[1]).Output()
	must(t, err)
	must(t, newEncrypted().stageEncrypted(t, passed(t, map[string]string{"key": string(key)})))
}
