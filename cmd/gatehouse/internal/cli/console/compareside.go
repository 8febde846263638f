package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replay"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// The names of configurations that are no directory.
const (
	clusterSide  = "cluster"
	recordedSide = "recorded"
	dirPrefix    = "dir:"
	gitPrefix    = "git:"
)

// side is one of two configurations that are compared.
type side struct {
	// Name is that of the URL.
	Name string
	// dir has its documents. It is a temporary one unless the configuration is a directory.
	dir string
	// isRaw reports whether the documents are as in their files. Those of a cluster and of a recording are encoded.
	isRaw bool
	// word is the value of --config for other commands, "" if there is none.
	word   string
	remove func()
	// Findings are what lint says, and Problem is why it cannot.
	Findings diagnostic.List
	Problem  error
}

// openSide reads a configuration. It reads no directory but --config and those below the working directory.
func (c *console) openSide(ctx context.Context, name string) (*side, error) {
	s := &side{Name: name, remove: func() {}}
	if dir, isDir := strings.CutPrefix(name, dirPrefix); isDir {
		s.dir, s.word, s.isRaw = dir, dir, true
		return s, c.checkDir(dir)
	}
	if name != clusterSide && name != recordedSide && !strings.HasPrefix(name, gitPrefix) {
		return nil, web.BadRequest("%q is no configuration: write dir:PATH, git:REVISION:PATH, cluster or recorded", cli.InertName(name))
	}
	var err error
	if s.dir, err = os.MkdirTemp(c.work, "compare-"); err != nil {
		return nil, fmt.Errorf("make a temporary directory: %w", cli.Cause(err))
	}
	s.remove = func() { _ = os.RemoveAll(s.dir) } // the console removes its directory, too
	if err := c.writeSide(ctx, s); err != nil {
		s.remove()
		return nil, err
	}
	return s, nil
}

// writeSide writes the documents of a configuration that is no directory.
func (c *console) writeSide(ctx context.Context, s *side) error {
	if rest, isGit := strings.CutPrefix(s.Name, gitPrefix); isGit {
		s.isRaw = true
		return c.openRevision(ctx, rest, s.dir)
	}
	read := c.recordedConfiguration
	if s.Name == clusterSide {
		read = func() (*config.Config, error) { return c.clusterConfiguration(ctx) }
	} else {
		s.word = recordedSide
	}
	loaded, err := read()
	if err != nil {
		return err
	}
	text, err := loaded.Encode(hideSecrets)
	if err != nil {
		return err
	}
	return writeBlob(filepath.Join(s.dir, s.Name+".yaml"), text)
}

// checkDir returns an error for a directory that the console does not read.
func (c *console) checkDir(dir string) error {
	if dir == c.config && dir != "" {
		return nil
	}
	here, err := os.Getwd()
	if err == nil {
		here, err = filepath.EvalSymlinks(here)
	}
	if err != nil {
		return err
	}
	target, err := filepath.Abs(dir)
	if err == nil {
		target, err = filepath.EvalSymlinks(target)
	}
	below, _ := filepath.Rel(here, target) // "" is not local
	if err != nil || !filepath.IsLocal(below) {
		return web.NotFound("%q is not a directory below the one in which the console runs, and not --config", cli.InertName(dir))
	}
	return cli.CheckDir("dir", dir)
}

// openRevision writes the documents of REVISION:PATH to a directory. The path is in the repository that holds --config, or the working directory.
func (c *console) openRevision(ctx context.Context, name, to string) error {
	revision, below, found := strings.Cut(name, ":")
	if !found || revision == "" {
		return web.BadRequest("%q is no git revision: write git:REVISION:PATH, with the path from the root of the repository", cli.InertName(name))
	}
	ctx, cancel := context.WithTimeout(ctx, computeTimeout)
	defer cancel()
	g, _, err := repositoryOf(ctx, c.repositoryDir())
	if err != nil {
		return err
	}
	return g.extract(ctx, revision, filepath.ToSlash(filepath.Clean(filepath.FromSlash(below))), to)
}

// repositoryDir returns a directory of the repository whose revisions can be compared.
func (c *console) repositoryDir() string {
	if c.config != "" {
		return c.config
	}
	return "."
}

// clusterConfiguration returns what is active in the cluster, without --config.
func (c *console) clusterConfiguration(ctx context.Context) (*config.Config, error) {
	if c.isOffline() {
		return nil, web.BadRequest("no cluster is shown (hint: gatehouse console --context NAME)")
	}
	only := c.SourceFlags
	only.WithCluster = false
	source, err := only.Open(ctx, "")
	if err != nil {
		return nil, err
	}
	defer source.Close()
	loaded, err := source.Load(nil)
	if err != nil {
		return nil, err
	}
	return loaded.Config, nil
}

