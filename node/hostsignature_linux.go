package node

import (
	"fmt"
	"io"
	"os"
)

// Head implements Filesystem.
func (m machine) Head(device string, bytes int) ([]byte, error) {
	f, err := os.Open(device)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	head := make([]byte, bytes)
	if _, err := io.ReadFull(f, head); err != nil {
		return nil, fmt.Errorf("read the beginning of %s: %w", device, err)
	}
	return head, nil
}
