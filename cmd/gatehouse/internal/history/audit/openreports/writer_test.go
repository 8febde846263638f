package openreports_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit/openreports"
	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
)

var (
	reports        = fakeapi.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "openreports.io", Version: "v1alpha1", Resource: "reports"}, Kind: "Report", Namespaced: true}
	clusterReports = fakeapi.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "openreports.io", Version: "v1alpha1", Resource: "clusterreports"}, Kind: "ClusterReport"}
	namespaces     = fakeapi.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Kind: "Namespace"}
)

// world is an API server with the namespaces shop and bank.
type world struct{ *fakeapi.Server }

func newWorld(resources ...fakeapi.Resource) *world {
	w := &world{fakeapi.New(append(resources, namespaces)...)}
	for _, name := range []string{"shop", "bank"} {
		w.Put(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}})
	}
	return w
}

func (w *world) writer(t *testing.T, namespace string) *openreports.Writer {
	t.Helper()
	objects, err := dynamic.NewForConfig(w.Config("gatehouse-audit"))
	if err != nil {
		t.Fatal(err)
	}
	meta, err := metadata.NewForConfig(w.Config("gatehouse-audit"))
	if err != nil {
		t.Fatal(err)
	}
	return openreports.NewWriter(objects, meta, namespace)
}

// writes returns the requests that changed something since the last call.
func (w *world) writes() []string {
	var all []string
	for _, r := range w.Requests(func(r *fakeapi.Request) bool { return r.Verb != "get" && r.Verb != "list" }) {
		all = append(all, r.String())
	}
	return all
}

func check(t *testing.T, what string, got openreports.Changes, err error, want openreports.Changes) {
	t.Helper()
	if err != nil || got != want {
		t.Errorf("%s: %+v, %v, want %+v", what, got, err, want)
	}
}

// TestInstalls: two installs in a cluster do not touch each other's reports.
func TestInstalls(t *testing.T) {
	t.Parallel()
	w := newWorld(reports, clusterReports)
	one, two := w.writer(t, "gatehouse-system"), w.writer(t, "trial")
	all := collect(&audit.Outcome{}, violation("shop", "limits", "a", audit.Fail))
	for range 2 {
		for _, writer := range []*openreports.Writer{one, two} {
			if _, err := writer.Write(t.Context(), all, true); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := len(w.List(reports)); n != 2 || len(w.writes()) != 4 {
		t.Errorf("%d reports, by %v", n, w.writes())
	}
	changes, err := one.Write(t.Context(), nil, true)
	check(t, "one is gone", changes, err, openreports.Changes{Removed: 1})
	if left := w.List(reports); len(left) != 1 || left[0].GetName() != "gatehouse-audit-trial" {
		t.Errorf("what is left is %v", left)
	}
}

// TestNamespaceIsDeleted: a namespace that is being deleted, or is gone, gets no report and is no error.
func TestNamespaceIsDeleted(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*world){
		"gone": func(w *world) {
			w.Intercept = func(r *fakeapi.Request) (any, error) {
				if r.Verb != "patch" || !strings.Contains(r.String(), "/namespaces/shop/") {
					return nil, nil
				}
				return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop")
			}
		},
		"terminating": func(w *world) {
			w.Intercept = func(r *fakeapi.Request) (any, error) {
				if r.Verb != "patch" || !strings.Contains(r.String(), "/namespaces/shop/") {
					return nil, nil
				}
				err := apierrors.NewForbidden(schema.GroupResource{Group: "openreports.io", Resource: "reports"}, "gatehouse-audit", errors.New("unable to create new content in namespace shop because it is being terminated"))
				err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
				return nil, err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(reports, clusterReports)
			change(w)
			all := collect(&audit.Outcome{}, violation("shop", "limits", "a", audit.Fail), violation("bank", "limits", "a", audit.Fail))
			changes, err := w.writer(t, "gatehouse-system").Write(t.Context(), all, true)
			check(t, "the reports", changes, err, openreports.Changes{Written: 1})
		})
	}
}

// TestFailures: a cluster without the kinds and a missing right end the attempt; one report that is refused does not.
func TestFailures(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "openreports.io", Resource: "reports"}, "gatehouse-audit", errors.New(`User "x" cannot patch resource "reports"`))
	invalid := apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", schema.GroupResource{Resource: "reports"}, "x", "no", 0, false)
	patching := func(err error) func(*fakeapi.Request) (any, error) {
		return func(r *fakeapi.Request) (any, error) {
			if r.Verb == "patch" && strings.Contains(r.String(), "/namespaces/bank/") {
				return nil, err
			}
			return nil, nil
		}
	}
	for name, c := range map[string]struct {
		resources []fakeapi.Resource
		intercept func(*fakeapi.Request) (any, error)
		unserved  bool
		changes   openreports.Changes
	}{
		"no kinds":            {nil, nil, true, openreports.Changes{}},
		"a missing right":     {[]fakeapi.Resource{reports, clusterReports}, patching(forbidden), false, openreports.Changes{}},
		"one that is refused": {[]fakeapi.Resource{reports, clusterReports}, patching(invalid), false, openreports.Changes{Written: 1}},
		"a quota": {[]fakeapi.Resource{reports, clusterReports}, patching(apierrors.NewForbidden(schema.GroupResource{Group: "openreports.io", Resource: "reports"}, "gatehouse-audit",
			errors.New("exceeded quota: none, requested: count/reports.openreports.io=1"))), false, openreports.Changes{Written: 1}},
		"too large": {[]fakeapi.Resource{reports, clusterReports}, patching(apierrors.NewGenericServerResponse(http.StatusInternalServerError, "patch", schema.GroupResource{Resource: "reports"}, "x",
			"etcdserver: request is too large", 0, false)), false, openreports.Changes{Written: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(c.resources...)
			w.Intercept = c.intercept
			all := collect(&audit.Outcome{}, violation("shop", "limits", "a", audit.Fail), violation("bank", "limits", "a", audit.Fail))
			changes, err := w.writer(t, "gatehouse-system").Write(t.Context(), all, true)
			if err == nil || errors.Is(err, openreports.ErrUnserved) != c.unserved || changes != c.changes {
				t.Errorf("%+v, %v", changes, err)
			}
			if c.changes.Written > 0 && !slices.ContainsFunc(w.List(reports), func(o *unstructured.Unstructured) bool { return o.GetNamespace() == "shop" }) {
				t.Error("the other report is not written")
			}
		})
	}
}

