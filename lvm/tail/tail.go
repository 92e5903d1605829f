// Package tail keeps the end of what a program prints: a program can print without a limit, and the reason for its failure comes last.
package tail

import (
	"io"
	"strings"
)

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

// ReadFrom implements io.ReaderFrom.
func (b *Buffer) ReadFrom(r io.Reader) (int64, error) { return Copy(b, r) }

// Copy is io.Copy with a buffer for a program that prints little. That of io.Copy has 32 KiB, which package os/exec would leave as garbage for
// each process.
func Copy(w io.Writer, r io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, Size)) // without the methods that call Copy
}

// String returns what is kept, without the space around it, and without a character that its beginning cuts.
func (b *Buffer) String() string { return strings.TrimSpace(strings.ToValidUTF8(string(b.kept), "")) }

// Line returns what is kept as one line.
func (b *Buffer) Line() string { return strings.Join(strings.Fields(b.String()), " ") }
