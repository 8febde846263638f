//go:build !linux

package active

// releaseProgramPages does nothing.
func releaseProgramPages() {}
