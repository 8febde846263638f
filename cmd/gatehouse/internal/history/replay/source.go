package replay

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
	"github.com/gatehouse-dev/gatehouse/internal/patherr"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// FileSource returns the source of a file.
func FileSource(file string) Source {
	return Source{
		Name: filepath.ToSlash(file),
		Open: func() (io.ReadCloser, error) {
			opened, err := os.Open(file) // #nosec G304 -- the user names the file
			if err != nil {
				return nil, fmt.Errorf("cannot be read: %w", patherr.Cause(err))
			}
			return opened, nil
		},
	}
}

// Sources returns the files that are named, and the segments in directories that are named. What cannot be read is among
// the problems.
func Sources(paths []string) (sources []Source, problems []error) {
	problem := func(name string, err error) {
		problems = append(problems, fmt.Errorf("%s: %w", diagnostic.OneLine(name), err))
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err == nil && !info.IsDir() {
			sources = append(sources, FileSource(path))
			continue
		}
		var entries []fs.DirEntry
		if err == nil {
			entries, err = os.ReadDir(path) // in the order of their names, which is that of time
		}
		before := len(sources)
		for _, entry := range entries {
			info, gone := entry.Info() // a server may have removed it meanwhile
			if gone == nil && info.Mode().IsRegular() && record.IsSegmentName(entry.Name()) {
				sources = append(sources, FileSource(filepath.Join(path, entry.Name())))
			}
		}
		switch {
		case err != nil:
			problem(path, fmt.Errorf("cannot be read: %w", patherr.Cause(err)))
		case len(sources) == before:
			problem(path, fmt.Errorf("no file in this directory ends in %s (hint: gatehouse serve --record writes them)", record.SegmentSuffix))
		}
	}
	return sources, problems
}
