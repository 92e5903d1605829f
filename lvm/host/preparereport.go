package host

import (
	"fmt"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// PrepareReport tells what Prepare did, or would do.
type PrepareReport struct {
	Devices []DeviceReport // by path
	Groups  []GroupReport  // as they were declared
}

// DeviceReport tells about one device of the node.
type DeviceReport struct {
	Path string
	Size lvm.Bytes
	Text string // what was done with it, or why it was left alone
}

// GroupReport tells about one declared group.
type GroupReport struct {
	Name    string
	Text    string // what was done, or how it stands; empty if Err is set
	Changed bool   // something was done, or would be
	Err     error  // why it is not as it was declared
}

// String writes a line for each device and each group.
func (r PrepareReport) String() string {
	var b strings.Builder
	for _, d := range r.Devices {
		fmt.Fprintf(&b, "%s (%s): %s\n", d.Path, d.Size, d.Text)
	}
	for _, g := range r.Groups {
		text := g.Text
		if g.Err != nil {
			text = "ERROR: " + g.Err.Error()
		}
		fmt.Fprintf(&b, "volume group %s: %s\n", g.Name, text)
	}
	return b.String()
}

// Failed lists the groups that are not as they were declared.
func (r PrepareReport) Failed() (failed []GroupReport) {
	for _, g := range r.Groups {
		if g.Err != nil {
			failed = append(failed, g)
		}
	}
	return failed
}

// deviceCount words a number of devices.
func deviceCount(n int) string {
	if n == 1 {
		return "1 device"
	}
	return fmt.Sprintf("%d devices", n)
}
