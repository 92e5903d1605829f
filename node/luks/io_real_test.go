//go:build realfs

package luks

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

// ioSpan is the size in bytes of the area that the benchmark uses: it fits next to the pool of this package's tests.
const ioSpan = 128 << 20

// ioDepth is the number of concurrent requests.
const ioDepth = 8

// BenchmarkRealIO measures direct I/O on one logical volume: unencrypted, and encrypted with and without the kernel's work queues.
// docs/explanation/performance.md has the ratios.
func BenchmarkRealIO(b *testing.B) {
	path, err := ioVolume(b)
	must(b, err)
	secret, err := ParseSecret(map[string]string{FieldKey: "0123456789abcdefGHIJKLMNOPqrstuv"})
	must(b, err)
	for _, way := range []struct {
		name      string
		encrypted bool
		options   []string // of cryptsetup open
	}{
		{"plain", false, nil}, {"encrypted", true, nil}, {"no_read_workqueue", true, []string{"--perf-no_read_workqueue"}},
		{"no_write_workqueue", true, []string{"--perf-no_write_workqueue"}},
		{"no_workqueues", true, []string{"--perf-no_read_workqueue", "--perf-no_write_workqueue"}},
	} {
		b.Run(way.name, func(b *testing.B) {
			device, from := path, int64(lvm.LUKSHeaderSize+lvm.MiB) // keep the header
			if way.encrypted {
				from = 0
				v, m := NewVolume("group-uuid/io", "io", path), New(nil)
				m.machine = linux{runCommand: func(cmd *exec.Cmd) error {
					if cmd.Args[1] == "open" {
						cmd.Args = slices.Insert(cmd.Args, 2, way.options...)
					}
					return cmd.Run()
				}}
				device, err = m.Stage(b.Context(), Request{Volume: v, Keys: secret, Blank: func(context.Context) error { return nil }})
				must(b, err)
				defer func() {
					if err := m.Unstage(context.Background(), v.Handle); err != nil {
						b.Error(err)
					}
				}()
			}
			for _, size := range []int{4 << 10, 1 << 20} {
				for _, write := range []bool{false, true} {
					b.Run(fmt.Sprintf("%s-%dKiB", map[bool]string{false: "read", true: "write"}[write], size>>10), func(b *testing.B) { directIO(b, device, from, size, write) })
				}
			}
		})
	}
}

func ioVolume(b *testing.B) (string, error) {
	disk := strings.Split(os.Getenv("NODELVM_TEST_DISKS"), ",")[0]
	if err := shell("lvcreate -qq -y -L 192m -n io " + group + " " + disk); err != nil {
		return "", err
	}
	b.Cleanup(func() {
		if err := shell("lvremove -qq -y " + group + "/io"); err != nil {
			b.Error(err)
		}
	})
	return filepath.EvalSymlinks("/dev/" + group + "/io")
}

// directIO reads or writes at random offsets, without the page cache.
func directIO(b *testing.B, device string, from int64, size int, write bool) {
	b.Helper()
	file, err := os.OpenFile(device, os.O_RDWR|unix.O_DIRECT, 0)
	must(b, err)
	defer func() { _ = file.Close() }()
	b.SetBytes(int64(size))
	work := make(chan int64, ioDepth)
	var wg sync.WaitGroup
	for range ioDepth {
		wg.Go(func() {
			block := alignedBlock(size)
			for at := range work {
				var err error
				if write {
					_, err = file.WriteAt(block, at)
				} else {
					_, err = file.ReadAt(block, at)
				}
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	b.ResetTimer()
	for range b.N {
		work <- from + rand.Int64N(ioSpan/int64(size))*int64(size)
	}
	close(work)
	wg.Wait()
}

// alignedBlock returns memory that is aligned for O_DIRECT.
func alignedBlock(size int) []byte {
	const page = 4096
	memory := make([]byte, size+page)
	skip := (page - int(uintptr(unsafe.Pointer(&memory[0]))%page)) % page
	return memory[skip : skip+size]
}
