package main

// mutants are the faults, by what goes wrong. The packages have the cheapest tests that find each.
var mutants = []mutant{
	{
		name: "a commit is not flushed", file: "lvm/internal/engine/commit.go",
		old: "e.Machine.Kernel.Sync(paths)", new: "e.Machine.Kernel.Sync(paths[:0])",
		packages: []string{"./lvm/lvmtest/operations", "./lvm/lvmtest/..."},
	},
	{
		name: "one extent too many", file: "lvm/internal/alloc/extents.go",
		old: "Last: h.Start + n - 1}", new: "Last: h.Start + n}",
		packages: []string{"./lvm/internal/alloc", "./lvm/lvmtest"},
	},
	{
		name: "capacity without metadata reserve", file: "lvm/internal/alloc/capacity.go",
		old: "MdaReserve   = 16 * lvm.KiB", new: "MdaReserve   = 0 * lvm.KiB",
		packages: []string{"./lvm/internal/alloc", "./lvm/lvmtest/..."},
	},
	{
		name: "a deleted volume is not wiped", file: "lvm/internal/wipe/erase.go",
		old: "return w.zero(ctx, g, lv, now, turn)", new: "return nil, nil",
		packages: []string{"./lvm/lvmtest/dataleak"},
	},
	{
		name: "a volume in use is deleted", file: "lvm/host/delete.go",
		old: "if err := h.engine.CheckUnused(ctx, g, lv, v, \"deleted\"); err != nil {", new: "if err := h.engine.CheckUnused(ctx, g, lv, v, \"deleted\"); err != nil && false {",
		packages: []string{"./lvm/lvmtest", "./lvm/lvmtest/operations", "./controller"},
	},
	{
		name: "another cluster's volume is deleted", file: "lvm/host/delete.go",
		old: "case v.Cluster != h.engine.Config.Cluster:", new: "case v.Cluster == \"\":",
		packages: []string{"./lvm/lvmtest/identity", "./lvm/lvmtest"},
	},
	{
		name: "a recreated volume is activated", file: "lvm/internal/engine/device.go",
		old: "if v.UUID == uuid {", new: "if uuid != \"\" {",
		packages: []string{"./lvm/lvmtest", "./lvm/lvmtest/identity"},
	},
	{
		name: "a group's lock is not taken", file: "lvm/internal/oplock/locks.go",
		old: "	l.held[key] = &keyLock{}\n", new: "",
		packages: []string{"./lvm/internal/oplock"},
	},
	{
		name: "a checksum is not compared", file: "lvm/internal/ondisk/label.go",
		old: "if lvmChecksum(sector[20:]) != binary.LittleEndian.Uint32(sector[16:]) {", new: "if len(sector) == 0 {",
		packages: []string{"./lvm/internal/ondisk"},
	},
	{
		name: "the device of another volume is sent", file: "move/device.go",
		old: "again != path", new: "again == \"\"",
		packages: []string{"./move"},
	},
	{
		name: "a volume that arrives is another claim's", file: "kube/move/data.go",
		old: "o.Claim, o.Block = of.Claim, of.Block", new: "o.Block = of.Block",
		packages: []string{"./kube/move"},
	},
	{
		name: "foreign content is formatted", file: "node/filesystem/content.go",
		old: "case empty:\n		return ActFormat, checkFormat", new: "case empty || len(c.Others) > 0:\n		return ActFormat, checkFormat",
		packages: []string{"./node/filesystem", "./node"},
	},
	{
		name: "a volume that was in use is formatted", file: "node/filesystem/content.go",
		old: "case o.marked:", new: "case o.marked && device == \"\":",
		packages: []string{"./node/filesystem"},
	},
	{
		name: "a volume is ready without its format mark", file: "lvm/internal/engine/ready.go",
		old: "failure = b.engine.writeFormatMark(ctx, g, v)", new: "failure = nil",
		packages: []string{"./lvm/lvmtest/operations"},
	},
	{
		name: "a mount option is lost", file: "node/stage.go",
		old: `append([]string{"errors=remount-ro"}, v.flags...)`, new: `[]string{"errors=remount-ro"}`,
		packages: []string{"./node"},
	},
	{
		name: "a staged device is not the volume's", file: "node/device.go",
		old: "if err == nil && (!active || now != device) {", new: "if err == nil && (!active || now == \"\") {",
		packages: []string{"./node"},
	},
	{
		name: "no capacity is an internal error", file: "cmd/nodelvm/status.go",
		old: "return codes.ResourceExhausted", new: "return codes.Internal",
		packages: []string{"./cmd/nodelvm"},
	},
	{
		name: "a driver without disks is ready", file: "cmd/nodelvm/health.go",
		old: "	case <-now.done:\n		return now.result", new: "	case <-now.done:\n		return nil",
		packages: []string{"./cmd/nodelvm"},
	},
	{
		name: "an owned volume is deleted", file: "controller/delete.go",
		old: "	return refused\n", new: "	return nil\n",
		packages: []string{"./controller"},
	},
	{
		name: "a pod's peers are forgotten", file: "controller/peers.go",
		old: "s.volumes.CreateWithPeers(ctx, spec, peers)", new: "s.volumes.CreateWithPeers(ctx, spec, peers[:0])",
		packages: []string{"./controller"},
	},
	{
		name: "an event is not written", file: "kube/health.go",
		old: "if err := a.events.Record(ctx, n); err != nil {", new: "if err := ctx.Err(); err != nil {",
		packages: []string{"./kube"},
	},
	{
		name: "a watch event is missed", file: "kube/claims.go",
		old: "func (s *claimStore) Update(o any) error { return s.Add(o) }", new: "func (s *claimStore) Update(any) error { return nil }",
		packages: []string{"./kube"},
	},
	{
		name: "a deleted claim is kept", file: "kube/claims.go",
		old: "		s.disown(key)\n		s.mu.Unlock()", new: "		s.mu.Unlock()",
		packages: []string{"./kube"},
	},
	{
		name: "a node selects another", file: "deploy/chart/nodelvm/templates/noderestriction.yaml", rendered: "deploy/nodelvm.yaml",
		old: "variables.after[?'volume.kubernetes.io/selected-node'].orValue('') == variables.node &&", new: "variables.after[?'volume.kubernetes.io/selected-node'].orValue('') != '' &&",
		module: "deploy/render", packages: []string{"."},
	},
	{
		name: "a node deletes a bound volume", file: "deploy/chart/nodelvm/templates/noderestriction.yaml", rendered: "deploy/nodelvm.yaml",
		old: "oldObject.?status.?phase.orValue('') == 'Released' && oldObject", new: "oldObject",
		module: "deploy/render", packages: []string{"."},
	},
	{
		name: "an alert is dropped", file: "deploy/chart/nodelvm/files/alerts.yaml",
		old: `expr: nodelvm_volume_condition{condition="VolumeDegraded"} == 1`, new: `expr: nodelvm_volume_condition{condition="VolumeDegraded"} == 2`,
		module: "deploy/alerts", packages: []string{"."},
	},
	{
		name: "the pod of a Job is deleted with its claims", file: "kube/nodeloss/pods.go",
		old: `return owner.Kind == "StatefulSet" || !pending.IsBuiltIn(owner)`, new: "return owner != nil",
		packages: []string{"./kube/nodeloss"},
	},
}
