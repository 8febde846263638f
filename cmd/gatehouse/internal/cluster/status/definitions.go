package status

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/manifests/crds"
)

// definitionsPause is the time between two comparisons of the CustomResourceDefinitions with those of this program.
const definitionsPause = time.Minute

// definition is a CustomResourceDefinition of this program.
type definition struct {
	name, kind string
	revision   int
}

// definitions returns those of this program.
func definitions() ([]definition, error) {
	all, err := crds.All()
	if err != nil {
		return nil, err
	}
	out := make([]definition, len(all))
	for i, one := range all {
		out[i].name = one.GetName()
		out[i].kind, _, _ = unstructured.NestedString(one.Object, "spec", "names", "kind")
		out[i].revision, _ = crds.Revision(one)
	}
	return out, nil
}

// compareDefinitions notes the kinds whose definition in the cluster is older than that of this program: the API server drops the
// fields that it lacks. A newer one is there first in every upgrade, and an object with a field that is unknown here has errors of
// its own. Its right is to get the definitions by name.
func (w *writer) compareDefinitions(ctx context.Context) {
	if time.Since(w.compared) < definitionsPause {
		return
	}
	w.compared = time.Now()
	const what = "check whether the CustomResourceDefinitions match this version of Gatehouse"
	client := w.c.cfg.Client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for _, d := range w.c.definitions {
		// What the API server has in memory is recent enough, and costs etcd nothing.
		found, err := client.Get(ctx, d.name, metav1.GetOptions{ResourceVersion: "0"})
		if err != nil && !apierrors.IsNotFound(err) {
			class, hint := apierr.Classify(err).Coarse(), "Gatehouse retries; until then, the previous result stays"
			if class == apierr.Forbidden {
				hint = "allow the ServiceAccount to get customresourcedefinitions of apiextensions.k8s.io, by name (gatehouse manifests prints the rights); everything else works without"
			}
			w.c.fail(ctx, what, class, err, hint)
			return
		}
		outdated := fmt.Sprintf("update the CustomResourceDefinition %q", d.name)
		if revision := revisionOf(found); err != nil || revision >= d.revision {
			delete(w.outdated, d.kind)
			w.c.problems.Recover(outdated)
		} else {
			text := fmt.Sprintf("the CustomResourceDefinition %q has revision %d of its schema, and this version of Gatehouse has %d: the API server drops fields that it lacks",
				d.name, revision, d.revision)
			w.outdated[d.kind] = text + " (hint: apply it: " + crds.ApplyCommand + ")"
			w.c.problems.Report(outdated, "", text, "apply it: "+crds.ApplyCommand)
		}
	}
	w.c.problems.Recover(what)
}

// revisionOf returns the revision of the schema of a definition, 0 without one.
func revisionOf(definition *unstructured.Unstructured) int {
	if definition == nil {
		return 0
	}
	revision, _ := crds.Revision(definition)
	return revision
}
