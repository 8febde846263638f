package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replay"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// The names of configurations that are no directory.
const (
	clusterSide  = "cluster"
	recordedSide = "recorded"
	dirPrefix    = "dir:"
)

// side is one of two configurations that are compared.
type side struct {
	// Name is that of the URL.
	Name   string
	config *config.Config
	// word is the value of --config for other commands, "" if there is none.
	word string
	// unread says what of it is not known.
	unread []error
}

// openSide reads a configuration. It reads no directory but --config and those below the working directory.
func (c *console) openSide(ctx context.Context, name string) (s *side, err error) {
	s = &side{Name: name}
	switch dir, isDir := strings.CutPrefix(name, dirPrefix); {
	case isDir:
		if s.word, err = dir, c.checkDir(dir); err != nil {
			return nil, err
		}
		read, found := config.Inspect(dir)
		s.config, err = read, found.Err()
	case name == clusterSide && c.isOffline():
		return nil, web.BadRequest("no cluster is shown (hint: gatehouse console --context NAME)")
	case name == clusterSide: // what is active there, without --config
		only := c.SourceFlags
		only.WithCluster = false
		var l *loaded
		if l, err = c.load(ctx, &only, ""); err == nil {
			s.config, s.unread = l.asked(), l.Unread
		}
	case name == recordedSide:
		s.word = recordedSide
		s.config, err = c.recordedConfiguration(ctx)
	default:
		return nil, web.BadRequest("%q is no configuration: write dir:PATH, cluster or recorded", cli.InertName(name))
	}
	return s, err
}

// write returns the value of --config for a replay. The configuration of the cluster is written to a new directory.
func (s *side) write(dir string) (string, error) {
	if s.word != "" {
		return s.word, nil
	}
	text, err := s.config.Encode(hideSecrets)
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, s.Name+".yaml"), text, 0o600) // #nosec G703 -- the name is one of this package's
	}
	if err != nil {
		return "", fmt.Errorf("write a temporary file: %w", cli.Cause(err))
	}
	return dir, nil
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

// recordedConfiguration returns the configuration that decided at the beginning of the last segment of the recordings.
func (c *console) recordedConfiguration(ctx context.Context) (*config.Config, error) {
	paths, _, err := c.recordingOf("")
	if err != nil {
		return nil, err
	}
	sources, problems := replay.Sources(paths)
	if len(sources) == 0 {
		return nil, errors.Join(problems...)
	}
	last := filepath.FromSlash(sources[len(sources)-1].Name)
	var read *config.Config
	item, err := readReview(ctx, last, 0)
	if err == nil {
		read, err = item.Configuration()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cli.InertName(last), err)
	}
	return read, nil
}

// hideSecrets returns a Secret without its values, and without its annotations: kubectl apply keeps a copy of the object in one.
func hideSecrets(object []byte) []byte {
	var secret corev1.Secret
	if json.Unmarshal(object, &secret) != nil {
		return []byte("{}")
	}
	for name := range secret.Data {
		secret.Data[name] = []byte("hidden")
	}
	secret.StringData, secret.Annotations = nil, nil
	out, err := json.Marshal(&secret)
	if err != nil {
		return []byte("{}") // it was JSON
	}
	return out
}

// documents returns the documents by kind and name, without secrets, as a cluster would have them.
func (s *side) documents() (map[documentKey]document, error) {
	text, err := s.config.Encode(hideSecrets)
	if err != nil {
		return nil, err
	}
	out := map[documentKey]document{}
	for _, d := range splitDocuments("", text) {
		if d.Fields == nil {
			continue // comments
		}
		if d, err = d.asInCluster(); err != nil {
			return nil, err
		}
		out[d.documentKey] = d
	}
	return out, nil
}
