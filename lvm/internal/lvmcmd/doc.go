// Package lvmcmd builds the argument vectors of lvm commands (args.go, argsthin.go, prepareargs.go), combines them into the
// steps of a plan (steps.go), writes the driver's lvm.conf (config.go), and runs lvm (run.go). The locks in
// instance.go permit one driver on a node, and make it wait for commands that the previous driver left running.
//
// Caveats:
//
//   - Each command names its devices (--devices), and each target is a group and a volume: no command acts on a pattern.
//   - A command that changes or removes a volume has a selection (-S) with the UUID and the tags of the plan, so LVM
//     ignores a volume that another process has changed. Its exit status is 0 in that case.
package lvmcmd
