package ondisk

import (
	"sync"
	"unsafe"
)

// buffer has what was read from one device, aligned for O_DIRECT. Readings share buffers, because each would leave some hundred KiB of garbage:
// nothing may keep what is in one, only copies.
type buffer struct {
	all  []byte
	used int
}

// maxKept limits the buffers that later readings use again: a text can have 32 MiB.
const maxKept = 1 << 20

var buffers = sync.Pool{New: func() any { return &buffer{} }}

// take returns size bytes that are the caller's until release. Without a buffer they are for ever.
func (b *buffer) take(size int) []byte {
	if b == nil {
		return alignedMemory(size)
	}
	if b.used+size > len(b.all) {
		b.all, b.used = alignedMemory(max(size, 2*headSize, 2*len(b.all))), 0 // whoever has a part of the former memory keeps it
	}
	b.used += size
	return b.all[b.used-size : b.used : b.used]
}

// release ends the use of all that take returned.
func (b *buffer) release() {
	if b.used = 0; len(b.all) <= maxKept {
		buffers.Put(b)
	}
}

func alignedMemory(size int) []byte {
	memory := make([]byte, size+blockAlign)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(memory))) % blockAlign)
	return memory[skip : skip+size : skip+size]
}
