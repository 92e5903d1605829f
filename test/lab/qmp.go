package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"
)

// monitor is a connection to the monitor of a node's qemu (QEMU Machine Protocol). qemu serves one at a time.
type monitor struct {
	conn    net.Conn
	decoder *json.Decoder
	gone    map[string]bool // the devices that qemu has reported as removed
}

// message is what qemu sends: an event, or the answer to a command.
type message struct {
	Event  string          `json:"event"`
	Data   json.RawMessage `json:"data"`
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Description string `json:"desc"`
	} `json:"error"`
}

// openMonitor connects to the monitor with this socket. The connection ends with ctx.
func openMonitor(ctx context.Context, socket string) (*monitor, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	if deadline, limited := ctx.Deadline(); limited {
		if err := conn.SetDeadline(deadline); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	m := &monitor{conn: conn, decoder: json.NewDecoder(conn), gone: map[string]bool{}}
	var greeting message
	if err := m.decoder.Decode(&greeting); err != nil {
		return nil, errors.Join(fmt.Errorf("the greeting of %s: %w", socket, err), conn.Close())
	}
	if err := m.run("qmp_capabilities", nil); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return m, nil
}

func (m *monitor) Close() error { return m.conn.Close() }

// run runs a command and waits for its answer.
func (m *monitor) run(command string, arguments any) error {
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	if err := json.NewEncoder(m.conn).Encode(request); err != nil {
		return fmt.Errorf("qemu: %s: %w", command, err)
	}
	for {
		answer, err := m.next()
		switch {
		case err != nil:
			return fmt.Errorf("qemu: %s: %w", command, err)
		case answer.Error != nil:
			return fmt.Errorf("qemu: %s: %s", command, answer.Error.Description)
		case answer.Return != nil:
			return nil
		}
	}
}

// next reads one message, and remembers which device an event reports as removed.
func (m *monitor) next() (message, error) {
	var next message
	if err := m.decoder.Decode(&next); err != nil {
		return message{}, err
	}
	if next.Event == "DEVICE_DELETED" {
		var data struct{ Device string }
		if err := json.Unmarshal(next.Data, &data); err != nil {
			return message{}, err
		}
		m.gone[data.Device] = true
	}
	return next, nil
}

// awaitRemoval waits until qemu has removed the device, which it does when the node has released it.
func (m *monitor) awaitRemoval(device string) error {
	for !m.gone[device] {
		if _, err := m.next(); err != nil {
			return fmt.Errorf("wait until the node releases %s: %w", device, err)
		}
	}
	return nil
}

// monitorLimit is generous: a node takes five seconds for a removal, and much longer on a busy machine.
const monitorLimit = 10 * time.Minute

// onMonitor calls f with the monitor of a node on emulated hardware.
func (l *Lab) onMonitor(ctx context.Context, name string, f func(*monitor) error) error {
	n, err := l.node(name)
	if err != nil {
		return err
	}
	st, err := l.loadState()
	if err != nil {
		return err
	}
	if !st.Hardware {
		return fmt.Errorf("%s is no node on emulated hardware: raise the lab with `lab up --hardware`", name)
	}
	ctx, cancel := context.WithTimeout(ctx, monitorLimit)
	defer cancel()
	m, err := openMonitor(ctx, l.machineOf(n, st).monitor)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return errors.Join(f(m), m.Close())
}
