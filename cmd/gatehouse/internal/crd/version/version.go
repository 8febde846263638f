// Package version reports whether the CustomResourceDefinitions in a cluster are
// those of this program.
//
// An older definition drops fields that the program knows, and a newer one has fields
// that the program does not know: both are reported, and neither keeps anything from
// being used.
package version

import (
	"cmp"
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

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/problemlog"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/sleep"
	"github.com/gatehouse-dev/gatehouse/manifests/crds"
	"github.com/gatehouse-dev/gatehouse/webhooks/strict"
)

// Remedy is the command that puts the definitions of this program in place.
const Remedy = "gatehouse manifests --crds | kubectl apply --server-side -f -"

const (
	// interval is how often the definitions are read, and retryInterval how often while one
	// has a problem.
	interval, retryInterval = time.Minute, 5 * time.Second
	// maxQuoted bounds, in bytes, what others have written and a message repeats.
	maxQuoted = 200
)

// Definitions compares the definitions in a cluster with those of this program. It
// is safe for concurrent use.
type Definitions struct {
	client   dynamic.NamespaceableResourceInterface
	log      *slog.Logger
	problems *problemlog.Log
	desired  []desired
	changed  chan struct{}

	mu    sync.Mutex
	known map[string]problem // by kind
}

// desired is a definition of this program.
type desired struct {
	name, kind, version string
	revision            int
}

// problem is what is wrong with a definition in the cluster.
type problem struct {
	text, remedy string
	// newer reports whether the definition is that of a later version of this program.
	newer bool
}

// New returns a Definitions that reads CustomResourceDefinitions with a client, which needs the right to get
// them by name, and a timeout. Log gets a line for each change. The error is about the definitions in this program.
func New(client dynamic.Interface, log *slog.Logger) (*Definitions, error) {
	all, err := crds.All()
	if err != nil {
		return nil, err
	}
	d := &Definitions{
		client: client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}),
		log:    log, problems: problemlog.New(log, "CustomResourceDefinitions"), changed: make(chan struct{}, 1), known: map[string]problem{},
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

// Run compares them every minute, and every few seconds while there is a problem, until
// the context ends. It is called once.
func (d *Definitions) Run(ctx context.Context) {
	for {
		pause := interval
		if !d.reconcile(ctx) {
			pause = retryInterval
		}
		if !sleep.Context(ctx, wait.Jitter(pause, 0.1)) {
			return
		}
	}
}

// reconcile reads the definitions once. It reports whether there is no problem that may be
// solved soon; a missing right is not one.
func (d *Definitions) reconcile(ctx context.Context) bool {
	now, healthy := map[string]problem{}, true
	var failure error
	for _, w := range d.desired {
		// What the API server has in memory is recent enough, and costs etcd nothing.
		found, err := d.client.Get(ctx, w.name, metav1.GetOptions{ResourceVersion: "0"})
		switch {
		case ctx.Err() != nil:
			return true
		case apierrors.IsNotFound(err):
			now[w.kind] = w.problem("is missing: there can be no "+w.kind+" in the cluster", "apply it: "+Remedy)
		case err != nil:
			failure = cmp.Or(failure, fmt.Errorf("customresourcedefinition %q: %w", w.name, err))
			healthy = healthy && apierr.Classify(err).IsDenied()
			if last, known := d.known[w.kind]; known {
				now[w.kind] = last // holds until something else is known
			}
		default:
			if p := w.compare(found); p != (problem{}) {
				now[w.kind] = p
			}
		}
	}
	d.reportFailure(failure)
	d.reportChanges(ctx, now)
	d.mu.Lock()
	different := !maps.Equal(d.known, now)
	d.known = now
	d.mu.Unlock()
	if different {
		select {
		case d.changed <- struct{}{}:
		default: // it is known already that there is something new
		}
	}
	return healthy && len(now) == 0
}

