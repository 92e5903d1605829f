package lab

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// detached is the end of the name of a disk's file while it is not attached.
const detached = ".detached"

// AttachDisk attaches a disk to a running node: "ubdd" is its /dev/ubdd. A new one is blank; one that was detached has its content. It is also there when the
// node boots again.
func (l *Lab) AttachDisk(node, disk string, size int64) error {
	n, err := l.node(node)
	if err != nil {
		return err
	}
	file := filepath.Join(l.nodeDir(n), disk+".img")
	err = os.Rename(file+detached, file)
	if errors.Is(err, fs.ErrNotExist) {
		err = createSparse(file, size)
	}
	if err != nil {
		return err
	}
	return l.configureKernel(n, "config "+disk+"="+file)
}

// DetachDisk takes a disk of AttachDisk out of a running node. It fails while a program of the node has it open.
func (l *Lab) DetachDisk(node, disk string) error {
	n, err := l.node(node)
	if err != nil {
		return err
	}
	if err := l.configureKernel(n, "remove "+disk); err != nil {
		return err
	}
	file := filepath.Join(l.nodeDir(n), disk+".img")
	return os.Rename(file, file+detached)
}

// attachedDisks returns the words of the kernel's command line for the disks of AttachDisk.
func (l *Lab) attachedDisks(n node) (words []string) {
	files, _ := filepath.Glob(filepath.Join(l.nodeDir(n), "ubd?.img")) // it fails for a wrong pattern alone
	for _, file := range files {
		words = append(words, strings.TrimSuffix(filepath.Base(file), ".img")+"="+file)
	}
	return words
}

// configureKernel sends a command to the management console of a node's kernel (arch/um/drivers/mconsole.h): a magic number, the version and the length are
// before the text of a request; an error, and two other numbers, before that of an answer.
func (l *Lab) configureKernel(n node, command string) error {
	dir := filepath.Join(l.dir, "uml", n.name())
	own := filepath.Join(dir, "answer")
	if err := os.RemoveAll(own); err != nil {
		return err
	}
	console, err := net.DialUnix("unixgram", &net.UnixAddr{Name: own, Net: "unixgram"}, &net.UnixAddr{Name: filepath.Join(dir, "mconsole"), Net: "unixgram"})
	if err != nil {
		return err
	}
	defer func() { _ = console.Close() }()
	if err := console.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	message := make([]byte, 12+512)
	for i, word := range []uint32{0xcafebabe, 2, uint32(len(command))} {
		binary.NativeEndian.PutUint32(message[4*i:], word)
	}
	copy(message[12:], command)
	if _, err := console.Write(message); err != nil {
		return err
	}
	if _, err := console.Read(message); err != nil {
		return fmt.Errorf("%s of %s: %w", command, n.name(), err)
	}
	if failed := binary.NativeEndian.Uint32(message); failed != 0 {
		said, _, _ := bytes.Cut(message[12:], []byte{0})
		return fmt.Errorf("%s of %s: %s", command, n.name(), said)
	}
	return nil
}
