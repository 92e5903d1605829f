// Package lvmcmd builds the argument vectors of lvm commands (args.go, argsthin.go, prepareargs.go), combines them into the
// steps of a plan (steps.go), writes this driver's own lvm.conf (config.go), and runs lvm (run.go). instance.go makes sure
// that one driver works on a node, and that the next one waits for commands that an earlier one left running.
//
// Caveats:
//   - Each command names its devices (--devices), and each target is a group and a volume: no command acts on a pattern.
//   - A command that changes or removes a volume carries a selection (-S) with the UUID and the tags that the plan saw, so
//     LVM leaves alone what somebody else changed meanwhile. Its exit status is 0 in that case.
package lvmcmd
