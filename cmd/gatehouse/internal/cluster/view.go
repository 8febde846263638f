package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

var (
	_ policy.Objects     = (*View)(nil)
	_ sidecar.Namespaces = (*View)(nil)
	_ sidecar.ConfigMaps = (*View)(nil)
)

// View is the part of a cluster that one configuration looks up. It is safe for concurrent use. The objects that it
// returns are shared and must not be changed.
//
// A View answers from memory. If an object that is looked up by name is not in memory, the View asks the API server once,
// as the API server itself does: the object may be new, and its event still on the way.
type View struct {
	liveGetter *liveGetter
	// namespaces is nil if they are not needed.
	namespaces *follower
	// params has those of a kind, whose targets do not cover each other.
	params map[schema.GroupVersionKind][]*follower
	// all is in a fixed order.
	all []*follower
}

// Namespace returns a namespace, and false if there is none or it is not known.
func (v *View) Namespace(name string) (*corev1.Namespace, bool) {
	if v.namespaces == nil {
		return nil, false
	}
	object, _ := v.find(v.namespaces, "", name)
	namespace, ok := object.(*corev1.Namespace)
	return namespace, ok
}

// find returns an object, nil if there is none. It reports whether the objects have been read.
func (v *View) find(f *follower, namespace, name string) (object any, read bool) {
	if object, read = f.get(namespace, name); object != nil || !read {
		return object, read
	}
	return v.liveGetter.getLive(f, namespace, name), true
}

// Namespaced reports whether objects of a kind are in namespaces. An error says
// that the cluster has no such kind, or that this is unknown.
func (v *View) Namespaced(kind schema.GroupVersionKind) (bool, error) {
	all := v.params[kind]
	for _, f := range all {
		if found := f.state.Load().resource; found != nil {
			return found.namespaced, nil
		}
	}
	if len(all) == 0 {
		return false, unnamed(kind)
	}
	return false, all[0].notReadError()
}

// unnamed returns the error for a look-up of a kind that no policy names.
func unnamed(kind schema.GroupVersionKind) error {
	return fmt.Errorf("failed to find resource referenced by paramKind: '%v': no binding names it, so it is not read from the cluster", kind)
}

// covering returns the follower that has an object, or all objects if the name is "".
func (v *View) covering(kind schema.GroupVersionKind, namespace, name string) *follower {
	wanted := Target{kind, namespace, name}
	for _, f := range v.params[kind] {
		if f.covers(wanted) {
			return f
		}
	}
	return nil
}

// Get returns an object of a kind, nil if there is none. The error is that the cluster has
// no such kind, or has not been read.
func (v *View) Get(kind schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	f := v.covering(kind, namespace, name)
	if f == nil {
		return nil, unnamed(kind)
	}
	found, read := v.find(f, namespace, name)
	if !read {
		return nil, f.notReadError()
	}
	object, _ := found.(*param)
	if object == nil {
		return nil, nil //nolint:nilnil // there is none, as the interface says
	}
	return object.Unstructured, nil
}

// List is every object of a kind in a namespace, or without one if it is "",
// that the selector matches, in the order of their names. A nil selector matches
// all. Errors are as for Get.
func (v *View) List(kind schema.GroupVersionKind, namespace string, selector labels.Selector) ([]*unstructured.Unstructured, error) {
	f := v.covering(kind, namespace, "")
	if f == nil {
		return nil, unnamed(kind)
	}
	s := f.state.Load().store
	if s == nil {
		return nil, f.notReadError()
	}
	all, err := s.ByIndex(cache.NamespaceIndex, namespace)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", kind, err)
	}
	var list []*unstructured.Unstructured
	for _, item := range all {
		object, ok := item.(*param)
		if ok && (selector == nil || selector.Matches(object.labels)) {
			list = append(list, object.Unstructured)
		}
	}
	slices.SortFunc(list, func(a, b *unstructured.Unstructured) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return list, nil
}

// ConfigMapData returns the data of a ConfigMap, and false if there is none or it is not
// known.
func (v *View) ConfigMapData(namespace, name string) (map[string]string, bool) {
	return configMapData(v, namespace, name)
}

// configMapData returns the data of a ConfigMap among objects.
func configMapData(of policy.Objects, namespace, name string) (map[string]string, bool) {
	object, err := of.Get(corev1.SchemeGroupVersion.WithKind("ConfigMap"), namespace, name)
	if err != nil || object == nil {
		return nil, false
	}
	data, _, err := unstructured.NestedStringMap(object.Object, "data")
	return data, err == nil
}

// Wait returns when everything has been read, but for kinds that the cluster
// does not have, or with ctx. Then the error names what is missing and why.
func (v *View) Wait(ctx context.Context) error { return waitFor(ctx, v.all) }

// waitFor waits until all followers have been read, or for ctx. A wait for a follower that
// timed out is not repeated, because it would delay every new configuration.
func waitFor(ctx context.Context, all []*follower) error {
	for _, f := range all {
		if f.late.Load() {
			continue
		}
		select {
		case <-f.resolved:
		case <-ctx.Done():
			f.late.Store(!errors.Is(ctx.Err(), context.Canceled))
		}
	}
	return missing(all)
}

// missing returns an error that names the objects that have not been read, or nil.
func missing(all []*follower) error {
	var list []string
	for _, f := range all {
		select {
		case <-f.resolved:
			continue
		default:
		}
		text := f.String()
		if err := f.state.Load().err; err != nil {
			text += ": " + err.Error()
			if classify(err) == apierr.Forbidden {
				text += " (hint: " + f.grantHint() + ")"
			}
		}
		list = append(list, text)
	}
	if list == nil {
		return nil
	}
	slices.Sort(list)
	return errors.New(strings.Join(list, "; "))
}
