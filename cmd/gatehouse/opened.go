package main

import (
	"errors"
	"path/filepath"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// opened is what is wrong with the configuration in a directory as it is shown to
// who has named the directory: each finding with its severity, and with a path
// that can be opened from where the command runs. Findings themselves name files
// by their paths below the directory.
func opened(dir string, err error) error {
	list, ok := errors.AsType[diagnostic.List](err)
	if !ok {
		return err
	}
	lines := make([]string, len(list))
	for i, f := range list {
		if f.Source != "" && f.Source != dir {
			f.Source = filepath.ToSlash(filepath.Join(dir, filepath.FromSlash(f.Source)))
		}
		lines[i] = string(f.Severity) + ": " + f.String()
	}
	return errors.New(strings.Join(lines, "\n"))
}
