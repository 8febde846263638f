// Package installers finds helm and kustomize for tests: with these, and with kubectl, people install Gatehouse.
package installers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// The programs.
const (
	Helm      = "helm"
	Kustomize = "kustomize"
)

// Binary returns the path of a program. That it is missing is an error: a test that needs it must fail, not skip.
func Binary(program string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "bin", "installers", program)
	_, err = os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("no %s to install with: %w; hint: run 'make installers'", program, err)
	}
	return path, nil
}

// Root returns the repository's root. It walks up from the working directory, which for a Go test is the directory of
// its package.
func Root() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository's root: %w", err)
	}
	for directory := start; ; directory = filepath.Dir(directory) {
		_, err := os.Stat(filepath.Join(directory, "test", "support", "installers", "build.sh"))
		if err == nil {
			return directory, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("find the repository's root: %w", err)
		}
		if directory == filepath.Dir(directory) {
			return "", fmt.Errorf("no test/support/installers above %s; hint: run inside the repository", start)
		}
	}
}
