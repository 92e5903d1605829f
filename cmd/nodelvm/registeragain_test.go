package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// TestRegisterAgain: the socket appears again under its name, which makes the kubelet register the driver, and still accepts connections.
func TestRegisterAgain(t *testing.T) {
	dir := t.TempDir()
	d := &driver{o: &options{kubeletDir: dir}}
	if d.registerAgain() != nil {
		t.Error("a driver that does not register can register again")
	}
	d.o.register = true
	socket := registrySocket(dir)
	must(t, os.MkdirAll(filepath.Dir(socket), 0o750))
	if d.registerAgain()() == nil {
		t.Error("without a socket: no error")
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	must(t, err)
	defer func() { _ = listener.Close() }()
	must(t, d.registerAgain()())
	connection, err := (&net.Dialer{}).DialContext(t.Context(), "unix", socket)
	must(t, err)
	_ = connection.Close()
	entries, err := os.ReadDir(filepath.Dir(socket))
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}
