package lvmcmd

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
)

// WriteConfig writes the driver's lvm.conf and creates the folders that it names. It takes only the lock directory from the
// host's LVM, so that both exclude each other, and nothing else of the host's configuration.
func WriteConfig(cfg lvm.Config) error {
	for _, dir := range []string{cfg.SystemDir, cfg.LockDir, cfg.BackupDir} {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("cannot create a directory for LVM: %w", err)
		}
	}
	devices, err := os.ReadFile("/proc/devices")
	if err != nil {
		return fmt.Errorf("cannot read the kernel's list of block device drivers: %w", err)
	}
	path := filepath.Join(cfg.SystemDir, "lvm.conf")
	if err := os.WriteFile(path, []byte(lvmConf(cfg, blockTypes(string(devices)))), 0o600); err != nil {
		return fmt.Errorf("cannot write LVM's configuration: %w", err)
	}
	return nil
}

// lvmConf renders lvm.conf(5).
//
//   - use_aio=0: the end of an AIO context takes 30 ms and more a command; nothing else disables it.
//   - udev: a container cannot take part in udev's handshake (udev_sync=0), so lvm creates the nodes that it needs
//     (verify_udev_operations=1), in the driver's directory (dir); disks are in the host's (scan). On the host, udev
//     creates and removes the names (udev_rules=1), as for any other volume.
//   - no devices file, no hints: each command that writes names its disks (--devices).
//   - reserved_memory: before it suspends a device, lvm would touch and lock 8 MiB page by page, a third of an lvextend's
//     time, in case the device carries swap or the root file system; a managed volume carries neither.
//   - thin_check_options: after a failed commit, a flag in a thin pool's metadata keeps the pool read-only. LVM runs thin_check before it
//     activates a pool; with this option, which some distributions leave out, thin_check clears the flag of metadata that it finds sound
//     (thin_check(8)).
//   - types: LVM accepts only disks of drivers that it knows by name, and a container cannot see what the host's
//     configuration adds; so this names each driver of the kernel.
func lvmConf(cfg lvm.Config, types []string) string {
	quote := func(s string) string { return strconv.Quote(s) }
	backup := "backup = 0"
	if cfg.BackupDir != "" {
		backup = "backup = 1\n\tbackup_dir = " + quote(cfg.BackupDir)
	}
	locking := ""
	if cfg.LockDir != "" {
		locking = "locking_dir = " + quote(cfg.LockDir)
	}
	kinds := ""
	if len(types) > 0 { // lvm refuses an empty list
		list := make([]string, 0, len(types))
		for _, t := range types {
			list = append(list, quote(t)+", 16")
		}
		kinds = "types = [ " + strings.Join(list, ", ") + " ]"
	}
	return fmt.Sprintf(`# Written by nodelvm at each start; changes are lost.
devices {
	dir = %s
	scan = [ "/dev" ]
	obtain_device_list_from_udev = 0
	external_device_info_source = "none"
	use_devicesfile = 0
	hints = "none"
	scan_lvs = 0
	issue_discards = 0
	%s
}
global {
	use_aio = 0
	use_lvmpolld = 0
	notify_dbus = 0
	event_activation = 0
	thin_check_options = [ "-q", "--clear-needs-check-flag" ]
	%s
}
activation {
	udev_sync = 0
	udev_rules = 1
	verify_udev_operations = 1
	monitoring = 0
	auto_set_activation_skip = 0
	error_when_full = 1
	retry_deactivation = 1
	reserved_memory = 0
	reserved_stack = 0
}
backup {
	%s
	archive = 0
}
`, quote(dm.DeviceDirOf(cfg).Path), kinds, locking, backup)
}

// notDisks are block drivers whose devices LVM must not open: removable media, and device-mapper, which it knows.
var notDisks = map[string]bool{"fd": true, "sr": true, "pktcdvd": true, "mtdblock": true, "device-mapper": true}

// blockTypes reads the names of block drivers from /proc/devices.
func blockTypes(devices string) []string {
	var types []string
	seen := map[string]bool{}
	block := false
	for line := range strings.Lines(devices) {
		line = strings.TrimSpace(line)
		if strings.HasSuffix(line, "devices:") {
			block = strings.HasPrefix(line, "Block")
			continue
		}
		_, name, ok := strings.Cut(line, " ")
		if !block || !ok || seen[name] || notDisks[name] {
			continue
		}
		seen[name] = true
		types = append(types, name)
	}
	return types
}
