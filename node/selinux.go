package node

import "strings"

// droppedContext returns the SELinux option among the options of a mount that its super options, as in mountinfo, lack; "" if there is
// none. mount(8) leaves these options out where it takes SELinux for disabled: without /etc/selinux/config, or without a writable
// selinuxfs (is_selinux_enabled(3)). Then a pod could not read its volume. The kernel shows "seclabel" for file systems in which each file
// has its own label, and only while SELinux has a policy.
func droppedContext(options []string, super string) string {
	if !hasOption(super, "seclabel") {
		return ""
	}
	for _, option := range splitMountOptions(options) {
		switch name, _, _ := strings.Cut(option, "="); name {
		case "context", "fscontext", "defcontext", "rootcontext":
			if !strings.Contains(","+super, ","+name+"=") {
				return option
			}
		}
	}
	return ""
}
