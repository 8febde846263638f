package cluster

// ExitCode returns with what code the program ended: -1 if it runs, never ran, or was ended by a signal.
func (p *Process) ExitCode() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.command == nil {
		return -1
	}
	select {
	case <-p.exited:
		return p.command.ProcessState.ExitCode()
	default:
		return -1
	}
}
