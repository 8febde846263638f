package version

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gatehouse-dev/gatehouse/manifests/crds"
	"github.com/gatehouse-dev/gatehouse/test/support/logbuffer"
)

const (
	profiles = "sidecarprofiles.gatehouse.dev"
	tokens   = "accesstokens.gatehouse.dev"
)

// clusterOf is an API server that has the definitions of this program, established, as they are after the change, which
// returns false for one that is not there.
func clusterOf(t *testing.T, change func(definition *unstructured.Unstructured) bool) *dynamicfake.FakeDynamicClient {
	t.Helper()
	all, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	var objects []runtime.Object
	for _, definition := range all {
		set(t, definition, []any{
			map[string]any{"type": "NamesAccepted", "status": "True"}, map[string]any{"type": "Established", "status": "True"},
		}, "status", "conditions")
		if change == nil || change(definition) {
			objects = append(objects, definition)
		}
	}
	resource := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{resource: "CustomResourceDefinitionList"}, objects...)
}

func set(t *testing.T, definition *unstructured.Unstructured, value any, path ...string) {
	t.Helper()
	if err := unstructured.SetNestedField(definition.Object, value, path...); err != nil {
		t.Fatal(err)
	}
}

// linesOf returns the lines of a log since the last call.
func linesOf(log *logbuffer.Buffer) []string { return slices.Collect(strings.Lines(log.Take())) }

func definitionsOf(t *testing.T, client dynamic.Interface) (*Definitions, *logbuffer.Buffer) {
	t.Helper()
	log := &logbuffer.Buffer{}
	d, err := New(client, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return d, log
}

func TestLook(t *testing.T) {
	t.Parallel()
	only := func(name string, change func(*unstructured.Unstructured)) func(*unstructured.Unstructured) bool {
		return func(definition *unstructured.Unstructured) bool {
			if definition.GetName() == name {
				change(definition)
			}
			return true
		}
	}
	revision := func(text string) func(*unstructured.Unstructured) bool {
		return only(profiles, func(definition *unstructured.Unstructured) {
			definition.SetAnnotations(map[string]string{crds.RevisionAnnotation: text})
		})
	}
	conditions := func(pairs ...string) func(*unstructured.Unstructured) bool {
		return only(profiles, func(definition *unstructured.Unstructured) {
			var list []any
			for pair := range slices.Chunk(pairs, 2) {
				list = append(list, map[string]any{"type": pair[0], "status": pair[1], "message": "because of the other"})
			}
			set(t, definition, list, "status", "conditions")
		})
	}
	for name, c := range map[string]struct {
		change func(*unstructured.Unstructured) bool
		newer  bool
		says   []string
	}{
		"all as they should be": {},
		"one that is missing": {
			func(definition *unstructured.Unstructured) bool { return definition.GetName() != profiles }, false,
			[]string{`the CustomResourceDefinition "sidecarprofiles.gatehouse.dev" is missing: there can be no SidecarProfile`, Remedy},
		},
		"an older one":               {revision("0"), false, []string{"has no revision", Remedy}},
		"one of another program":     {revision("many"), false, []string{"has no revision of its schema, and this version of Gatehouse has 2", Remedy}},
		"a newer one":                {revision("1000"), true, []string{"has revision 1000 of its schema, and this version of Gatehouse knows 2", "finish the upgrade"}},
		"names that another has":     {conditions("NamesAccepted", "False", "Established", "False"), false, []string{`another CustomResourceDefinition has its names: "because of the other"`, "remove the other one"}},
		"one that is not yet ready":  {conditions("NamesAccepted", "True"), false, []string{"is not established yet", "kubectl describe customresourcedefinition sidecarprofiles.gatehouse.dev"}},
		"a schema that holds nobody": {conditions("Established", "True", "NonStructuralSchema", "True"), false, []string{"not structural", Remedy}},
		"one on its way out":         {conditions("Established", "True", "Terminating", "True"), false, []string{"is being deleted, with every object of the kind", Remedy}},
		"a version that is not served": {
			only(profiles, func(definition *unstructured.Unstructured) {
				set(t, definition, []any{map[string]any{"name": "v1alpha1", "served": false}, map[string]any{"name": "v1", "served": true}}, "spec", "versions")
			}),
			false,
			[]string{`does not serve the version "v1alpha1"`, Remedy},
		},
		"hostile fields": {
			only(profiles, func(definition *unstructured.Unstructured) {
				set(t, definition, []any{"x", map[string]any{"type": int64(1)}, nil}, "status", "conditions")
				set(t, definition, []any{"x", map[string]any{"name": true, "served": "yes"}}, "spec", "versions")
			}),
			false,
			[]string{"is not established yet"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, _ := definitionsOf(t, clusterOf(t, c.change))
			d.reconcile(t.Context())
			if len(c.says) == 0 {
				if len(d.known) != 0 {
					t.Errorf("the problems are %v", d.known)
				}
				return
			}
			p := d.known["SidecarProfile"]
			message := p.text + " " + p.remedy
			if _, outdated := d.Outdated()["SidecarProfile"]; len(d.known) != 1 || p.newer != c.newer || outdated == c.newer {
				t.Fatalf("the problems are %v", d.known)
			}
			for _, text := range c.says {
				if !strings.Contains(message, text) {
					t.Errorf("the message is\n%s\nwant in it %q", message, text)
				}
			}
			if len(message) > 1000 || strings.Contains(message, "\n") {
				t.Errorf("the message is too long, or has lines: %q", message)
			}
		})
	}
}

// running is a Definitions that runs against an API server that can be changed.
type running struct {
	*Definitions
	log  *logbuffer.Buffer
	mu   sync.Mutex
	here *dynamicfake.FakeDynamicClient // where it looks now
	err  error
	asks int
}

func run(t *testing.T) *running {
	t.Helper()
	r := &running{here: clusterOf(t, nil)}
	client := clusterOf(t, nil)
	client.PrependReactor("get", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.asks++
		if r.err != nil {
			return true, nil, r.err
		}
		object, err := r.here.Invokes(action, &unstructured.Unstructured{})
		return true, object, err
	})
	r.Definitions, r.log = definitionsOf(t, client)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	synctest.Wait()
	return r
}

