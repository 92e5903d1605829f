package lab

// Status tells what of a lab is running.
type Status struct {
	Dir       string // the state folder
	Namespace string // the network namespace, for `ip netns exec`
	Processes []ProcessStatus
}

// ProcessStatus is one long-running process of a lab: a part of the control
// plane or a node.
type ProcessStatus struct {
	Name    string
	PID     int // 0 if it was never started
	Running bool
}

// Status fails when no lab is up.
func (l *Lab) Status() (Status, error) {
	st, err := l.loadState()
	if err != nil {
		return Status{}, err
	}
	s := Status{Dir: l.dir, Namespace: l.netns}
	for _, name := range l.daemonNames(st) {
		leader, _ := l.recorded(name)
		s.Processes = append(s.Processes, ProcessStatus{Name: name, PID: leader.pid, Running: l.alive(name)})
	}
	return s, nil
}
