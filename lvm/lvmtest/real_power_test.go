//go:build reallvm

package lvmtest

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// powerGroup is the group of the power-cut tests, on disks that outlive the node: test/e2e cuts the node's power while
// TestPowerVictim works on it, and runs TestPowerCheck after the next boot. What the victim was promised stands in a
// journal outside of the node, one line before each request and one after it, each of them flushed.
const powerGroup = "nodelvm-power"

// powerJournal opens the journal, or answers nil: then these tests are only a part of another one.
func powerJournal(t testing.TB) *os.File {
	t.Helper()
	path := os.Getenv("NODELVM_TEST_JOURNAL")
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	must(t, err)
	return f
}

func powerBed(t testing.TB) Bed {
	t.Helper()
	disks := strings.Split(os.Getenv("NODELVM_TEST_DISKS"), ",")
	if len(disks) < 2 {
		t.Fatal("set NODELVM_TEST_DISKS to two blank disks that the test may use up, such as /dev/ubdb,/dev/ubdc in a lab node")
	}
	if _, there := groupNamed(readDisks(t), powerGroup); !there {
		admin(t, append([]string{"vgcreate", "-y", "-s", "4m", powerGroup}, disks...)...)
	}
	return Bed{Group: powerGroup, Admin: func(t testing.TB, argv ...string) { t.Helper(); admin(t, argv...) }, Read: readDisks}
}

// TestPowerVictim makes, writes, extends, copies and deletes volumes until its power is cut.
func TestPowerVictim(t *testing.T) {
	journal := powerJournal(t)
	if journal == nil {
		return
	}
	b := powerBed(t)
	d := startReal(t, "/var/lib/nodelvm-power")
	note := func(format string, args ...any) {
		_, err := fmt.Fprintf(journal, format+"\n", args...)
		must(t, err)
		must(t, journal.Sync())
	}
	note("works")
	var volumes []lvm.Volume
	for i := 0; ; i++ {
		name := fmt.Sprintf("v%d", i)
		spec := b.spec(name, 8*lvm.MiB)
		if i%3 > 0 {
			spec.Class = b.in([]lvm.Class{{Layout: lvm.LayoutThin, Pool: lvm.DefaultPool, Overprovision: 400}, {Layout: lvm.LayoutRAID1, Mirrors: 1}}[i%3-1])
		}
		note("? create %s", name)
		v := d.create(t, spec)
		note("! create %s %d", name, v.Size)
		volumes = append(volumes, v)
		device, err := d.Activate(t.Context(), v.ID, v.UUID)
		must(t, err)
		scrawl(t, device, name)
		note("! write %s", name)
		if spec.Class.Layout == lvm.LayoutThin {
			note("? snapshot s-%s", name)
			d.snapshot(t, "s-"+name, v.ID)
			note("! snapshot s-%s", name)
		}
		note("? extend %s %d", name, v.Size+ExtentSize)
		_, err = d.Extend(t.Context(), v.ID, v.Size+ExtentSize, 0)
		must(t, err)
		note("! extend %s %d", name, v.Size+ExtentSize)
		if i%2 == 1 {
			n := rand.IntN(len(volumes))
			old := volumes[n]
			volumes = append(volumes[:n], volumes[n+1:]...)
			note("? delete %s", old.Name)
			must(t, d.Delete(t.Context(), old.ID))
			note("! delete %s", old.Name)
		}
	}
}

// scrawl writes a volume's name all over its first MiB, as a database writes its pages, and flushes it.
func scrawl(t testing.TB, device, name string) {
	t.Helper()
	f, err := os.OpenFile(device, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.Write(scrawled(name))
	must(t, err)
	must(t, f.Sync())
	must(t, f.Close())
}

func scrawled(name string) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%-16s", name), 1<<16)
}

// promised is what the journal says of one volume or snapshot.
type promised struct {
	created, deleted   bool // for sure
	creating, deleting bool // perhaps
	written            bool
	size, asked        lvm.Bytes
}

