// Package health tests on a fake node what a driver reports of its groups: conditions, the scope of its checks, and the inventory. None of
// them runs an LVM command.
package health
