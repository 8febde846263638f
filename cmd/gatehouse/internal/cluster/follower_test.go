package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// What is missing is reported once, and read as soon as it is there; what was read stays through whatever the API server says.
func TestFollowerGoesOn(t *testing.T) {
	t.Parallel()
	a := newAPIServer()
	c, log := connected(t, a)
	v := c.view(WatchTargets{Targets: []Target{{Kind: limits}}})
	read(t, v) // that there is no such kind
	wantLimit := func(has bool) {
		t.Helper()
		support.Eventually(t, "the object", func() error {
			if object, err := v.Get(limits, "", "x"); (object != nil) != has || err != nil {
				return fmt.Errorf("Get = %v, %w", object, err)
			}
			return nil
		})
	}
	wantLog := func(text string, n int) {
		t.Helper()
		support.Eventually(t, text, func() error {
			if strings.Count(log.String(), text) != n {
				return errors.New(log.String())
			}
			return nil
		})
	}
	if _, err := v.Get(limits, "", "x"); err == nil || !strings.Contains(err.Error(), "the cluster does not serve example.com/v1") {
		t.Errorf("Get = %v", err)
	}
	put := func(name string) { put(t, a, limits, fmt.Sprintf(`{"metadata":{"name":%q}}`, name)) }
	a.Serve(limitResource)
	put("x")
	wantLimit(true)
	recovered := 1
	wantLog("recovered", recovered)

	for text, answer := range map[string]func(r *fakeapi.Request) (any, error){
		"Get ": func(*fakeapi.Request) (any, error) { return nil, errors.New("connection refused") },
		"the API server's answer is not a list": func(r *fakeapi.Request) (any, error) {
			if r.Verb == "watch" {
				return nil, apierrors.NewForbidden(schema.GroupResource{Resource: r.Resource}, "", errors.New("no watch"))
			}
			if r.Verb == "list" {
				return map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"}, nil
			}
			return review(r)
		},
	} {
		a.Update(func() { a.Intercept = answer })
		wantLog("error=\""+text, 1)
		wantLimit(true)
		restore(a)
		recovered++
		wantLog("recovered", recovered)
	}
	a.Delete(limitResource, "", "x")
	wantLimit(false)
	if n := strings.Count(log.String(), "the cluster does not serve"); n != 1 {
		t.Errorf("a kind that is missing is reported %d times:\n%s", n, log)
	}
}

// What is kept of a custom resource is what a replica that starts would read: also
// when nothing but the time of its last change is new. What means nothing is not told.
func TestResourcesOfOneVersion(t *testing.T) {
	t.Parallel()
	const written, later = "2026-01-02T03:05:00Z", "2026-01-02T03:06:00Z"
	profile := func(labels map[string]any, managers ...any) any {
		kept, err := keepResource(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "gatehouse.dev/v1alpha1", "kind": "SidecarProfile",
			"metadata": map[string]any{"name": "a", "uid": "0a1b", "generation": int64(1), "labels": labels, "managedFields": managers},
			"spec":     map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "a", "image": "x"}}}}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return kept
	}
	manager := func(name, field, at string) any {
		return map[string]any{"manager": name, "operation": "Update", "time": at, "fieldsV1": map[string]any{field: map[string]any{}}}
	}
	before := profile(nil, manager("edit", "f:spec", written))
	for _, test := range []struct {
		name  string
		after any
		same  bool
		at    string
	}{
		{"labelled", profile(map[string]any{"team": "x"}, manager("edit", "f:spec", written), manager("label", "f:metadata", later)), true, written},
		{"labelled by who wrote it", profile(map[string]any{"team": "x"}, manager("edit", "f:spec", later)), false, later},
	} {
		kept, ok := test.after.(*config.Resource)
		if !ok || kept.ChangedAt.UTC().Format(time.RFC3339) != test.at || isSameResource(before, test.after) != test.same {
			t.Errorf("%s: %+v, want %s and %v", test.name, test.after, test.at, test.same)
		}
	}
}
