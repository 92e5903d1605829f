package kubeclient

import (
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// retained returns the bytes of memory that the Go runtime keeps although nothing uses it.
func retained() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapIdle - m.HeapReleased
}

func TestMemoryOfALongListReturnsToTheKernel(t *testing.T) {
	const garbage, few = 128 << 20, 16 << 20
	store := memoryReturner{&FilteredStore[string]{
		Key:     func(o any) (string, bool) { return o.(*corev1.PersistentVolumeClaim).Name, true },
		Keep:    func(any) (string, bool) { return "", false },
		Changed: func(string, []string) {},
	}}
	list := make([]any, returnAfter)
	for i := range list {
		list[i] = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim"}}
	}
	large := make([][]byte, garbage>>20)
	for i := range large {
		large[i] = make([]byte, 1<<20)
		large[i][0] = 1
	}
	runtime.KeepAlive(large)
	clear(large)
	runtime.GC()
	if before := retained(); before < garbage/2 {
		t.Fatalf("the runtime retains %d MiB before the list; the test needs more", before>>20)
	}
	if err := store.Replace(list, ""); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(wait.Limit(time.Minute)); retained() > few; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the runtime still retains %d MiB a minute after the list", retained()>>20)
		}
	}
}
