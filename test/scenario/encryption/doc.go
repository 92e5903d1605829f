// Package encryption has the life of encrypted volumes: databases, expansion, copies, new, lost and wrong keys, a reboot, deletion.
//
// During all of it a process on the node searches processes and files for the keys (scan.go). The first scenario plants a key that the search
// must find, and the last one fails if it has found another.
package encryption
