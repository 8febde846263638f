//go:build !linux

package cluster

import (
	"fmt"
	"os"
)

// temporary is a directory for one cluster. A killed test leaves it behind.
type temporary struct {
	path string
}

func newTemporary() (*temporary, error) {
	path, err := os.MkdirTemp("", "gatehouse-cluster-*")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the control plane: %w", err)
	}
	return &temporary{path: path}, nil
}

func (t *temporary) remove() error {
	err := os.RemoveAll(t.path)
	if err != nil {
		return fmt.Errorf("remove the control plane's directory: %w", err)
	}
	return nil
}
