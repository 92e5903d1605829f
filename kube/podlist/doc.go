// Package podlist reads lists of pods one pod at a time, with those of its fields that the caller wants. Tenants write pods, of up to 1.5 MiB each, and a
// namespace may have thousands: a list takes the memory of its largest pod.
package podlist
