package lab

import (
	"context"
	"encoding/json"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const someModules = `kernel/fs/ext4/ext4.ko: kernel/lib/crc16.ko kernel/fs/mbcache.ko kernel/fs/jbd2/jbd2.ko
kernel/fs/jbd2/jbd2.ko: kernel/lib/crc32c.ko
kernel/fs/mbcache.ko:
kernel/lib/crc16.ko:
kernel/lib/crc32c.ko:
kernel/drivers/nvme/host/nvme.ko.xz: kernel/drivers/nvme/host/nvme-core.ko.xz
kernel/drivers/nvme/host/nvme-core.ko.xz:
kernel/sound/unused-module.ko:
`

func TestLoadOrder(t *testing.T) {
	order, err := loadOrder(someModules, "kernel/drivers/virtio/virtio-pci.ko\n", []string{"virtio_pci", "ext4", "nvme", "jbd2"})
	must(t, err)
	if len(order) != 7 {
		t.Errorf("the order is %q", order)
	}
	before := func(first, then string) {
		t.Helper()
		at := func(name string) int {
			return slices.IndexFunc(order, func(file string) bool { return strings.Contains(file, name) })
		}
		if at(first) < 0 || at(first) > at(then) {
			t.Errorf("%s is not before %s in %q", first, then, order)
		}
	}
	before("crc32c.ko", "jbd2.ko")
	before("jbd2.ko", "ext4.ko")
	before("nvme-core.ko", "nvme.ko")
	if _, err := loadOrder(someModules, "", []string{"unused_module"}); err != nil {
		t.Errorf("a name with a hyphen: %v", err)
	}
	if _, err := loadOrder(someModules, "", []string{"virtio"}); err == nil || !strings.Contains(err.Error(), "virtio") {
		t.Errorf("a module that the kernel lacks: %v", err)
	}
}

func TestQemuArgsHaveEachDisk(t *testing.T) {
	for arch := range platforms {
		t.Run(arch, func(t *testing.T) { checkQemuArgs(t, arch) })
	}
}

func checkQemuArgs(t *testing.T, arch string) {
	t.Helper()
	l := testLab(t)
	m := l.hardwareMachine(node{index: 1}, state{Hardware: true, Arch: arch, RootImage: "base.img"})
	line := strings.Join(qemuArgs(m, hardwareKernel{"vmlinuz", "initrd", "modules"}), " ")
	for i, d := range hardwareDisks {
		wanted := []string{"id=" + d.deviceID(), "serial=" + d.disk(), "drive=" + d.disk()}
		if d.pathTo == "" {
			wanted = append(wanted, "filename="+m.disks[i], "node-name="+d.name+",")
		}
		for _, want := range wanted {
			if !strings.Contains(line, want) {
				t.Errorf("the command line lacks %s", want)
			}
		}
	}
	if !strings.Contains(line, "console="+platforms[arch].console+" ") {
		t.Errorf("the kernel gets another console: %s", line)
	}
	if strings.Contains(line, "lab_share") || !strings.Contains(line, "lab_hardware=1") {
		t.Errorf("init gets the wrong words: %s", line)
	}
}

// fakeMonitor answers each command of QMP, and records it. After device_del it sends another event, and then that the device is gone.
func fakeMonitor(t *testing.T, socket string) (commands chan string) {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "unix", socket)
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	commands = make(chan string, 10)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		decoder, encoder := json.NewDecoder(conn), json.NewEncoder(conn)
		send := func(message map[string]any) { _ = encoder.Encode(message) }
		send(map[string]any{"QMP": map[string]any{"version": "7.2"}})
		for {
			var request struct {
				Execute   string
				Arguments map[string]any
			}
			if decoder.Decode(&request) != nil {
				return
			}
			commands <- request.Execute
			switch request.Execute {
			case "device_del":
				send(map[string]any{"event": "DEVICE_DELETED", "data": map[string]any{"path": "/machine"}})
				send(map[string]any{"return": map[string]any{}})
				send(map[string]any{"event": "DEVICE_DELETED", "data": map[string]any{"device": request.Arguments["id"]}})
			case "device_add":
				send(map[string]any{"error": map[string]any{"class": "GenericError", "desc": "slot 1 is in use"}})
			default:
				send(map[string]any{"return": map[string]any{}})
			}
		}
	}()
	return commands
}

func TestMonitor(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "qmp.sock")
	commands := fakeMonitor(t, socket)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m, err := openMonitor(ctx, socket)
	must(t, err)
	defer func() { must(t, m.Close()) }()
	d, err := findHardwareDisk("nvme-a")
	must(t, err)
	must(t, pullDisk(m, d))
	if err := returnDisk(m, d); err == nil || !strings.Contains(err.Error(), "slot 1 is in use") {
		t.Errorf("a command that fails: %v", err)
	}
	must(t, failDisk(m, d))
	must(t, repairDisk(m, d))
	for _, want := range []string{"qmp_capabilities", "device_del", "device_add", "blockdev-add", "blockdev-reopen", "blockdev-reopen", "blockdev-del", "object-del"} {
		if got := <-commands; got != want {
			t.Errorf("the command is %s, want %s", got, want)
		}
	}
}

func TestFindHardwareDisk(t *testing.T) {
	if _, err := findHardwareDisk("sdz"); err == nil || !strings.Contains(err.Error(), "it has nvme-a") {
		t.Errorf("an unknown disk: %v", err)
	}
	testLab := testLab(t)
	if err := testLab.ActOnDisk(t.Context(), "drop", "node-1", "nvme-a"); err == nil || !strings.Contains(err.Error(), "block, fail, pull, repair, return, slow") {
		t.Errorf("an unknown action: %v", err)
	}
}
