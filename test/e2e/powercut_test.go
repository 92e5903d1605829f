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

	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
	"github.com/nodelvm/nodelvm/test/lab"
)

// TestPowerCut cuts a node's power at random moments while a driver creates, expands, copies and deletes volumes in it, or recovers
// from the last cut. The next driver must keep what the previous ones promised. NODELVM_TEST_CUTS is the number of cuts, 3 by
// default.
func TestPowerCut(t *testing.T) {
	cutPower(t, "power", "reallvm", "./lvm/lvmtest/power")
}

// TestPowerCutMkfs cuts a node's power while the driver formats volumes in it. Afterwards each volume can be mounted without help,
// and no volume that was mounted once is formatted again. NODELVM_TEST_CUTS is the number of cuts, 3 by default.
func TestPowerCutMkfs(t *testing.T) {
	cutPower(t, "mkfs", "realfs", "./node")
}

// TestPowerCutEncryption cuts a node's power while the driver encrypts, opens, expands, re-keys and erases volumes in it.
// Afterwards each volume opens with its data, or is erased, without help. NODELVM_TEST_CUTS is the number of cuts, 3 by default.
func TestPowerCutEncryption(t *testing.T) {
	cutPower(t, "luks", "realfs", "./node/luks")
}

// cutPower cuts the power of a lab's only node while the package's TestPowerVictim runs in it.
func cutPower(t *testing.T, name, tag, pkg string) {
	t.Helper()
	cutPowerOf(t, raiseNodes(t, name, 1), tag, pkg, number(t, "NODELVM_TEST_CUTS", 3))
}

// cutPowerOf cuts the power of node-1.
func cutPowerOf(t *testing.T, l *lab.Lab, tag, pkg string, cuts int) {
	t.Helper()
	compile(t, "../..", "test", "-c", "-tags", tag, "-o", filepath.Join(l.Share(), "power.test"), pkg)
	journals, err := os.MkdirTemp(l.Share(), "journals-") // a new folder: those of earlier runs stay on the share
	must(t, err)
	p := &power{l: l, journals: journals, during: map[string]int{}}
	for cut := range cuts {
		if !t.Run(fmt.Sprint("cut ", cut+1), p.cut) {
			t.Fatal("the cuts after it would meet what this one left")
		}
	}
	t.Run("the end", p.end)
	t.Logf("%d cuts: %v", cuts, p.during)
}

// power is a series of cuts. Each has its own journal: a node's kernel may cache old content of a file on the share.
type power struct {
	l        *lab.Lab
	journals string
	n        int            // of the next journal
	promises string         // the last journal that is not empty
	during   map[string]int // number of cuts by moment
}

// The longest time until a cut: after the start of the victim's work, or, in one of four cuts, after the start of the victim.
const (
	powerOn        = 5 * time.Second
	powerOnAtStart = 3 * time.Second
)

// cut lets the victim check and work for a while, cuts the power, and boots the node.
func (p *power) cut(t *testing.T) {
	before, path := p.promises, filepath.Join(p.journals, strconv.Itoa(p.n))
	p.n++
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var words bytes.Buffer
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if _, err := p.victim(ctx, path, before, &words); err != nil { // it ends when the power is cut
			fmt.Fprintln(&words, err)
		}
	}()
	after := time.Duration(rand.Int64N(int64(powerOnAtStart)))
	if before == "" || rand.IntN(4) > 0 {
		waitForWork(t, path, ended, &words)
		after = time.Duration(rand.Int64N(int64(powerOn)))
	}
	select {
	case <-ended:
		t.Fatalf("the victim ended before its power was cut:\n%s\nwhat was promised:\n%s\nand since:\n%s", words.String(), readFile(before), readFile(path))
	case <-time.After(after):
	}
	must(t, p.l.PowerCut("node-1"))
	stop()
	<-ended
	moment := "mending"
	if journal := readFile(path); journal != "" {
		p.promises, moment = path, momentOf(journal)
	}
	p.during[moment]++
	t.Logf("cut after %s, while %s", after.Round(time.Millisecond), moment)
	must(t, p.l.Boot(t.Context(), "node-1"))
}

// end runs the last victim, which checks and deletes everything.
func (p *power) end(t *testing.T) {
	var words bytes.Buffer
	code, err := p.victim(t.Context(), filepath.Join(p.journals, "none"), p.promises, &words, "NODELVM_TEST_LAST=1")
	if err != nil || code != 0 {
		t.Fatalf("exit code %d, %v\n%s\nwhat was promised:\n%s", code, err, words.String(), readFile(p.promises))
	}
}

func (p *power) victim(ctx context.Context, journal, before string, words *bytes.Buffer, env ...string) (int, error) {
	inNode := func(path string) string { return strings.Replace(path, p.l.Share(), "/mnt/lab", 1) }
	argv := append([]string{"env", "NODELVM_TEST_DISKS=/dev/ubdb,/dev/ubdc", "NODELVM_TEST_JOURNAL=" + inNode(journal), "NODELVM_TEST_PROMISES=" + inNode(before)}, env...)
	argv = append(argv, "/mnt/lab/power.test", "-test.run", "^TestPowerVictim$", "-test.v", "-test.timeout=10m")
	return p.l.Exec(ctx, "node-1", nil, words, words, argv...)
}

// momentOf returns the operation in which, or after which, a journal ends.
func momentOf(journal string) string {
	lines := strings.Split(strings.TrimSpace(journal), "\n")
	last := strings.Fields(lines[len(lines)-1])
	switch {
	case len(last) < 2:
		return "beginning"
	case last[0] == "?":
		return "in " + last[1]
	default:
		return "after " + last[1]
	}
}

// readFile returns the content of a file, or "" if it does not exist.
func readFile(path string) string {
	text, _ := os.ReadFile(path)
	return string(text)
}

// waitForWork waits until the victim has written to its journal.
func waitForWork(t *testing.T, journal string, ended <-chan struct{}, words *bytes.Buffer) {
	t.Helper()
	for deadline := time.After(wait.Limit(10 * time.Minute)); readFile(journal) == ""; {
		select {
		case <-ended:
			t.Fatalf("the victim ended before it began:\n%s", words.String())
		case <-deadline:
			t.Fatal("the victim does not begin")
		case <-time.After(50 * time.Millisecond):
		}
	}
}
