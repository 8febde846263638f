// Package version reports whether the CustomResourceDefinitions in a cluster are
// those of this program.
//
// An older definition drops fields that the program knows, and a newer one has fields
// that the program does not know: both are reported, and neither keeps anything from
// being used.
package version

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/manifests/crds"
	"github.com/gatehouse-dev/gatehouse/webhooks/strict"
)

// Remedy is the command that puts the definitions of this program in place.
const Remedy = "gatehouse manifests --crds | kubectl apply --server-side -f -"

const (
	// interval is how often the definitions are read, and retryInterval how often while one
	// has a problem.
	interval, retryInterval = time.Minute, 5 * time.Second
	// requestTimeout bounds one reading of all of them.
	requestTimeout = 30 * time.Second
	// maxQuoted bounds, in bytes, what others have written and a message repeats.
	maxQuoted = 200
)

// Config is what a Definitions works with.
type Config struct {
	// Client reads CustomResourceDefinitions. It needs the right to get them, by name.
	Client dynamic.Interface
	// Log gets a line for each change.
	Log *slog.Logger
}

// Definitions compares the definitions in a cluster with those of this program. It
// is safe for concurrent use.
type Definitions struct {
	client  dynamic.NamespaceableResourceInterface
	log     *slog.Logger
	desired []desired
	changed chan struct{}

	mu    sync.Mutex
	known map[string]Problem
	// unverified are the kinds that could not be compared, by the class of the error.
	unverified map[string]apierr.Class
}

// desired is a definition of this program.
type desired struct {
	name, kind, version string
	revision            int
}

// New returns a Definitions. The error is about the definitions in this program.
func New(c Config) (*Definitions, error) {
	all, err := crds.All()
	if err != nil {
		return nil, err
	}
	d := &Definitions{
		client:     c.Client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}),
		log:        c.Log,
		changed:    make(chan struct{}, 1),
		known:      map[string]Problem{},
		unverified: map[string]apierr.Class{},
	}
	for _, definition := range all {
		w := desired{name: definition.GetName()}
		w.kind, _, _ = unstructured.NestedString(definition.Object, "spec", "names", "kind")
		w.revision, _ = crds.Revision(definition)
		if versions := servedVersions(definition); len(versions) > 0 {
			w.version = versions[0]
		}
		if w.kind == "" || w.revision == 0 || w.version == "" {
			return nil, fmt.Errorf("the definition %q of this program is not complete", w.name)
		}
		d.desired = append(d.desired, w)
	}
	return d, nil
}

// compareAll compares all of them once. It returns the problems by kind, and the errors of
// the kinds that could not be compared.
func (d *Definitions) compareAll(ctx context.Context) (problems map[string]Problem, failures map[string]error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	problems, failures = map[string]Problem{}, map[string]error{}
	for _, w := range d.desired {
		// What the API server has in memory is recent enough, and costs etcd nothing.
		found, err := d.client.Get(ctx, w.name, metav1.GetOptions{ResourceVersion: "0"})
		switch {
		case apierrors.IsNotFound(err):
			problems[w.kind] = w.problem(Missing, "is missing: there can be no "+w.kind+" in the cluster", "apply it: "+Remedy)
		case err != nil:
			failures[w.kind] = fmt.Errorf("customresourcedefinition %q: %w", w.name, err)
		default:
			if problem, differs := w.compare(found); differs {
				problems[w.kind] = problem
			}
		}
	}
	return problems, failures
}

