//go:build reallvm

package lvmtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// leaveMessage writes a message into a group's metadata, behind the default thin pool's other ones: its count stays, so that
// the pool takes it for one that it has counted.
func leaveMessage(t testing.TB, group, message string) {
	t.Helper()
	what, which, _ := strings.Cut(message, " ")
	if what == "create" {
		which = strconv.Quote(which)
	}
	admin(t, "vgchange", "-an", group)
	file := filepath.Join(t.TempDir(), "metadata")
	admin(t, "vgcfgbackup", "-f", file, group)
	text, err := os.ReadFile(file)
	must(t, err)
	end := "zero_new_blocks = 1\n"
	edited := strings.Replace(string(text), end, end+"message1 {\n"+what+" = "+which+"\n}\n", 1)
	if edited == string(text) {
		t.Fatalf("no %s in %s", end, text)
	}
	must(t, os.WriteFile(file, []byte(edited), 0o600))
	admin(t, "vgcfgrestore", "-y", "--force", "-f", file, group)
}

var numbers = regexp.MustCompile(`[0-9]+`)

// lostDevices asks the default thin pool of a group for its devices, and LVM for its volumes, and lists the numbers of those
// that only one of them knows.
func lostDevices(t testing.TB, group string) []int {
	t.Helper()
	pool := group + "/" + lvm.DefaultPool
	switch admin(t, "lvs", "--noheadings", "-o", "transaction_id", "-S", "lv_name="+lvm.DefaultPool, group) {
	case "", "0": // there is none, or it was never told anything
		return nil
	}
	admin(t, "lvchange", "-ay", pool)
	defer admin(t, "lvchange", "-an", pool) // what stands on the pool keeps it active
	name := strings.ReplaceAll(group, "-", "--") + "-" + strings.ReplaceAll(lvm.DefaultPool, "-", "--")
	release := []string{"message", name + "-tpool", "0", "release_metadata_snap"}
	_ = exec.CommandContext(t.Context(), "dmsetup", release...).Run() // of a look that a power cut has ended
	tool(t, "dmsetup", "message", name+"-tpool", "0", "reserve_metadata_snap")
	defer tool(t, "dmsetup", release...)
	differ := map[string]bool{}
	for _, knows := range []string{
		tool(t, "thin_ls", "--metadata-snap", "--no-headers", "--format", "DEV", mapped(t, name+"_tmeta")),
		admin(t, "lvs", "--noheadings", "-o", "thin_id", "-S", "pool_lv="+lvm.DefaultPool, group),
	} {
		for _, number := range numbers.FindAllString(knows, -1) {
			differ[number] = !differ[number]
		}
	}
	var lost []int
	for number, is := range differ {
		if is {
			n, err := strconv.Atoi(number)
			must(t, err)
			lost = append(lost, n)
		}
	}
	slices.Sort(lost)
	return lost
}
