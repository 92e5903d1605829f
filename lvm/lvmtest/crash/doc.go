// Package crash tests on real LVM (build tag reallvm) a driver that is killed, alone or with its lvm. TestCrash_RealLVM starts the test binary
// again as a victim (TestCrashVictim) and kills it where something changes permanently: at the start of a command, a write to a disk, or a
// change of a device, which ptrace(2) shows. Then it starts another driver, repeats the request, and checks the outcome.
//
//	fixture         the group, and what a kill leaves there
//	ops             the operations, and what must be true after each
//	trace, victim   the victim's process, and where it dies (amd64 alone)
//	killed          a driver that is killed at any time, in a PID namespace
package crash
