// Package capacity compares what a driver reports as capacity with what real LVM can create (build tag reallvm), on random groups with random
// free extents.
package capacity
