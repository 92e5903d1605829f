// Package restart has scenarios of a node that stops and boots with its volumes. powercuts.go and workload.go cut its power at random moments,
// while a database writes and volumes come and go. reboot.go shuts it down with a volume of every layout.
//
// After each boot the node must hold everything that the driver has reported, without help. The scenario boots the node also after a failure:
// later scenarios need it.
package restart
