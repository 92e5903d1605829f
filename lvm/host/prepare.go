package host

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm"
)

// Prepare creates or extends the declared groups from devices that are proven blank. It reports for each device of the node
// what it did, or why it ignored the device, and for each group why it cannot prepare the group. KindInvalid: the declarations
// are wrong, and Prepare did nothing. Without changes it starts no process, except for the signatures of selected devices that
// are not blank. It creates pools only on a Host that knows its cluster.
func (h *Host) Prepare(ctx context.Context, p lvm.Preparation) (lvm.PrepareReport, error) {
	return h.preparer.Prepare(ctx, p)
}