// Run compares them every minute, and every few seconds while there is a problem, until
// the context ends. It is called once.
func (d *Definitions) Run(ctx context.Context) {
	for {
		next := wait.Jitter(interval, 0.1)
		if !d.reconcile(ctx) {
			next = wait.Jitter(retryInterval, 0.1)
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// reconcile reads the definitions once. It reports whether there is no problem that may be
// solved soon; a missing right is not one.
func (d *Definitions) reconcile(ctx context.Context) bool {
	problems, failures := d.compareAll(ctx)
	if ctx.Err() != nil {
		return true
	}
	unverified := make(map[string]apierr.Class, len(failures))
	well := true
	for kind, err := range failures {
		unverified[kind] = apierr.Unreachable
		if apierr.Classify(err).IsDenied() {
			unverified[kind] = apierr.Forbidden
		}
		well = well && unverified[kind] == apierr.Forbidden
	}
	d.mu.Lock()
	before, unverifiedBefore := d.known, d.unverified
	for kind := range failures {
		// What was known last holds until something else is.
		if problem, known := before[kind]; known {
			problems[kind] = problem
		}
	}
	d.known, d.unverified = problems, unverified
	d.mu.Unlock()
	d.reportChanges(ctx, before, problems)
	d.reportFailures(unverifiedBefore, unverified, failures)
	if !maps.Equal(before, problems) {
		select {
		case d.changed <- struct{}{}:
		default: // it is known already that there is something new
		}
	}
	return well && len(problems) == 0
}

// reportChanges logs what has changed.
func (d *Definitions) reportChanges(ctx context.Context, before, now map[string]Problem) {
	for _, w := range d.desired {
		was, wasWrong := before[w.kind]
		differs, isWrong := now[w.kind]
		switch {
		case isWrong && differs != was:
			level := slog.LevelWarn
			if differs.Reason == Newer {
				level = slog.LevelInfo // as in every upgrade, which begins with the definitions
			}
			d.log.Log(ctx, level, "a CustomResourceDefinition does not match this version of Gatehouse",
				"definition", w.name, "kind", w.kind, "problem", differs.Text, "hint", differs.Remedy)
		case wasWrong && !isWrong:
			d.log.Info("a CustomResourceDefinition matches this version of Gatehouse again", "definition", w.name, "kind", w.kind)
		}
	}
}

// reportFailures logs, in one line for all kinds, that they could not be compared.
func (d *Definitions) reportFailures(before, now map[string]apierr.Class, failures map[string]error) {
	for _, class := range []apierr.Class{apierr.Forbidden, apierr.Unreachable} {
		var first error
		fresh, still := false, false
		for _, w := range d.desired {
			if now[w.kind] == class {
				still = true
				if first == nil {
					first = failures[w.kind]
				}
			}
			fresh = fresh || before[w.kind] == class
		}
		if !still || fresh {
			continue
		}
		hint := "Gatehouse retries; until then, the previous result stays"
		if class == apierr.Forbidden {
			hint = "allow the ServiceAccount to get customresourcedefinitions of apiextensions.k8s.io, by name (gatehouse manifests prints the rights); everything else works without"
		}
		d.log.Warn("cannot check whether the CustomResourceDefinitions match this version of Gatehouse", "error", first.Error(), "hint", hint)
	}
}

// Outdated are the kinds whose definition is not that of this program, each with what
// is wrong and what to do about it, for people. A newer one is not among them: it is
// there first in every upgrade, and an object with a field that is unknown here has
// errors of its own. The map is the caller's.
func (d *Definitions) Outdated() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make(map[string]string, len(d.known))
	for kind, problem := range d.known {
		if problem.Reason != Newer {
			out[kind] = problem.Message()
		}
	}
	return out
}

// Changed has something to receive after Outdated may have changed. It is for one
// receiver, and is never closed.
func (d *Definitions) Changed() <-chan struct{} { return d.changed }

// compare returns what is wrong with the definition in the cluster.
func (w desired) compare(found *unstructured.Unstructured) (Problem, bool) {
	conditions := conditionsOf(found)
	revision, numbered := crds.Revision(found)
	switch {
	case found.GetDeletionTimestamp() != nil || conditions["Terminating"].status == "True":
		return w.problem(Deleted, "is being deleted, with every object of the kind", "apply it again once it is gone: "+Remedy), true
	case conditions["NonStructuralSchema"].status == "True":
		return w.problem(NotStructural, "has a schema that is not structural, so the API server validates no object against it: "+conditions["NonStructuralSchema"].message, "apply it: "+Remedy), true
	case conditions["NamesAccepted"].status == "False":
		return w.problem(NotEstablished, "is not established, because another CustomResourceDefinition has its names: "+conditions["NamesAccepted"].message,
			"remove the other one (kubectl get customresourcedefinitions), or the names that both have"), true
	case conditions["Established"].status != "True":
		return w.problem(NotEstablished, "is not established yet: the API server does not serve the kind", "wait, and if it stays so run kubectl describe customresourcedefinition "+w.name), true
	case !slices.Contains(servedVersions(found), w.version):
		return w.problem(NotServed, fmt.Sprintf("does not serve the version %q", w.version), "apply it: "+Remedy), true
	case !numbered:
		return w.problem(Older, fmt.Sprintf("has no revision of its schema, and this version of Gatehouse has %d: the API server drops fields that it lacks", w.revision),
			"apply it: "+Remedy), true
	case revision < w.revision:
		return w.problem(Older, fmt.Sprintf("has revision %d of its schema, and this version of Gatehouse has %d: the API server drops fields that it lacks", revision, w.revision),
			"apply it: "+Remedy), true
	case revision > w.revision:
		return w.problem(Newer, fmt.Sprintf("has revision %d of its schema, and this version of Gatehouse knows %d: objects with newer fields have errors", revision, w.revision),
			"finish the upgrade of Gatehouse; keep the definition of the newest version that runs"), true
	}
	return Problem{}, false
}

func (w desired) problem(reason Reason, text, remedy string) Problem {
	return Problem{Reason: reason, Text: "the CustomResourceDefinition " + strconv.Quote(w.name) + " " + text, Remedy: remedy}
}

type condition struct{ status, message string }

// conditionsOf are the conditions of a definition by type, their messages cut.
func conditionsOf(definition *unstructured.Unstructured) map[string]condition {
	out := map[string]condition{}
	list, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	for _, element := range list {
		fields, _ := element.(map[string]any)
		kind, _ := fields["type"].(string)
		status, _ := fields["status"].(string)
		message, _ := fields["message"].(string)
		out[kind] = condition{status, strconv.Quote(strict.Cut(message, maxQuoted))}
	}
	return out
}

// servedVersions are the versions that a definition serves.
func servedVersions(definition *unstructured.Unstructured) []string {
	var out []string
	list, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, element := range list {
		fields, _ := element.(map[string]any)
		name, _ := fields["name"].(string)
		if served, _ := fields["served"].(bool); served {
			out = append(out, name)
		}
	}
	return out
}
