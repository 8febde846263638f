package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// maxAttachedBytes bounds a file that a document names: a password, a key, a set
// of keys.
const maxAttachedBytes = 1 << 20

// attachment is a file that a document names. It is part of the configuration: a
// change of it is one of the configuration.
type attachment struct {
	// path is below the directory, with slashes, unless it is absolute.
	path string
	data []byte
	// problem says why there is no data, and unseen that nothing of this path was
	// found at all.
	problem string
	unseen  bool
}

// attach reads the files that documents name, each once.
func (t *tree) attach() {
	var paths []string
	for _, f := range t.files {
		// Few files can have such a document, and the others are not parsed twice.
		if !bytes.Contains(f.data, []byte(authenticationConfiguration)) || !bytes.Contains(f.data, []byte(v1alpha1.GroupVersion.Group)) {
			continue
		}
		p := newParser(t.limits)
		for _, doc := range p.documents(f) {
			for _, name := range namedFiles(doc.value) {
				paths = append(paths, attachedPath(f.path, name))
			}
		}
	}
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		t.attached = append(t.attached, readAttachment(t.dir, path))
	}
}

// namedFiles are the files that a document names, also one that has something
// wrong with it, which is for its decoder to say.
func namedFiles(document any) []string {
	fields, ok := document.(map[string]any)
	if !ok || fields["kind"] != authenticationConfiguration || fields["apiVersion"] != v1alpha1.GroupVersion.String() {
		return nil
	}
	var names []string
	each := func(list any, member string) {
		elements, _ := list.([]any)
		for _, element := range elements {
			of, _ := element.(map[string]any)
			if name, ok := of[member].(string); ok && name != "" {
				names = append(names, name)
			}
		}
	}
	jwt, _ := fields["jwt"].(map[string]any)
	login, _ := fields["login"].(map[string]any)
	each(jwt["issuers"], "keysFile")
	each(fields["directories"], "bindPasswordFile")
	each(login["keys"], "file")
	return names
}

// attachedPath is the path of a file that a document in the file from names.
func attachedPath(from, name string) string {
	if filepath.IsAbs(name) {
		return filepath.ToSlash(filepath.Clean(name))
	}
	return path.Join(path.Dir(from), filepath.ToSlash(name))
}

func readAttachment(dir, path string) attachment {
	a := attachment{path: path}
	file := filepath.FromSlash(path)
	if !filepath.IsAbs(file) {
		file = filepath.Join(dir, file)
	}
	data, err := readRegular(file)
	if err != nil {
		_, unseen := os.Stat(file)
		a.problem, a.unseen = reason(err), unseen != nil
		return a
	}
	a.data = data
	return a
}

// readRegular reads a small regular file. Opening a pipe would wait for its writer
// for ever.
func readRegular(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("is not a regular file")
	}
	f, err := os.Open(file) // #nosec G304 -- the operator names the file
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxAttachedBytes+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if len(data) > maxAttachedBytes {
		return nil, fmt.Errorf("is larger than %d MiB", maxAttachedBytes>>20)
	}
	return data, nil
}

// attachedFile is a file that a document in the file from names.
func (t *tree) attachedFile(from, name string) attachment {
	path := attachedPath(from, name)
	i, found := slices.BinarySearchFunc(t.attached, path, func(a attachment, path string) int { return cmp.Compare(a.path, path) })
	if !found {
		return attachment{path: path, problem: "was not read", unseen: true}
	}
	return t.attached[i]
}
