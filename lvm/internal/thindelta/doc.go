// Package thindelta runs thin_delta (thin-provisioning-tools), which compares the mappings of two thin volumes.
package thindelta
