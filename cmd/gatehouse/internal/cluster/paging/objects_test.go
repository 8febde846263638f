package paging_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/paging"
	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
)

// TestObjects visits each object that is selected once, even if a page expires before it is read.
func TestObjects(t *testing.T) {
	t.Parallel()
	things := fakeapi.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}, Kind: "Thing"}
	server := fakeapi.New(things)
	var want []string
	for i := range 1_089 {
		name, label := fmt.Sprintf("%06d", i), []string{"yes", "no"}[i%11/10]
		server.Put(map[string]any{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": name, "labels": map[string]any{"selected": label}}})
		if label == "yes" {
			want = append(want, name)
		}
	}
	client, err := dynamic.NewForConfig(server.Config("test"))
	if err != nil {
		t.Fatal(err)
	}
	stopped := errors.New("stopped")
	for name, c := range map[string]struct {
		expires int // the list of this number, from 1
		stop    error
		want    []string
		lists   int
	}{
		"pages":               {0, nil, want, 2},
		"one expired":         {2, nil, want, 3},
		"the first expired":   {1, nil, nil, 1},
		"a visit that failed": {0, stopped, want[:1], 2},
	} {
		lists := 0
		server.Update(func() {
			server.Intercept = func(*fakeapi.Request) (any, error) {
				if lists++; lists == c.expires {
					return nil, apierrors.NewResourceExpired("the provided continue parameter is too old")
				}
				return nil, nil
			}
		})
		var got []string
		err := paging.Objects(t.Context(), client.Resource(things.GroupVersionResource).List, metav1.ListOptions{LabelSelector: "selected=yes"}, func(u *unstructured.Unstructured) error {
			got = append(got, u.GetName())
			return c.stop
		})
		if !slices.Equal(got, c.want) || lists != c.lists || errors.Is(err, stopped) != (c.stop != nil) || apierrors.IsResourceExpired(err) != (c.want == nil) {
			t.Errorf("%s: %d objects of %d lists, %v", name, len(got), lists, err)
		}
	}
}
