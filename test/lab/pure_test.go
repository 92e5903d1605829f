package lab

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

func TestParseVersions(t *testing.T) {
	v, err := parseVersions(strings.NewReader("# a comment\n\nA=1\nB=v2.0=x\n"))
	if err != nil || !maps.Equal(v, versions{"A": "1", "B": "v2.0=x"}) {
		t.Errorf("parseVersions = %v, %v", v, err)
	}
	for _, bad := range []string{"A", "=1", "A=", "A=1\nA=2"} {
		if v, err := parseVersions(strings.NewReader(bad)); err == nil {
			t.Errorf("parseVersions(%q) = %v, want an error", bad, v)
		}
	}
	err = v.need("A", "C", "D")
	if err == nil || !strings.Contains(err.Error(), "lacks C, D") {
		t.Errorf("need = %v, want C and D named", err)
	}
}

func TestParseStat(t *testing.T) {
	const tail = " 1 77 88 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 4242 99 100"
	for name, c := range map[string]struct {
		line string
		want process
	}{
		"plain":          {"42 (sh) S" + tail, process{42, 88, 4242, false}},
		"name with ) (":  {"42 (a) R 1 (b) S" + tail, process{42, 88, 4242, false}},
		"zombie":         {"42 (linux.uml) Z" + tail, process{42, 88, 4242, true}},
		"other threads":  {"42 (linux.uml) Z" + strings.Replace(tail, " 20 0 1 0 ", " 20 0 2 0 ", 1), process{42, 88, 4242, false}},
		"stopped by us":  {"42 (linux.uml) t" + tail, process{42, 88, 4242, false}},
		"being released": {"42 (x) X" + tail, process{42, 88, 4242, true}},
	} {
		if got, err := parseStat(c.line); err != nil || got != c.want {
			t.Errorf("%s: parseStat = %+v, %v, want %+v", name, got, err, c.want)
		}
	}
	for _, bad := range []string{"", "42", "42 (sh", "42 (sh) S 1 2 3", "x (sh) S" + tail} {
		if p, err := parseStat(bad); err == nil {
			t.Errorf("parseStat(%q) = %+v, want an error", bad, p)
		}
	}
}

func TestInSession(t *testing.T) {
	leader := process{pid: 100, session: 100, start: 5000}
	for name, c := range map[string]struct {
		p    process
		want bool
	}{
		"leader":                          {process{100, 100, 5000, false}, true},
		"child":                           {process{101, 100, 5001, false}, true},
		"child born in the same tick":     {process{101, 100, 5000, false}, true},
		"pid given anew":                  {process{100, 100, 9000, false}, false},
		"other session":                   {process{101, 7, 5001, false}, false},
		"older than its session's number": {process{99, 100, 4000, false}, false},
	} {
		if got := inSession(c.p, leader); got != c.want {
			t.Errorf("%s: inSession = %v", name, got)
		}
	}
}

func TestOpenRefusesFoldersThatNodesCannotUse(t *testing.T) {
	for _, dir := range []string{"/a b", "/a,b", "/a'b", "/" + strings.Repeat("x", maxDir)} {
		if _, err := Open(dir); err == nil {
			t.Errorf("Open(%q) succeeds", dir)
		}
	}
	one, err1 := Open("/tmp/one")
	two, err2 := Open("/tmp/two")
	if err1 != nil || err2 != nil || one.netns == two.netns {
		t.Errorf("two labs: %v, %v, namespaces %s and %s", err1, err2, one.netns, two.netns)
	}
}

func TestEnoughSpace(t *testing.T) {
	disks := map[string]struct {
		filesystem uint64
		free       int64
	}{"/lab": {1, 10 * gib}, "/cache": {1, 10 * gib}, "/other": {2, 15 * gib}}
	free := func(dir string) (uint64, int64, error) { return disks[dir].filesystem, disks[dir].free, nil }
	for name, c := range map[string]struct {
		needs []spaceNeed
		want  string
	}{
		"enough":                 {[]spaceNeed{{"disks", "/lab", 6 * gib}}, ""},
		"exactly enough":         {[]spaceNeed{{"disks", "/lab", 10 * gib}}, ""},
		"too little":             {[]spaceNeed{{"disks", "/lab", 11 * gib}}, "/lab has 10.0 GiB free; disks needs 11 GiB"},
		"two on one file system": {[]spaceNeed{{"disks", "/lab", 6 * gib}, {"the build", "/cache", 6 * gib}}, "/cache has 10.0 GiB free; the build needs 12 GiB"},
		"two on two":             {[]spaceNeed{{"disks", "/lab", 6 * gib}, {"the build", "/other", 14 * gib}}, ""},
	} {
		err := enoughSpace(c.needs, free)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: enoughSpace = %v, want %q", name, err, c.want)
		}
	}
	if filesystem, bytes, err := freeSpace(t.TempDir()); err != nil || filesystem == 0 || bytes <= 0 {
		t.Errorf("freeSpace of a folder = %d, %d, %v", filesystem, bytes, err)
	}
	if _, _, err := freeSpace("/does/not/exist"); err == nil {
		t.Error("freeSpace of a folder that does not exist succeeds")
	}
}

