//go:build reallvm

package reallvm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// edits change a group's metadata to make the group unusable.
var edits = map[string][2]string{
	"exported":  {`status = ["RESIZEABLE"`, `status = ["EXPORTED", "RESIZEABLE"`},
	"foreign":   {`	format = "lvm2"`, `	system_id = "elsewhere"` + "\n" + `	format = "lvm2"`},
	"read-only": {`status = ["RESIZEABLE", "READ", "WRITE"]`, `status = ["RESIZEABLE", "READ"]`},
	"clustered": {`status = ["RESIZEABLE"`, `status = ["CLUSTERED", "RESIZEABLE"`},
	"fixed":     {`status = ["RESIZEABLE", `, `status = [`},
}

// spoil restores the first MiB of each disk in the end.
func spoil(t testing.TB, how string) (restore func()) {
	t.Helper()
	heads := make([][]byte, len(loops))
	for i, disk := range loops {
		heads[i] = make([]byte, lvm.MiB)
		f, err := os.Open(disk)
		hosttest.Must(t, err)
		_, err = f.Read(heads[i])
		hosttest.Must(t, err)
		hosttest.Must(t, f.Close())
	}
	last := len(loops) - 1
	switch how {
	case "partial":
		Overwrite(t, loops[last], make([]byte, 4096))
	case "duplicated":
		double := MakeDisk(t, "double", Sizes[last])
		Overwrite(t, double, heads[last])
		return func() { Detach(t, double) }
	default:
		file := filepath.Join(t.TempDir(), "metadata")
		Admin(t, "vgcfgbackup", "-f", file, Group)
		text, err := os.ReadFile(file)
		hosttest.Must(t, err)
		edited := strings.Replace(string(text), edits[how][0], edits[how][1], 1)
		if edited == string(text) {
			t.Fatalf("no %s in %s", edits[how][0], text)
		}
		hosttest.Must(t, os.WriteFile(file, []byte(edited), 0o600))
		Admin(t, "vgcfgrestore", "-y", "-f", file, Group)
	}
	return func() {
		for i, disk := range loops {
			Overwrite(t, disk, heads[i])
		}
	}
}
