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
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// maxReferencedBytes bounds a file that a document names: a password, a key, a set
// of keys.
const maxReferencedBytes = 1 << 20

// referencedFile is a file that a document names. It is part of the configuration.
type referencedFile struct {
	// path is below the directory, with slashes, unless it is absolute.
	path string
	data []byte
	// problem is why there is no data. It is unseen if there is no file of this path.
	problem string
	unseen  bool
}

// readReferencedFiles reads the files that documents name, each once.
func (t *tree) readReferencedFiles() {
	var paths []string
	for _, f := range t.files {
		// Few files can have such a document, and the others are not parsed twice.
		if !bytes.Contains(f.data, []byte(authenticationConfiguration)) || !bytes.Contains(f.data, []byte(v1alpha1.GroupVersion.Group)) {
			continue
		}
		p := newParser(t.limits)
		for _, doc := range p.documents(f) {
			for _, name := range referencedNames(doc.value) {
				paths = append(paths, referencedPath(f.path, name))
			}
		}
	}
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		t.referenced = append(t.referenced, readReferencedFile(t.dir, path))
	}
}

// referencedNames returns the files that a document names, which may have errors.
func referencedNames(document any) []string {
	fields, ok := document.(map[string]any)
	if !ok || fields["kind"] != authenticationConfiguration || fields["apiVersion"] != v1alpha1.GroupVersion.String() {
		return nil
	}
	var names []string
	for _, one := range []string{
		"jwt.issuers.keysFile", "jwt.issuers.groupSources.graph.clientSecretFile", "jwt.issuers.groupSources.http.tokenFile",
		"jwt.issuers.groupSources.http.clientCertificateFile", "jwt.issuers.groupSources.http.clientKeyFile",
		"directories.bindPasswordFile", "login.keys.file",
	} {
		names = appendStrings(names, document, strings.Split(one, ".")...)
	}
	return names
}

// appendStrings appends the strings of a field, of each element where a list is on the way.
func appendStrings(names []string, value any, field ...string) []string {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			names = appendStrings(names, element, field...)
		}
	case map[string]any:
		if len(field) > 0 {
			return appendStrings(names, value[field[0]], field[1:]...)
		}
	case string:
		if len(field) == 0 && value != "" {
			return append(names, value)
		}
	}
	return names
}

// referencedPath returns the path of a file that a document in the file from names.
func referencedPath(from, name string) string {
	if filepath.IsAbs(name) {
		return filepath.ToSlash(filepath.Clean(name))
	}
	return path.Join(path.Dir(from), filepath.ToSlash(name))
}

func readReferencedFile(dir, path string) referencedFile {
	a := referencedFile{path: path}
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

// readRegular reads a small regular file. Opening a pipe would block until it has a writer.
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
	data, err := io.ReadAll(io.LimitReader(f, maxReferencedBytes+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if len(data) > maxReferencedBytes {
		return nil, fmt.Errorf("is larger than %d MiB", maxReferencedBytes>>20)
	}
	return data, nil
}

// findReferencedFile returns a file that a document in the file from names.
func (t *tree) findReferencedFile(from, name string) referencedFile {
	path := referencedPath(from, name)
	i, found := slices.BinarySearchFunc(t.referenced, path, func(a referencedFile, path string) int { return cmp.Compare(a.path, path) })
	if !found {
		return referencedFile{path: path, problem: "was not read", unseen: true}
	}
	return t.referenced[i]
}
