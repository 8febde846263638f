package config

import "github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"

// Files returns the files below a directory that Inspect reads, by their paths with slashes, and what cannot be read. Files that
// documents name are not among them.
func Files(dir string) (map[string][]byte, diagnostic.List) {
	t := readStable(dir)
	files := make(map[string][]byte, len(t.files))
	for _, f := range t.files {
		files[f.path] = f.data
	}
	return files, t.found
}
