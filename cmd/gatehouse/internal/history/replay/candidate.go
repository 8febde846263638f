package replay

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	schemas "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/schema"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
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

// Recorded returns the configurations that recordings hold: of each review the
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
	// hasPodSecurity reports whether a policy checks a Pod Security Standard.
	hasPodSecurity bool
	// snapshot returns the compiled configuration, whose expressions fail if they read a redacted value.
	snapshot func() (*webhooks.Snapshot, error)
}

// newConfiguration returns a configuration that is not compiled yet.
func newConfiguration(c *config.Config) *configuration {
	out := &configuration{config: c, objects: c.Policy.Objects}
	definitions, _ := out.objects.List(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}, "", nil)
	out.resources = schemas.Resources(definitions)
	out.readsUser = slices.ContainsFunc(c.Mutation.Policies, func(p mutation.Policy) bool { return strings.Contains(p.Spec.String(), "userInfo") })
	// Whether a kind is served is known for a review alone.
	c.Policy.Objects = unknownScopes{out.objects}
	out.hasPodSecurity = slices.ContainsFunc(c.Policy.AdmissionPolicies, func(p policy.AdmissionPolicy) bool { return p.Spec.PodSecurity != nil })
	out.snapshot = sync.OnceValues(func() (*webhooks.Snapshot, error) {
		spec := c.Spec()
		spec.Policy.Option, spec.Sidecar.Option = failOnRedacted, failOnRedacted
		return webhooks.Compile(spec)
	})
	return out
}

// compile compiles a configuration of which all errors so far are given.
func compile(c *config.Config, found diagnostic.List) (*configuration, error) {
	out := newConfiguration(c)
	if _, all := config.Compile(c, found); all.Err() != nil {
		return nil, all.Err()
	}
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

// library compiles the configurations that recordings hold. It is safe for concurrent use.
type library struct {
	mu        sync.Mutex
	byContent map[[sha256.Size]byte]func() (*configuration, error)
	order     [][sha256.Size]byte
}

func newLibrary() *library {
	return &library{byContent: map[[sha256.Size]byte]func() (*configuration, error){}}
}

// find returns the configuration of a segment. The error is a reason for Result.Undecided.
func (l *library) find(of *record.Segment, digest string) (*configuration, error) {
	documents, ok := of.Configuration(digest)
	if !ok {
		return nil, errors.New("the recording does not hold the configuration that has decided")
	}
	key := sha256.Sum256([]byte(documents))
	l.mu.Lock()
	load := l.byContent[key]
	if load == nil {
		load = sync.OnceValues(func() (*configuration, error) { return loadRecorded(documents) })
		if len(l.order) == maxConfigurations {
			delete(l.byContent, l.order[0])
			l.order = l.order[1:]
		}
		l.byContent[key], l.order = load, append(l.order, key)
	}
	l.mu.Unlock()
	return load()
}

// loadRecorded reads a configuration of a recording.
func loadRecorded(documents string) (*configuration, error) {
	c, found := config.InspectText("recorded.yaml", []byte(documents))
	if err := found.Err(); err != nil {
		return nil, fmt.Errorf("the configuration that has decided cannot be used: %w", err)
	}
	c.Policy.KeepBroken = true // as in a server with custom resources
	return newConfiguration(c), nil
}
