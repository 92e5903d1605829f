package luks

import (
	"bytes"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// memory is a device that counts what is written to it.
type memory struct {
	content []byte
	written lvm.Bytes
}

func (m *memory) ReadAt(p []byte, at int64) (int, error) { return copy(p, m.content[at:]), nil }

func (m *memory) WriteAt(p []byte, at int64) (int, error) {
	m.written += lvm.Bytes(len(p))
	return copy(m.content[at:], p), nil
}

// TestErasureWritesAllChunks: a repeated erasure writes chunks that read as zeroes again, because they may be read from another
// leg of a RAID than the one that failed. On a thin volume it writes only chunks that differ.
func TestErasureWritesAllChunks(t *testing.T) {
	for _, thin := range []bool{false, true} {
		v := Volume{UUID: "v", Thin: thin}
		device := &memory{content: bytes.Repeat([]byte("key"), int(lvm.LUKSHeaderSize)/3+1)[:lvm.LUKSHeaderSize]}
		for round, want := range []lvm.Bytes{lvm.LUKSHeaderSize, map[bool]lvm.Bytes{false: lvm.LUKSHeaderSize, true: 0}[thin]} {
			device.written = 0
			must(t, overwriteSlots(device, v))
			if device.written != want {
				t.Errorf("thin %v, round %d: it wrote %s, want %s", thin, round, device.written, want)
			}
		}
		erased := make([]byte, lvm.LUKSHeaderSize)
		copy(erased[stateMarkOffset:], encodeMark(MarkErased, v.UUID))
		if !bytes.Equal(device.content, erased) {
			t.Errorf("thin %v: the header is not the state mark and zeroes", thin)
		}
	}
}
