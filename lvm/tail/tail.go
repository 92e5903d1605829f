// Package tail keeps the end of what a program prints: a program can print without a limit, and the reason for its failure comes last.
package tail

import "strings"

// Size is how much of a program's messages the driver keeps, in bytes.
const Size = 4 << 10

// Buffer is a writer that keeps the last Size bytes. It never fails. Its zero value is empty.
type Buffer struct{ kept []byte }

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	written := len(p)
	p = p[max(0, len(p)-Size):]
	if over := len(b.kept) + len(p) - Size; over > 0 {
		b.kept = append(b.kept[:0], b.kept[over:]...)
	}
	b.kept = append(b.kept, p...)
	return written, nil
}

// String returns what is kept, without the space around it, and without a character that its beginning cuts.
func (b *Buffer) String() string { return strings.TrimSpace(strings.ToValidUTF8(string(b.kept), "")) }

// Line returns what is kept as one line.
func (b *Buffer) Line() string { return strings.Join(strings.Fields(b.String()), " ") }
