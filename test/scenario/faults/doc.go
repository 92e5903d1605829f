// Package faults plants faults of users, admins and disks, one after the other, and has a command of the plugin explain each within a minute.
//
// A fault is a row of the table in faults.go: how it is planted and repaired, what the user enters, and the words of the explanation that name cause
// and cure. Each is repaired before the next: the commands would report both.
package faults
