//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/test/lab"
)

// TestPowerCut cuts a node's power at random moments while a driver makes, extends, copies and deletes volumes in it,
// and holds the next one to what was promised. NODELVM_TEST_CUTS is how many times: 3 by default.
func TestPowerCut(t *testing.T) {
	cuts := 3
	if s := os.Getenv("NODELVM_TEST_CUTS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("NODELVM_TEST_CUTS: %v", err)
		}
		cuts = n
	}
	l, err := lab.Open(filepath.Join(os.TempDir(), "nodelvm-power-lab"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := l.Up(t.Context(), lab.UpOptions{Nodes: 1, Progress: os.Stdout}); err != nil {
		t.Fatal(err)
	}
	compile(t, "../..", "test", "-c", "-tags", "reallvm", "-o", filepath.Join(l.Share(), "power.test"), "./lvm/lvmtest")
	journals, err := os.MkdirTemp(l.Share(), "journals-") // not those of an earlier run, which stay on the share
	if err != nil {
		t.Fatal(err)
	}
	for cut := range cuts {
		t.Run(fmt.Sprint("cut ", cut), func(t *testing.T) {
			powerCut(t, l, filepath.Join(filepath.Base(journals), strconv.Itoa(cut)))
		})
	}
}

// powerCut lets the victim work for a while, cuts, boots, and checks. Each cut has a journal under a name of its own:
// a node's kernel may know an old content of a file on the share.
func powerCut(t *testing.T, l *lab.Lab, journal string) {
	run := func(ctx context.Context, test string, out *bytes.Buffer) (int, error) {
		return l.Exec(ctx, "node-1", nil, out, out, "env", "NODELVM_TEST_DISKS=/dev/ubdb,/dev/ubdc", "NODELVM_TEST_JOURNAL=/mnt/lab/"+journal,
			"/mnt/lab/power.test", "-test.run", "^"+test+"$", "-test.v", "-test.timeout=10m")
	}
	victim, stop := context.WithCancel(t.Context())
	var words bytes.Buffer
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = run(victim, "TestPowerVictim", &words) // it ends with the node
	}()
	waitForWork(t, filepath.Join(l.Share(), journal), ended, &words)
	after := time.Duration(rand.Int64N(int64(20 * time.Second)))
	time.Sleep(after)
	if err := l.PowerCut("node-1"); err != nil {
		t.Fatal(err)
	}
	stop()
	<-ended
	if err := l.Boot(t.Context(), "node-1"); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	code, err := run(t.Context(), "TestPowerCheck", &out)
	promises, readErr := os.ReadFile(filepath.Join(l.Share(), journal))
	if err != nil || readErr != nil || code != 0 {
		t.Fatalf("cut after %s: exit code %d, %v, %v\n%s\nthe journal:\n%s\nthe victim:\n%s", after, code, err, readErr, out.String(), promises, words.String())
	}
	lines := strings.Split(strings.TrimSpace(string(promises)), "\n")
	t.Logf("cut after %s, at %q", after.Round(time.Millisecond), lines[len(lines)-1])
}

// waitForWork waits until the victim has begun.
func waitForWork(t *testing.T, journal string, ended <-chan struct{}, words *bytes.Buffer) {
	t.Helper()
	deadline := time.After(3 * time.Minute)
	for {
		if lines, err := os.ReadFile(journal); err == nil && len(lines) > 0 {
			return
		}
		select {
		case <-ended:
			t.Fatalf("the victim ended before it began:\n%s", words.String())
		case <-deadline:
			t.Fatal("the victim does not begin")
		case <-time.After(50 * time.Millisecond):
		}
	}
}