// reportFailure logs that definitions cannot be compared, once for as long as that lasts.
func (d *Definitions) reportFailure(err error) {
	const what = "check whether the CustomResourceDefinitions match this version of Gatehouse"
	if err == nil {
		d.problems.Recover(what)
		return
	}
	class, hint := apierr.Classify(err).Coarse(), "Gatehouse retries; until then, the previous result stays"
	if class == apierr.Forbidden {
		hint = "allow the ServiceAccount to get customresourcedefinitions of apiextensions.k8s.io, by name (gatehouse manifests prints the rights); everything else works without"
	}
	d.problems.Report(what, string(class), "cannot "+what+": "+err.Error(), hint)
}

// reportChanges logs what has changed.
func (d *Definitions) reportChanges(ctx context.Context, now map[string]problem) {
	for _, w := range d.desired {
		was, wasWrong := d.known[w.kind]
		differs, isWrong := now[w.kind]
		switch {
		case isWrong && differs != was:
			level := slog.LevelWarn
			if differs.newer {
				level = slog.LevelInfo // as in every upgrade, which begins with the definitions
			}
			d.log.Log(ctx, level, "a CustomResourceDefinition does not match this version of Gatehouse",
				"definition", w.name, "kind", w.kind, "problem", differs.text, "hint", differs.remedy)
		case wasWrong && !isWrong:
			d.log.Info("a CustomResourceDefinition matches this version of Gatehouse again", "definition", w.name, "kind", w.kind)
		}
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
	for kind, p := range d.known {
		if !p.newer {
			out[kind] = p.text + " (hint: " + p.remedy + ")"
		}
	}
	return out
}

// Changed has something to receive after Outdated may have changed. It is for one
// receiver, and is never closed.
func (d *Definitions) Changed() <-chan struct{} { return d.changed }

// compare returns what is wrong with the definition in the cluster.
func (w desired) compare(found *unstructured.Unstructured) problem {
	conditions := conditionsOf(found)
	revision, numbered := crds.Revision(found)
	switch {
	case found.GetDeletionTimestamp() != nil || conditions["Terminating"].status == "True":
		return w.problem("is being deleted, with every object of the kind", "apply it again once it is gone: "+Remedy)
	case conditions["NonStructuralSchema"].status == "True":
		return w.problem("has a schema that is not structural, so the API server validates no object against it: "+conditions["NonStructuralSchema"].message, "apply it: "+Remedy)
	case conditions["NamesAccepted"].status == "False":
		return w.problem("is not established, because another CustomResourceDefinition has its names: "+conditions["NamesAccepted"].message,
			"remove the other one (kubectl get customresourcedefinitions), or the names that both have")
	case conditions["Established"].status != "True":
		return w.problem("is not established yet: the API server does not serve the kind", "wait, and if it stays so run kubectl describe customresourcedefinition "+w.name)
	case !slices.Contains(servedVersions(found), w.version):
		return w.problem(fmt.Sprintf("does not serve the version %q", w.version), "apply it: "+Remedy)
	case !numbered:
		return w.problem(fmt.Sprintf("has no revision of its schema, and this version of Gatehouse has %d: the API server drops fields that it lacks", w.revision),
			"apply it: "+Remedy)
	case revision < w.revision:
		return w.problem(fmt.Sprintf("has revision %d of its schema, and this version of Gatehouse has %d: the API server drops fields that it lacks", revision, w.revision),
			"apply it: "+Remedy)
	case revision > w.revision:
		p := w.problem(fmt.Sprintf("has revision %d of its schema, and this version of Gatehouse knows %d: objects with newer fields have errors", revision, w.revision),
			"finish the upgrade of Gatehouse; keep the definition of the newest version that runs")
		p.newer = true
		return p
	}
	return problem{}
}

func (w desired) problem(text, remedy string) problem {
	return problem{text: "the CustomResourceDefinition " + strconv.Quote(w.name) + " " + text, remedy: remedy}
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
