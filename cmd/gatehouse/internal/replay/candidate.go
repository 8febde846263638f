package replay

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record/redacted"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// Candidate is what reviews are decided by: a configuration, or for each review the one that
// has decided on it. It is safe for concurrent use.
type Candidate struct {
	// fixed is nil for the recorded configurations.
	fixed *configuration
}

// Load returns the configuration in a directory. The error is written as those of other commands
// with --config.
func Load(dir string) (*Candidate, error) {
	c, found := config.Inspect(dir)
	out, err := compile(c, found)
	if err != nil {
		return nil, config.InvalidError(dir, err)
	}
	return &Candidate{out}, nil
}

// Compile returns a configuration that was read without errors. The error is a diagnostic.List.
func Compile(c *config.Config) (*Candidate, error) {
	copied := *c
	out, err := compile(&copied, nil)
	if err != nil {
		return nil, err
	}
	return &Candidate{out}, nil
}

// Recorded returns the configurations that are stored beside the recordings: of each review the
// one that has decided on it. A review whose configuration is not there is undecided.
func Recorded() *Candidate { return new(Candidate) }

// configuration is a configuration, and what a replay needs of it. It is safe for concurrent use.
type configuration struct {
	config *config.Config
	// objects are the context objects of its directory.
	objects policy.Objects
	// resources are those of Kubernetes and of its CustomResourceDefinitions.
	resources *request.Resources
	// readsUser reports whether a mutating policy reads who has sent a request: recordings redact a part of that.
	readsUser bool
	// snapshots return the compiled configuration, without and with a guard for redacted values.
	snapshots [2]func() (*webhooks.Snapshot, error)
}

// newConfiguration returns a configuration that is not compiled yet.
func newConfiguration(c *config.Config) *configuration {
	out := &configuration{config: c, objects: c.Policy.Objects}
	definitions, _ := out.objects.List(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}, "", nil)
	out.resources = request.NewResources(definitions)
	out.readsUser = slices.ContainsFunc(c.Mutation.Policies, func(p mutation.Policy) bool { return strings.Contains(p.Spec.String(), "userInfo") })
	// Whether a kind is served is known for a review alone.
	c.Policy.Objects = unknownScopes{out.objects}
	for i := range out.snapshots {
		out.snapshots[i] = sync.OnceValues(func() (*webhooks.Snapshot, error) {
			spec := c.Spec()
			if i == guarded {
				spec.Policy.Guard, spec.Sidecar.Guard = redacted.Guard{}, redacted.Guard{}
			}
			return webhooks.Compile(spec)
		})
	}
	return out
}

// The indexes of configuration.snapshots.
const (
	plain = iota
	guarded
)

// compile compiles a configuration of which all errors so far are given.
func compile(c *config.Config, found diagnostic.List) (*configuration, error) {
	out := newConfiguration(c)
	snapshot, all := config.Compile(c, found)
	if err := all.Err(); err != nil {
		return nil, err
	}
	out.snapshots[plain] = func() (*webhooks.Snapshot, error) { return snapshot, nil }
	return out, nil
}

// unknownScopes are Objects of which it is not known at compile time which kinds are served, so
// that no policy is left out of an index because of it.
type unknownScopes struct{ policy.Objects }

var errUnknownScope = errors.New("it is not known yet")

func (unknownScopes) Namespaced(schema.GroupVersionKind) (bool, error) { return false, errUnknownScope }

// configMap returns the data of a ConfigMap of the directory.
func (c *configuration) configMap(namespace, name string) (map[string]string, bool) {
	if c.config.Sidecar.ConfigMaps == nil {
		return nil, false
	}
	return c.config.Sidecar.ConfigMaps.ConfigMapData(namespace, name)
}

// maxConfigurations bounds the recorded configurations in memory.
const maxConfigurations = 8

// library reads the configurations that are stored beside recordings. It is safe for concurrent use.
type library struct {
	mu     sync.Mutex
	byFile map[string]func() (*configuration, error)
	files  []string
}

func newLibrary() *library { return &library{byFile: map[string]func() (*configuration, error){}} }

// find returns the configuration that has decided on a review. The error is a reason for Result.Undecided.
func (l *library) find(dir string, header *record.Header, review *record.Review) (*configuration, error) {
	digest := cmp.Or(review.Config, header.Config)
	if digest == "" {
		return nil, errors.New("the recording does not say which configuration has decided")
	}
	// It becomes part of a path.
	if len(digest) > 2*sha256.Size || strings.Trim(digest, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return nil, errors.New("the recording names a configuration by what is no digest")
	}
	file := filepath.Join(dir, record.ConfigurationName(digest))
	l.mu.Lock()
	load := l.byFile[file]
	if load == nil {
		load = sync.OnceValues(func() (*configuration, error) { return loadRecorded(dir, file) })
		if len(l.files) == maxConfigurations {
			delete(l.byFile, l.files[0])
			l.files = l.files[1:]
		}
		l.byFile[file], l.files = load, append(l.files, file)
	}
	l.mu.Unlock()
	return load()
}

// loadRecorded reads a configuration that is stored beside a recording.
func loadRecorded(dir, file string) (*configuration, error) {
	name := filepath.Base(file)
	if _, err := os.Stat(file); dir == "" || errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s, the configuration that has decided, is not beside the recording", name)
	}
	c, found := config.InspectFile(file)
	if err := found.Err(); err != nil {
		return nil, fmt.Errorf("%s, the configuration that has decided, cannot be used: %w", name, err)
	}
	c.Policy.KeepBroken = true // as in a server with custom resources
	return newConfiguration(c), nil
}
