package node

import (
	"fmt"
	"os"
)

// ReadAt implements Filesystem.
func (m machine) ReadAt(device string, offset int64, bytes int) ([]byte, error) {
	f, err := os.Open(device)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data := make([]byte, bytes)
	if _, err := f.ReadAt(data, offset); err != nil {
		return nil, fmt.Errorf("cannot read %d bytes of %s from %d: %w", bytes, device, offset, err)
	}
	return data, nil
}
