//go:build !linux

package e2e

// terminalTests are those that need a terminal, which is made in another way on every system.
func (p *place) terminalTests() []loginTest { return nil }