func TestControlPlaneErrorNamesTheDeadProcess(t *testing.T) {
	l := &Lab{dir: t.TempDir()}
	must(t, errors.Join(l.prepareDirs(), l.saveState(state{Nodes: 1, ControlPlane: true})))
	for _, name := range controlPlaneNames {
		if err := l.record(name, os.Getpid()); err != nil { // a process that runs
			t.Fatal(err)
		}
	}
	ctx, stop := l.WhileHealthy(t.Context())
	defer stop()
	if err := errors.Join(l.ControlPlaneError(), ctx.Err()); err != nil {
		t.Fatalf("while all processes run: %v", err)
	}
	must(t, errors.Join(os.WriteFile(l.logFile("etcd"), []byte("panic: no space left on device\n"), 0o644), os.Remove(l.recordFile("etcd"))))
	<-ctx.Done()
	for _, err := range []error{l.ControlPlaneError(), context.Cause(ctx)} {
		if err == nil || !strings.Contains(err.Error(), "etcd has ended") || !strings.Contains(err.Error(), "no space left on device") {
			t.Errorf("error = %v, want the process and the end of its log", err)
		}
	}
}

func TestNodeErrorNamesThePanickedNode(t *testing.T) {
	l := &Lab{dir: t.TempDir()}
	must(t, errors.Join(l.prepareDirs(), l.saveState(state{Nodes: 2})))
	const cut = "EXT4-fs (ubda): mounted filesystem\n"
	for _, name := range l.NodeNames() { // neither runs: a test cut their power
		must(t, os.WriteFile(l.logFile(name), []byte(cut), 0o644))
	}
	ctx, stop := l.WhileHealthy(t.Context())
	defer stop()
	if err := errors.Join(l.NodeError(), ctx.Err()); err != nil {
		t.Fatalf("after a power cut: %v", err)
	}
	must(t, os.WriteFile(l.logFile("node-2"), []byte(cut+"Kernel panic - not syncing: Segfault without recovery target\nCall Trace:\n copy_chunk_to_user\n"), 0o644))
	<-ctx.Done()
	for _, err := range []error{l.NodeError(), context.Cause(ctx)} {
		if err == nil || !strings.Contains(err.Error(), "kernel of node-2 panicked") || !strings.Contains(err.Error(), "copy_chunk_to_user") {
			t.Errorf("error = %v, want the node and the end of its console", err)
		}
	}
	const boot = "Linux version 7.2.7\n" + cut
	for console, want := range map[string]int{
		boot + "oops\nKernel panic - not syncing: Fatal\n" + strings.Repeat("trace\n", 100): tailLines + 3,
		boot + "Kernel panic - not syncing: Fatal\n" + boot:                                 0, // a later boot
		boot + "Kernel panic - not syncing: Attempted to kill init! exitcode=0\n trace\n":   0, // a shutdown
	} {
		if lines := panicLines(console); len(lines) != want {
			t.Errorf("%d lines, want %d, of the console\n%s\nare\n%s", len(lines), want, console, strings.Join(lines, "\n"))
		}
	}
	if err := l.record("node-2", os.Getpid()); err != nil { // it boots again
		t.Fatal(err)
	}
	if err := l.NodeError(); err != nil {
		t.Errorf("after the next boot: %v", err)
	}
}

func TestKillGroup(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	out, stdout := io.Pipe()
	cmd := exec.CommandContext(ctx, "bash", "-c", "sleep 600 & echo; wait")
	cmd.Stdout = stdout // not a file: the command gets a pipe, which the child holds
	killGroup(cmd)
	must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if _, err := out.Read(make([]byte, 1)); err != nil { // the child runs
		t.Fatal(err)
	}
	cancel(errors.New("a node's kernel panicked"))
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the command succeeded")
		}
	case <-time.After(wait.Limit(30 * time.Second)):
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		t.Fatal("the command's child continues after the end of the context")
	}
}

func TestPatchMaybeMap(t *testing.T) {
	values := map[string][]byte{"mm": {0x58, 4, 0, 0}}
	for i, name := range []string{"current", "virt_to_pte", "handle_page_fault"} {
		values[name] = bytes.Repeat([]byte{byte(i + 1)}, 8)
	}
	faulty, err := machineCode(maybeMap, values)
	must(t, err)
	before, after := slices.Concat(faulty[:20], []byte("before")), []byte("after") // the first bytes alone are no match
	text := slices.Concat(before, faulty, after)
	if found, err := patchMaybeMap(text); err != nil || !found {
		t.Fatalf("patchMaybeMap = %v, %v", found, err)
	}
	want, err := machineCode(patchedMaybeMap, values)
	must(t, err)
	if !bytes.HasPrefix(text, slices.Concat(before, want)) || !bytes.HasSuffix(text, after) {
		t.Errorf("the text is %x", text)
	}
	other := bytes.Clone(faulty)
	other[bytes.LastIndex(other, values["mm"])]++ // an instruction that reads another field
	same := bytes.Clone(other)
	if found, err := patchMaybeMap(other); err != nil || found || !bytes.Equal(other, same) {
		t.Errorf("patchMaybeMap of another function = %v, %v", found, err)
	}
}
