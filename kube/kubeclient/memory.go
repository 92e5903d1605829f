package kubeclient

import (
	"runtime/debug"
	"time"

	"k8s.io/client-go/tools/cache"
)

// returnAfter is the number of objects in a list from which the process returns memory to the kernel, and listDropped the time
// after which the reflector has dropped the list.
const (
	returnAfter = 1000
	listDropped = time.Second
)

// memoryReturner returns memory to the kernel after a long list. A list of all claims of a large cluster leaves garbage of many times the
// driver's memory, which the Go runtime would keep for minutes.
type memoryReturner struct{ cache.TransformingStore }

func (s memoryReturner) Replace(list []any, version string) error {
	err := s.TransformingStore.Replace(list, version)
	if len(list) >= returnAfter {
		time.AfterFunc(listDropped, debug.FreeOSMemory)
	}
	return err
}
