package lab

// Status describes a running lab.
type Status struct {
	Dir       string // the state folder
	Namespace string // the network namespace, for `ip netns exec`
	Processes []ProcessStatus
}

// ProcessStatus is one long-running process of a lab: a part of the control plane or a node.
type ProcessStatus struct {
	Name    string
	PID     int // 0 if it was never started, or its record is gone
	Running bool
}

// Status returns the lab's processes. It fails if no lab is up.
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
