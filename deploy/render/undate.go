package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"time"
)

// undate writes a tar.gz again with the time of its files at 0: Helm writes the present time.
func undate(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	from, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return err
	}
	var out bytes.Buffer
	to := gzip.NewWriter(&out)
	if err := copyUndated(tar.NewWriter(to), tar.NewReader(from)); err != nil {
		return err
	}
	if err := to.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

func copyUndated(to *tar.Writer, from *tar.Reader) error {
	for {
		header, err := from.Next()
		if errors.Is(err, io.EOF) {
			return to.Close()
		}
		if err != nil {
			return err
		}
		header.ModTime, header.AccessTime, header.ChangeTime, header.Format = time.Unix(0, 0), time.Time{}, time.Time{}, tar.FormatUSTAR
		if err := to.WriteHeader(header); err != nil {
			return err
		}
		if _, err := io.Copy(to, from); err != nil {
			return err
		}
	}
}
