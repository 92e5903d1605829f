package luks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
)

// lock waits a little: systemd-udevd holds the lock while it probes a device.
func (linux) lock(ctx context.Context, device string) (*os.File, error) {
	file, err := os.Open(device)
	if err != nil {
		return nil, lvm.Errorf(lvm.KindInternal, "cannot open the device: %w", err)
	}
	deadline := time.Now().Add(unusedPatience)
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) || time.Now().After(deadline) {
			_ = file.Close()
			return nil, lvm.Errorf(lvm.KindBusy, "another program has locked %s (an earlier cryptsetup that has not ended?); retry: %w", device, err)
		}
		select {
		case <-ctx.Done():
			_ = file.Close()
			return nil, ctx.Err()
		case <-time.After(unusedPause):
		}
	}
}

func (m linux) observe(v Volume) (o Observation, err error) {
	fail := func(err error) (Observation, error) {
		return o, lvm.Errorf(lvm.KindInternal, "cannot read the encryption of %s: %w", v.Device, err)
	}
	file, err := os.Open(v.Device)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = file.Close() }()
	if err := o.readDevice(file, v.UUID); err != nil {
		return fail(err)
	}
	if o.Mapping, err = m.mapping(v.name); err != nil {
		return fail(err)
	}
	if o.Holders, err = holders(o.Number); err != nil {
		return fail(err)
	}
	if o.Mapping.Exists && o.Mapping.Table.Device == dm.FormatNumber(o.Number) {
		o.Holders = slices.DeleteFunc(o.Holders, func(holder string) bool { return holder == v.name })
	}
	return o, nil
}

func (o *Observation) readDevice(file *os.File, uuid string) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return err
	}
	o.Number = stat.Rdev
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if o.Logical, err = unix.IoctlGetInt(int(file.Fd()), unix.BLKSSZGET); err != nil {
		return err
	}
	if o.Size = lvm.Bytes(size); o.Size < lvm.LUKSHeaderSize+lvm.LUKSMinDataSize {
		return nil
	}
	header, format, state := make([]byte, headerBytes), make([]byte, markBlock), make([]byte, markBlock)
	for _, part := range []struct {
		data []byte
		at   lvm.Bytes
	}{{header, 0}, {format, formatMarkOffset}, {state, stateMarkOffset}} {
		if _, err := file.ReadAt(part.data, int64(part.at)); err != nil {
			return err
		}
	}
	o.Header, o.Mark, o.Other = ParseHeader(header), decodeMarks(format, state, uuid), isFormatMark(format)
	return nil
}

// writeMark does not open the device exclusively: the mapping may be on it.
func (linux) writeMark(v Volume, m Mark) error {
	return change(v.Device, openUsed, func(file *os.File) error {
		if err := writeDurably(file, encodeMark(m, v.UUID), m.offset()); err != nil || m != MarkFormatted {
			return err
		}
		// Only the mark itself: otherwise this would zero data of a copy that has just got its UUID.
		block := make([]byte, markBlock)
		if _, err := file.ReadAt(block, int64(formatMarkOffset)); err != nil || decodeMark(block, v.UUID) != MarkFormatting {
			return err
		}
		return writeDurably(file, make([]byte, markBlock), formatMarkOffset)
	})
}

// clearMapping zeroes the places of superblocks: the noise that a new mapping decrypts to could look like a superblock.
func (linux) clearMapping(m Mapping) error {
	return change(m.Path(), dm.OpenUnused, func(file *os.File) error {
		var stat unix.Stat_t
		if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
			return err
		}
		if stat.Rdev != m.Number {
			return fmt.Errorf("it is device %s instead of %s", dm.FormatNumber(stat.Rdev), dm.FormatNumber(m.Number))
		}
		for _, s := range dm.SuperblockSpans(m.Size) {
			if _, err := file.WriteAt(make([]byte, s.Length), int64(s.At)); err != nil {
				return err
			}
		}
		return file.Sync()
	})
}

// eraseChunk divides lvm.LUKSHeaderSize.
const eraseChunk = 256 * lvm.KiB

// destroySlots keeps the state mark. It flushes, drops the page cache, and reads all from the disk.
func (linux) destroySlots(v Volume) error {
	return change(v.Device, dm.OpenUnused, func(file *os.File) error {
		if err := overwriteSlots(file, v); err != nil {
			return err
		}
		if err := file.Sync(); err != nil {
			return err
		}
		if err := unix.IoctlSetInt(int(file.Fd()), unix.BLKFLSBUF, 0); err != nil {
			return fmt.Errorf("cannot drop its page cache: %w", err)
		}
		for at := lvm.Bytes(0); at < lvm.LUKSHeaderSize; at += eraseChunk {
			if differ, err := differsFrom(file, at, erasedChunk(v, at)); err != nil || differ {
				return errors.Join(err, fmt.Errorf("its key slots are not destroyed: byte %d onwards is not what was written", int64(at)))
			}
		}
		return nil
	})
}

// overwriteSlots writes each chunk, also one that reads as zeroes: a leg of a RAID that failed during an earlier erasure may still
// hold it. On a thin volume it writes only what differs, so that zero chunks take no space.
func overwriteSlots(file readerWriterAt, v Volume) error {
	for at := lvm.Bytes(0); at < lvm.LUKSHeaderSize; at += eraseChunk {
		wanted := erasedChunk(v, at)
		if v.Thin {
			if differ, err := differsFrom(file, at, wanted); err == nil && !differ {
				continue
			}
		}
		if _, err := file.WriteAt(wanted, int64(at)); err != nil { // also an unreadable chunk
			return err
		}
	}
	return nil
}

type readerWriterAt interface {
	io.ReaderAt
	io.WriterAt
}

// erasedChunk is a chunk of an erased header: zeroes, and the state mark.
func erasedChunk(v Volume, at lvm.Bytes) []byte {
	chunk := make([]byte, eraseChunk)
	if at == stateMarkOffset {
		copy(chunk, encodeMark(MarkErased, v.UUID))
	}
	return chunk
}

func differsFrom(file io.ReaderAt, at lvm.Bytes, wanted []byte) (bool, error) {
	found := make([]byte, len(wanted))
	_, err := file.ReadAt(found, int64(at))
	return !bytes.Equal(found, wanted), err
}

// openUsed opens a device that a mapping may be on.
func openUsed(path string, flags int) (*os.File, error) { return os.OpenFile(path, flags, 0) }

func change(device string, open func(path string, flags int) (*os.File, error), write func(*os.File) error) error {
	file, err := open(device, os.O_RDWR)
	if errors.Is(err, unix.EBUSY) {
		return lvm.Errorf(lvm.KindInUse, "device %s is in use on this node (see lsblk %s); the driver wrote nothing to it", device, device)
	}
	if err == nil {
		err = errors.Join(write(file), file.Close())
	}
	if err != nil {
		return lvm.Errorf(lvm.KindInternal, "cannot change the encryption on %s: %w", device, err)
	}
	return nil
}

func writeDurably(file *os.File, data []byte, at lvm.Bytes) error {
	if _, err := file.WriteAt(data, int64(at)); err != nil {
		return err
	}
	return file.Sync()
}
