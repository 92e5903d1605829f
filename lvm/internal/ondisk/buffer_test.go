package ondisk

import (
	"testing"
	"unsafe"
)

// TestBuffer: what a reading took from a buffer is aligned, and no later take overwrites it.
func TestBuffer(t *testing.T) {
	b := &buffer{}
	for round := range byte(3) {
		var taken [][]byte
		for i, size := range []int{headSize, blockAlign, 20 * blockAlign, headSize} {
			p := b.take(size)
			if uintptr(unsafe.Pointer(&p[0]))%blockAlign != 0 || len(p) != size || cap(p) != size {
				t.Fatalf("round %d: %d of %d bytes at %p", round, len(p), size, &p[0])
			}
			for j := range p {
				p[j] = byte(i)
			}
			taken = append(taken, p)
		}
		for i, p := range taken {
			for _, is := range p {
				if is != byte(i) {
					t.Fatalf("round %d: take %d was overwritten by take %d", round, i, is)
				}
			}
		}
		b.release()
	}
}