// TestFailuresOfMany: an API server that does not answer is not asked for each report. One that refuses all of them is, removals
// included, and the error is short.
func TestFailuresOfMany(t *testing.T) {
	t.Parallel()
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "reports"}, "gatehouse-audit", errors.New("exceeded quota"))
	for name, c := range map[string]struct {
		err                error
		requests, removals int
	}{
		"no answer":       {apierrors.NewServiceUnavailable("no"), 1, 0},
		"a missing right": {apierrors.NewForbidden(schema.GroupResource{Resource: "reports"}, "x", errors.New(`User "x" cannot patch resource "reports"`)), 1, 0},
		"refused":         {quota, 20, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(reports, clusterReports)
			writer := w.writer(t, "gatehouse-system")
			changes, err := writer.Write(t.Context(), collect(&audit.Outcome{}, violation("shop", "limits", "a", audit.Fail)), true)
			check(t, "the first", changes, err, openreports.Changes{Written: 1})
			var results []audit.Result
			for i := range 20 {
				namespace := fmt.Sprintf("team-%02d", i)
				w.Put(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}})
				results = append(results, violation(namespace, "limits", "a", audit.Fail))
			}
			w.Update(func() {
				w.Intercept = func(r *fakeapi.Request) (any, error) {
					if r.Verb == "patch" {
						return nil, c.err
					}
					return nil, nil
				}
			})
			before := len(w.writes())
			changes, err = writer.Write(t.Context(), collect(&audit.Outcome{}, results...), true)
			if err == nil || len(err.Error()) > 2000 || changes.Removed != c.removals {
				t.Errorf("%+v, %v", changes, err)
			}
			if got := len(w.writes()) - before - c.removals; got != c.requests {
				t.Errorf("%d writes, want %d", got, c.requests)
			}
		})
	}
}

// TestUnread: what is no longer found may be among what was not read, and is not removed until everything was.
func TestUnread(t *testing.T) {
	t.Parallel()
	w := newWorld(reports, clusterReports)
	writer := w.writer(t, "gatehouse-system")
	shop, bank := violation("shop", "limits", "a", audit.Fail), violation("bank", "limits", "a", audit.Fail)
	changes, err := writer.Write(t.Context(), collect(&audit.Outcome{}, shop, bank), true)
	check(t, "all", changes, err, openreports.Changes{Written: 2})
	changes, err = writer.Write(t.Context(), collect(&audit.Outcome{}, shop), false)
	check(t, "pods were not read", changes, err, openreports.Changes{Unchanged: 1})
	changes, err = writer.Write(t.Context(), collect(&audit.Outcome{}, shop), true)
	check(t, "pods were read", changes, err, openreports.Changes{Unchanged: 1, Removed: 1})
}
