package config

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// Document is a decoded document of a file, of any kind.
type Document struct {
	// File is the path of the file, to be opened from where Documents was called.
	File string
	// Source is File, with slashes, and behind a # the number of the document
	// where the file has several.
	Source string
	// Value is in the types that a JSON decoder of Kubernetes gives:
	// map[string]any, []any, string, int64, float64 and bool.
	Value any
}

// Documents reads a file, or the files below a directory that Load would read, with the
// same strictness and limits. The diagnostics are errors about documents that are left out.
func Documents(path string) ([]Document, diagnostic.List) {
	var found diagnostic.List
	report := func(source string, p problem) {
		found = append(found, diagnostic.Diagnostic{Severity: diagnostic.Error, Source: source, Field: p.field, Message: p.message, Hint: p.hint})
	}
	root := filepath.ToSlash(path)
	info, err := os.Stat(path)
	if err != nil {
		report(root, problem{message: "cannot be read: " + reason(err)})
		return nil, found
	}
	var files []file
	l := defaultLimits()
	join := func(string) string { return path }
	switch {
	case info.IsDir():
		t := readStable(path)
		files, join = t.files, func(rel string) string { return filepath.Join(path, filepath.FromSlash(rel)) }
		for _, f := range t.found {
			if f.Source != path {
				f.Source = filepath.ToSlash(join(f.Source))
			}
			found = append(found, f)
		}
	case !info.Mode().IsRegular():
		// Opening a pipe would block until it has a writer.
		report(root, problem{message: "is not a regular file"})
		return nil, found
	default:
		data, err := readFile(path, l)
		switch {
		case err != nil:
			report(root, problem{message: "cannot be read: " + reason(err)})
			return nil, found
		case len(data) > l.fileBytes:
			report(root, problem{message: fmt.Sprintf("is larger than %d MiB", l.fileBytes>>20), hint: "split it into several files"})
			return nil, found
		}
		files = []file{{path: path, data: data}}
	}
	var all []Document
	p := newParser(l)
	for _, f := range files {
		if p.budget < 0 {
			break // reported already
		}
		name := join(f.path)
		documents := p.documents(f)
		for i, d := range documents {
			source := filepath.ToSlash(name)
			if len(documents) > 1 {
				source = fmt.Sprintf("%s#%d", source, i+1)
			}
			for _, bad := range d.problems {
				report(source, bad)
			}
			if d.value != nil && len(d.problems) == 0 {
				all = append(all, Document{File: name, Source: source, Value: d.value})
			}
		}
		if len(all) > l.documents {
			report(root, problem{message: fmt.Sprintf("there are more than %d documents", l.documents)})
			break
		}
	}
	return all, found
}