func (r *running) now(here *dynamicfake.FakeDynamicClient, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.here, r.err = here, err
}

// after lets time pass.
func (*running) after(d time.Duration) {
	time.Sleep(d) // the clock of the bubble
	synctest.Wait()
}

// changed reports whether there is a change that was not told.
func (r *running) changed() bool {
	select {
	case <-r.Changed():
		return true
	default:
		return false
	}
}

func TestRunKeepsWhatItKnowsWhileItCannotTell(t *testing.T) {
	t.Parallel()
	resource := schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	for name, c := range map[string]struct {
		err  error
		says string
	}{
		"unreachable": {errors.New("no route to host"), "Gatehouse retries"},
		"forbidden":   {apierrors.NewForbidden(resource, tokens, errors.New("no right")), "allow the ServiceAccount to get customresourcedefinitions"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := run(t)
				r.now(clusterOf(t, func(definition *unstructured.Unstructured) bool { return definition.GetName() != profiles }), nil)
				r.after(2 * time.Minute)
				r.log.Take()
				r.changed()
				r.now(nil, c.err)
				r.after(10 * time.Minute)
				lines := linesOf(r.log)
				if len(lines) != 1 || !strings.Contains(lines[0], "cannot check") || !strings.Contains(lines[0], c.says) {
					t.Errorf("in ten minutes it says %q", lines)
				}
				if out := r.Outdated(); len(out) != 1 || r.changed() {
					t.Errorf("what was known is %v now", out)
				}
				r.now(clusterOf(t, nil), nil)
				r.after(2 * time.Minute)
				r.now(nil, c.err)
				r.after(2 * time.Minute)
				if lines := linesOf(r.log); len(lines) != 3 || !strings.Contains(lines[0], "recovered") {
					t.Errorf("of the second time it says %q", lines)
				}
				if out := r.Outdated(); len(out) != 0 {
					t.Errorf("what was put right is known as %v", out)
				}
			})
		})
	}
}