// recordedConfiguration returns the configuration that the last segment of the recordings names.
func (c *console) recordedConfiguration() (*config.Config, error) {
	sources, _, err := c.recordingOf("")
	if err != nil {
		return nil, err
	}
	last := sources[len(sources)-1]
	file, err := last.Open()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cli.InertName(last.Name), err)
	}
	defer func() { _ = file.Close() }() // it was only read
	reader, err := record.NewReader(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cli.InertName(last.Name), err)
	}
	defer reader.Close()
	if _, err := reader.NextText(); err != nil {
		return nil, fmt.Errorf("%s: %w", cli.InertName(last.Name), err)
	}
	name := record.ConfigurationName(reader.Segment().Header.Config)
	if _, isName := record.ConfigurationDigest(name); !isName || name != filepath.Base(name) {
		return nil, web.NotFound("the recording does not say which configuration has decided")
	}
	read, found := config.InspectFile(filepath.Join(last.Dir, name))
	return read, found.Err()
}

// hidden is shown in place of secret values: "hidden" in base64, as a Secret needs it.
const hidden = "aGlkZGVu"

// hideSecrets returns a Secret without its values.
func hideSecrets(object []byte) []byte {
	var fields map[string]any
	if json.Unmarshal(object, &fields) != nil {
		return []byte("{}")
	}
	out, err := json.Marshal(withoutSecrets(fields))
	if err != nil {
		return []byte("{}") // it was JSON
	}
	return out
}

// withoutSecrets returns an object without values that are secret, or that tokens can be guessed by.
func withoutSecrets(fields map[string]any) map[string]any {
	hide := func(from map[string]any, name string) map[string]any {
		values, isObject := from[name].(map[string]any)
		if !isObject {
			return from
		}
		from, values = maps.Clone(from), maps.Clone(values)
		for key := range values {
			values[key] = hidden
		}
		from[name] = values
		return from
	}
	switch fields["kind"] {
	case "Secret":
		fields = hide(hide(fields, "data"), "stringData")
		// kubectl apply keeps a copy of the object.
		if metadata, isObject := fields["metadata"].(map[string]any); isObject {
			fields = maps.Clone(fields)
			fields["metadata"] = hide(metadata, "annotations")
		}
	case "AccessToken":
		if spec, isObject := fields["spec"].(map[string]any); isObject {
			fields, spec = maps.Clone(fields), maps.Clone(spec)
			spec["sha256"] = hidden
			fields["spec"] = spec
		}
	}
	return fields
}

// documents returns the documents by kind and name. With encoded they are as Encode writes them, so that those of a file can be compared
// with objects of a cluster. It is not an error that some of them are invalid.
func (s *side) documents(encoded bool) (map[documentKey]document, error) {
	var all []document
	if encoded && s.isRaw {
		read, found := config.Inspect(s.dir)
		if found.Err() != nil {
			return nil, found.Err()
		}
		text, err := read.Encode(hideSecrets)
		if err != nil {
			return nil, err
		}
		all = splitDocuments("", text)
	} else {
		files, found := config.Files(s.dir)
		if found.Err() != nil {
			return nil, found.Err()
		}
		for _, name := range slices.Sorted(maps.Keys(files)) {
			all = append(all, splitDocuments(name, files[name])...)
		}
	}
	out := map[documentKey]document{}
	for i := range all {
		for _, d := range all[i].expand() {
			if encoded && d.Fields != nil {
				var err error
				if d, err = d.asInCluster(); err != nil {
					return nil, err
				}
			}
			key := d.documentKey
			for n := 2; ; n++ {
				if _, exists := out[key]; !exists {
					break
				}
				key.Name = fmt.Sprintf("%s (%d)", d.Name, n)
			}
			out[key] = d
		}
	}
	return out, nil
}

// expand returns the document, or the items of a list.
func (d document) expand() []document {
	items, isList := d.Fields["items"].([]any)
	if !isList || !strings.HasSuffix(d.Kind, "List") {
		if d.Kind == "" {
			d.documentKey = documentKey{Kind: "document", Name: fmt.Sprintf("%d of %s", d.Number, d.Source)}
		}
		return []document{d}
	}
	var all []document
	for _, item := range items {
		fields, _ := item.(map[string]any)
		one := document{documentKey: keyOf(fields), Source: d.Source, Number: d.Number, Text: []byte(asYAML(item)), Fields: fields}
		all = append(all, one)
	}
	return all
}

// shown returns the text of a document without secrets.
func (d *document) shown() []byte {
	switch {
	case len(d.Text) > 0 && d.Fields == nil:
		return []byte("# This document cannot be read as an object.\n")
	case d.Kind == "Secret", d.Kind == "AccessToken":
		return []byte(asYAML(withoutSecrets(d.Fields)))
	default:
		return d.Text
	}
}

// candidate returns the configuration for a replay.
func (s *side) candidate() (*replay.Candidate, error) {
	if s.Name == recordedSide {
		return replay.Recorded(), nil
	}
	loaded, err := replay.Load(s.dir)
	if err != nil {
		return nil, s.clean(err)
	}
	return loaded, nil
}

// clean replaces a temporary directory in an error by the name of the configuration.
func (s *side) clean(err error) error {
	if strings.HasPrefix(s.Name, dirPrefix) {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), filepath.ToSlash(s.dir), s.Name))
}
