// Package kustomize renders kustomizations with kustomize's own library, with its defaults: files come from below the root of each
// kustomization, and neither plugins nor Helm run. Unlike kustomize, it fetches nothing.
package kustomize

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/provider"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
)

// maxFile is the size of the largest file that is read.
const maxFile = 64 << 20

// IsFile reports whether a file of this name is a kustomization.
func IsFile(name string) bool {
	return slices.Contains(konfig.RecognizedKustomizationFileNames(), name)
}

// File returns the kustomization file of a directory, or the directory if it has none.
func File(dir string) string {
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return filepath.Join(dir, name)
		}
	}
	return dir
}

// Build returns what the kustomization in a directory renders to, in the order of "kustomize build". If anything in it is remote, it is
// refused before it is rendered.
func Build(dir string) (text []byte, err error) {
	defer func() {
		if failure := recover(); failure != nil { // of the library, on input that it does not expect
			text, err = nil, fmt.Errorf("kustomize fails: %v", failure)
		}
	}()
	disk := files{filesys.MakeFsOnDisk()}
	root, err := filesys.ConfirmDir(disk, dir)
	if err != nil {
		return nil, err
	}
	c := checker{disk: disk, visited: map[filesys.ConfirmedDir]bool{}, resources: resmap.NewFactory(provider.NewDepProvider().GetResourceFactory())}
	if err := c.visit(root); err != nil {
		return nil, err
	}
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionUnspecified // as the command does
	objects, err := krusty.MakeKustomizer(options).Run(disk, root.String())
	if err != nil {
		return nil, err
	}
	return objects.AsYaml()
}

// files is a file system without files that are endless or too large.
type files struct{ filesys.FileSystem }

// ReadFile returns the content of a regular file.
func (f files) ReadFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("'%s' is not a regular file", path)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("'%s' is larger than %d MiB", path, maxFile>>20)
	}
	text, err := f.FileSystem.ReadFile(path)
	if err == nil {
		err = manifest.NewExpansion(len(text)).Take(text)
	}
	return text, err
}

// What kustomize fetches: with HTTP where a file is named, as PATH or KEY=PATH, and with git where a directory may be.
var (
	remoteFile      = regexp.MustCompile(`(?i)^https?:`)
	remoteSource    = regexp.MustCompile(`(?i)^([^=]*=)?https?:`)
	remoteDirectory = regexp.MustCompile(`(?i)^(git::)?((https?|ssh|file)://|github\.com[/:]|[a-z][a-z0-9-]*@)`)
)

// remoteIn returns what is remote as a value of a field of a kustomization or of the configuration of a built-in plugin, nil for a field
// that names nothing that is loaded. Like the library, it does not distinguish capital letters.
func remoteIn(field string) *regexp.Regexp {
	switch strings.ToLower(strings.ToUpper(field)) { // ſ is S
	case "resources", "components", "generators", "transformers", "validators":
		return remoteDirectory
	case "files":
		return remoteSource
	case "additionalvaluesfiles", "configurations", "crds", "env", "envs", "patchesstrategicmerge", "path", "paths", "targetfilepath", "valuesfile":
		return remoteFile
	default:
		return nil
	}
}

// checker finds what is remote in a kustomization and in those that it names, by the library's own readings of them.
type checker struct {
	disk      filesys.FileSystem
	resources *resmap.Factory
	visited   map[filesys.ConfirmedDir]bool
}

// visit returns an error if something in the kustomization of a directory is remote. What cannot be read the library reports.
func (c *checker) visit(root filesys.ConfirmedDir) error {
	if c.visited[root] {
		return nil
	}
	c.visited[root] = true
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		file := root.Join(name)
		text, err := c.disk.ReadFile(file)
		var k types.Kustomization
		if errors.Is(err, manifest.ErrExpansion) { // of which the library says that there is no file
			return fmt.Errorf("%s: %w", file, err)
		}
		if err != nil || k.Unmarshal(text) != nil {
			continue
		}
		k.FixKustomization()
		var fields map[string]any
		if text, err = json.Marshal(k); err == nil {
			err = json.Unmarshal(text, &fields)
		}
		err = errors.Join(err, check(file, "", fields))
		for _, entry := range slices.Concat(k.Generators, k.Transformers, k.Validators) {
			err = errors.Join(err, c.checkPlugin(root, file, entry))
		}
		if err != nil {
			return err
		}
		for _, entry := range slices.Concat(k.Resources, k.Components) {
			if base, failed := filesys.ConfirmDir(c.disk, root.Join(entry)); failed == nil {
				err = errors.Join(err, c.visit(base))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkPlugin checks an entry of generators, transformers or validators: objects, or the name of a file with some.
func (c *checker) checkPlugin(root filesys.ConfirmedDir, file, entry string) error {
	objects, err := c.resources.NewResMapFromBytes([]byte(entry))
	if err != nil && c.disk.IsDir(root.Join(entry)) { // it may render to anything
		return fmt.Errorf("%q in %s is a directory of generators, transformers or validators, which is not supported (hint: name its files)", entry, file)
	}
	if err != nil {
		text, _ := c.disk.ReadFile(root.Join(entry))
		if objects, err = c.resources.NewResMapFromBytes(text); err != nil {
			return nil //nolint:nilerr // the library reports it
		}
	}
	for _, object := range objects.Resources() {
		fields, failed := object.Map()
		err = errors.Join(err, failed, check(file, "", fields))
	}
	return err
}

// check returns an error if a field, at any depth of a value, has something remote.
func check(file, field string, value any) (err error) {
	switch v := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			err = errors.Join(err, check(file, name, v[name]))
		}
	case []any:
		for _, element := range v {
			err = errors.Join(err, check(file, field, element))
		}
	case string:
		if remote := remoteIn(field); remote != nil && remote.MatchString(v) {
			err = fmt.Errorf("%q in %s is remote, and nothing is fetched (hint: copy it into the repository, or pipe the output of kustomize build)", v, file)
		}
	}
	return err
}
