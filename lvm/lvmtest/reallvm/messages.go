//go:build reallvm

package reallvm

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
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// leaveMessage writes a message into a group's metadata, after the default thin pool's other ones. The message count stays, so
// that the pool takes the message for one that it has counted.
func leaveMessage(t testing.TB, group, message string) {
	t.Helper()
	what, which, _ := strings.Cut(message, " ")
	if what == "create" {
		which = strconv.Quote(which)
	}
	Admin(t, "vgchange", "-an", group)
	file := filepath.Join(t.TempDir(), "metadata")
	Admin(t, "vgcfgbackup", "-f", file, group)
	text, err := os.ReadFile(file)
	hosttest.Must(t, err)
	end := "zero_new_blocks = 1\n"
	edited := strings.Replace(string(text), end, end+"message1 {\n"+what+" = "+which+"\n}\n", 1)
	if edited == string(text) {
		t.Fatalf("no %s in %s", end, text)
	}
	hosttest.Must(t, os.WriteFile(file, []byte(edited), 0o600))
	Admin(t, "vgcfgrestore", "-y", "--force", "-f", file, group)
}

var numbers = regexp.MustCompile(`[0-9]+`)

// LostDevices compares the devices of a group's default thin pool with LVM's volumes, and lists the numbers that only one of
// the two has.
func LostDevices(t testing.TB, group string) []int {
	t.Helper()
	pool := group + "/" + lvm.DefaultPool
	switch Admin(t, "lvs", "--noheadings", "-o", "transaction_id", "-S", "lv_name="+lvm.DefaultPool, group) {
	case "", "0": // no pool, or one that never got a message
		return nil
	}
	Admin(t, "lvchange", "-ay", pool)
	defer Admin(t, "lvchange", "-an", pool) // its volumes keep the pool active
	name := strings.ReplaceAll(group, "-", "--") + "-" + strings.ReplaceAll(lvm.DefaultPool, "-", "--")
	release := []string{"message", name + "-tpool", "0", "release_metadata_snap"}
	_ = exec.CommandContext(t.Context(), "dmsetup", release...).Run() // left by a check that a power cut interrupted
	Tool(t, "dmsetup", "message", name+"-tpool", "0", "reserve_metadata_snap")
	defer Tool(t, "dmsetup", release...)
	differ := map[string]bool{}
	for _, knows := range []string{
		Tool(t, "thin_ls", "--metadata-snap", "--no-headers", "--format", "DEV", Mapped(t, name+"_tmeta")),
		Admin(t, "lvs", "--noheadings", "-o", "thin_id", "-S", "pool_lv="+lvm.DefaultPool, group),
	} {
		for _, number := range numbers.FindAllString(knows, -1) {
			differ[number] = !differ[number]
		}
	}
	var lost []int
	for number, is := range differ {
		if is {
			n, err := strconv.Atoi(number)
			hosttest.Must(t, err)
			lost = append(lost, n)
		}
	}
	slices.Sort(lost)
	return lost
}
