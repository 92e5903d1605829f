// Package prepare tests on real LVM (build tag reallvm) how a driver creates volume groups from blank disks. It writes to no disk that may hold
// data, reports the reason, and completes what a killed driver began.
package prepare