func readJournal(t testing.TB, f *os.File) map[string]*promised {
	t.Helper()
	all := map[string]*promised{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var sure, what, name string
		var size lvm.Bytes
		if n, _ := fmt.Sscan(lines.Text(), &sure, &what, &name, &size); n < 3 {
			continue // "works"
		}
		p := all[name]
		if p == nil {
			p = &promised{}
			all[name] = p
		}
		done := sure == "!"
		switch what {
		case "create", "snapshot":
			p.creating, p.created = true, done
			p.size, p.asked = size, max(size, 8*lvm.MiB)
		case "write":
			p.written = true
		case "extend":
			if p.asked = size; done {
				p.size = size
			}
		case "delete":
			p.deleting, p.deleted = true, done
		}
	}
	must(t, lines.Err())
	return all
}

// TestPowerCheck starts a driver after the power is back and holds it to what was promised; then it deletes everything.
func TestPowerCheck(t *testing.T) {
	journal := powerJournal(t)
	if journal == nil {
		return
	}
	promises := readJournal(t, journal)
	b := powerBed(t)
	d := startReal(t, "/var/lib/nodelvm-power")
	d.waitWiped(t)
	there := map[string]bool{}
	for _, v := range d.volumes(t) {
		there[v.Name] = true
		p := promises[v.Name]
		switch {
		case p == nil:
			t.Errorf("nobody asked for %s", v.Name)
			continue
		case p.deleted:
			t.Errorf("%s was deleted, and is there", v.Name)
		case v.Size < p.size || v.Size > p.asked:
			t.Errorf("%s has %s; %s were promised, %s asked for", v.Name, v.Size, p.size, p.asked)
		}
		device, err := d.Activate(t.Context(), v.ID, v.UUID)
		must(t, err)
		if got := content(t, device); p.written && !bytes.Equal(got, scrawled(v.Name)) {
			t.Errorf("%s does not hold what was written to it and flushed", v.Name)
		}
	}
	for _, s := range d.snapshots(t) {
		there[s.Name] = true
		if p := promises[s.Name]; p == nil {
			t.Errorf("nobody asked for the snapshot %s", s.Name)
		}
	}
	for name, p := range promises {
		if p.created && !p.deleting && !there[name] {
			t.Errorf("%s was promised, and is gone", name)
		}
	}
	checkNothingElse(t, b, len(there))
	b.deleteAll(t, d)
	if g, _ := groupNamed(readDisks(t), powerGroup); len(g.LVs) > 0 {
		if _, pool := lookUp(g, lvm.DefaultPool); pool {
			admin(t, "lvremove", "-y", powerGroup+"/"+lvm.DefaultPool)
		}
	}
	checkNothingElse(t, b, 0)
	d.close(t)
	t.Logf("%d volumes and snapshots in the journal, %d there", len(promises), len(there))
}

func lookUp(g lvm.Group, name string) (lvm.LV, bool) {
	for _, lv := range g.LVs {
		if lv.Name == name {
			return lv, true
		}
	}
	return lvm.LV{}, false
}

// checkNothingElse sees that there are so many volumes in the group, besides the pool, and that nothing is suspended.
func checkNothingElse(t testing.TB, b Bed, want int) {
	t.Helper()
	g := b.group(t)
	var names []string
	for _, lv := range g.LVs {
		if !lv.Hidden && lv.Thin == nil {
			names = append(names, lv.Name)
		}
	}
	if len(names) != want {
		t.Errorf("%d volumes are known to the driver, and in the group are %v", want, names)
	}
	suspended, err := filepath.Glob("/sys/block/dm-*/dm/suspended")
	must(t, err)
	for _, path := range suspended {
		if state, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(state)) == "1" {
			t.Errorf("%s says 1", path)
		}
	}
}

func content(t testing.TB, device string) []byte {
	t.Helper()
	f, err := os.Open(device)
	must(t, err)
	defer func() { must(t, f.Close()) }()
	b := make([]byte, 1<<20)
	_, err = f.Read(b)
	must(t, err)
	return b
}
