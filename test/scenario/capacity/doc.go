// Package capacity has scenarios of capacity and placement:
//
//	freshness.go        nodes publish their capacity in time, and exact to the extent
//	burst.go            many pods start at once where just enough capacity is free
//	podclaims_pairs.go  the driver creates all volumes of a pod on one node, or none
//
// On each node, a logical volume that is not the driver's takes the extents that must not be free. Each scenario removes it at its end, also after
// a failure: later scenarios need the extents.
package capacity
