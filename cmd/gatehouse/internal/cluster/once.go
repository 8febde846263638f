package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/paging"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

var (
	_ policy.Objects     = (*Once)(nil)
	_ sidecar.Namespaces = (*Once)(nil)
	_ sidecar.ConfigMaps = (*Once)(nil)
)

const (
	// maxRemembered bounds the remembered objects, and maxLists the remembered lists: rights and params are in namespaces, which
	// tenants create.
	maxRemembered, maxLists = 2048, 64
	// rememberFor is longer than a command runs.
	rememberFor = 24 * time.Hour
	// maxProblems bounds the problems.
	maxProblems = 20
)

// Once looks things up for a command: it reads each object with get or list when it is asked for the first time, and
// remembers the answer. Unlike a View, it needs no right to watch. It is safe for concurrent use.
type Once struct {
	// ctx is that of the command: a look-up has none.
	ctx     context.Context //nolint:containedctx // see above
	cluster *Cluster

	// objects, lists and resources of kinds are what was read last.
	objects, lists, resources *cache.LRUExpireCache

	mu       sync.Mutex
	problems []error
	more     int
}

// Once returns what a command looks up until ctx ends.
func (c *Cluster) Once(ctx context.Context) *Once {
	return &Once{
		ctx: ctx, cluster: c, resources: cache.NewLRUExpireCache(maxRemembered),
		objects: cache.NewLRUExpireCache(maxRemembered), lists: cache.NewLRUExpireCache(maxLists),
	}
}

// Provide makes a configuration look up everything here.
func (o *Once) Provide(p *policy.Spec, s *sidecar.Spec) {
	p.Objects, p.Authorizer = o, o.cluster.access.authorizer()
	s.Namespaces, s.ConfigMaps = o, o
}

// Problems returns what could not be read so far, in the order in which it was missed, and the number of others.
func (o *Once) Problems() (list []error, more int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.problems), o.more
}

// Resources lists the custom resources that decide about objects: those for tokens are not read. Kinds that the
// cluster does not have are none; installed reports whether it has any of them. The error is that the API server
// cannot be reached. A missing right is a problem.
func (o *Once) Resources() (all []*config.Resource, installed bool, err error) {
	for _, kind := range config.ResourceKinds() {
		switch kind.Kind {
		case "AccessToken", "Grant", "TokenRevocation":
			continue
		}
		served, err := o.each(kind, func(u *unstructured.Unstructured) error {
			all = append(all, config.ReadResource(u))
			return nil
		})
		if err != nil {
			return nil, installed, err
		}
		installed = installed || served
	}
	return all, installed, nil
}

// Native lists the cluster's own MutatingAdmissionPolicies and ValidatingAdmissionPolicies, and their bindings, in the newest version that is
// served: the versions have the same fields. Errors are as those of Resources.
func (o *Once) Native() (all []*config.Resource, err error) {
	for _, of := range []struct {
		kind     string
		versions []string
		new      func() metav1.Object
	}{
		{"ValidatingAdmissionPolicy", []string{"v1"}, func() metav1.Object { return new(admissionregistrationv1.ValidatingAdmissionPolicy) }},
		{"ValidatingAdmissionPolicyBinding", []string{"v1"}, func() metav1.Object { return new(admissionregistrationv1.ValidatingAdmissionPolicyBinding) }},
		{"MutatingAdmissionPolicy", []string{"v1", "v1beta1"}, func() metav1.Object { return new(admissionregistrationv1.MutatingAdmissionPolicy) }},
		{"MutatingAdmissionPolicyBinding", []string{"v1", "v1beta1"}, func() metav1.Object { return new(admissionregistrationv1.MutatingAdmissionPolicyBinding) }},
	} {
		for _, version := range of.versions {
			kind := schema.GroupVersionKind{Group: admissionregistrationv1.GroupName, Version: version, Kind: of.kind}
			served, err := o.each(kind, func(u *unstructured.Unstructured) error {
				object := of.new()
				u.SetManagedFields(nil)
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, object); err != nil {
					return fmt.Errorf("%s %q cannot be read: %w", u.GetKind(), u.GetName(), err)
				}
				all = append(all, config.NativeResource(of.kind, object))
				return nil
			})
			if err != nil {
				return nil, err
			}
			if served {
				break
			}
		}
	}
	return all, nil
}

// each calls f with every object of a kind, and reports whether the cluster has it. A missing right is a problem, any
// other failure an error.
func (o *Once) each(kind schema.GroupVersionKind, f func(*unstructured.Unstructured) error) (served bool, err error) {
	r, err := o.find(kind)
	if errors.Is(err, policy.ErrNotServed) {
		return false, nil
	}
	if err == nil {
		err = paging.Objects(o.ctx, o.source(kind).objects(r, "").List, metav1.ListOptions{}, f)
	}
	switch {
	case apierrors.IsForbidden(err):
		_ = o.failed("list "+resourceName(r, kind), err) // which notes it
		return true, nil
	case err != nil:
		return true, fmt.Errorf("cannot list %s: %w", resourceName(r, kind), err)
	default:
		return true, nil
	}
}

// resourceName returns the plural with its group, or the kind if the plural is not known.
func resourceName(r *resource, kind schema.GroupVersionKind) string {
	if r == nil {
		return "objects of kind " + kindLabel(kind)
	}
	return r.GroupResource().String()
}

// Namespace returns a namespace, and false if there is none or it cannot be read.
func (o *Once) Namespace(name string) (*corev1.Namespace, bool) {
	if len(validation.IsDNS1123Label(name)) > 0 {
		return nil, false
	}
	value, _ := remember(o, o.objects, objectKey{name: name}, func() (*corev1.Namespace, error) {
		u, err := o.Get(namespaceKind, "", name)
		if u == nil || err != nil {
			return nil, err
		}
		kept, err := keepNamespace(u)
		n, _ := kept.(*corev1.Namespace)
		return n, err
	})
	return value, value != nil
}

// objectKey is the key of a remembered object or list. That of a Namespace in its own type has no kind.
type objectKey struct {
	kind                      schema.GroupVersionKind
	namespace, name, selector string
}

// remembered is what was read, or why it could not be.
type remembered[T any] struct {
	value T
	err   error
}

// remember returns what is remembered for a key, or reads it. An error is remembered too: a command does not try again.
func remember[T any](o *Once, in *cache.LRUExpireCache, key any, read func() (T, error)) (T, error) {
	if known, is := in.Get(key); is {
		found, _ := known.(remembered[T])
		return found.value, found.err
	}
	value, err := read()
	if o.ctx.Err() == nil {
		in.Add(key, remembered[T]{value, err}, rememberFor)
	}
	return value, err
}

// find returns the resource of a kind.
func (o *Once) find(kind schema.GroupVersionKind) (*resource, error) {
	return remember(o, o.resources, kind, func() (*resource, error) { return o.source(kind).find(o.ctx) })
}

func (o *Once) source(kind schema.GroupVersionKind) *source {
	return &source{kind, o.cluster.dynamic, o.cluster.discovery}
}

// Namespaced reports whether objects of a kind are in namespaces. An error says that the cluster has no such kind, or why
// this is unknown.
func (o *Once) Namespaced(kind schema.GroupVersionKind) (bool, error) {
	r, err := o.find(kind)
	if err != nil {
		return false, err
	}
	return r.namespaced, nil
}

// Get returns an object of a kind, nil if there is none. The error names the right that is missing, or says why else the
// object cannot be read.
func (o *Once) Get(kind schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	return remember(o, o.objects, objectKey{kind: kind, namespace: namespace, name: name}, func() (*unstructured.Unstructured, error) {
		r, err := o.find(kind)
		if err != nil {
			return nil, err
		}
		u, err := o.source(kind).objects(r, namespace).Get(o.ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, nil //nolint:nilnil // there is none
		}
		if err != nil {
			return nil, o.failed(rightTo("get", r, namespace), err)
		}
		u.SetManagedFields(nil)
		return u, nil
	})
}

// List returns every object of a kind in a namespace, or without one if it is "", that the selector matches, in the order
// of their names. A nil selector matches all. Errors are as for Get.
func (o *Once) List(kind schema.GroupVersionKind, namespace string, selector labels.Selector) ([]*unstructured.Unstructured, error) {
	if selector == nil {
		selector = labels.Everything()
	}
	return remember(o, o.lists, objectKey{kind: kind, namespace: namespace, selector: selector.String()}, func() (list []*unstructured.Unstructured, err error) {
		r, err := o.find(kind)
		if err != nil {
			return nil, err
		}
		options := metav1.ListOptions{LabelSelector: selector.String()}
		err = paging.Objects(o.ctx, o.source(kind).objects(r, namespace).List, options, func(u *unstructured.Unstructured) error {
			u.SetManagedFields(nil)
			list = append(list, u)
			return nil
		})
		if err != nil {
			return nil, o.failed(rightTo("list", r, namespace), err)
		}
		slices.SortFunc(list, func(a, b *unstructured.Unstructured) int { return cmp.Compare(a.GetName(), b.GetName()) })
		return list, nil
	})
}

// failed notes that objects cannot be read, once and unless the command ends, and returns the error of the look-up. Right is what it
// takes, as `list configmaps in namespace "shop"`.
func (o *Once) failed(right string, err error) error {
	if apierr.Classify(err).IsDenied() {
		hint := ""
		if strings.HasSuffix(right, "."+v1alpha1.GroupVersion.Group) || strings.HasSuffix(right, "."+admissionregistrationv1.GroupName) {
			hint = " (hint: bind the ClusterRole " + apierr.RoleAuditor + ")"
		}
		err = errors.New("missing right: " + right + hint)
	} else {
		err = fmt.Errorf("cannot %s: %w", right, err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.ctx.Err() != nil, slices.ContainsFunc(o.problems, func(known error) bool { return known.Error() == err.Error() }):
	case len(o.problems) >= maxProblems:
		o.more++
	default:
		o.problems = append(o.problems, err)
	}
	return &unansweredError{err}
}

// rightTo names the right to read objects.
func rightTo(verb string, r *resource, namespace string) string {
	right := verb + " " + r.GroupResource().String()
	if namespace != "" {
		right += " in namespace " + strconv.Quote(namespace)
	}
	return right
}

// unansweredError is the error of a look-up that the API server did not answer. Gatehouse in the cluster has other
// rights, so that what failurePolicy says would be a guess: as for a recording, the policy is undecided.
type unansweredError struct{ error }

// Unwrap returns the error.
func (e *unansweredError) Unwrap() error { return e.error }

// Is makes it policy.ErrUnanswered, without the text of that.
func (e *unansweredError) Is(target error) bool { return target == policy.ErrUnanswered }

// ConfigMapData returns the data of a ConfigMap, and false if there is none or it cannot be read.
func (o *Once) ConfigMapData(namespace, name string) (map[string]string, bool) {
	return configMapData(o, namespace, name)
}

// Definition returns the CustomResourceDefinition of a kind, nil for a kind that has none. If it must not be read, a
// definition without a schema says what discovery does, and opaque is true, as for kinds of other API servers.
func (o *Once) Definition(kind schema.GroupVersionKind) (definition *unstructured.Unstructured, opaque bool, err error) {
	r, err := o.find(kind)
	if err != nil {
		if errors.Is(err, policy.ErrNotServed) {
			return nil, false, nil
		}
		return nil, false, err
	}
	crds := schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	definition, _ = o.Get(crds, "", r.GroupResource().String()) // a missing right is noted
	if definition != nil {
		return definition, false, nil
	}
	scope := "Cluster"
	if r.namespaced {
		scope = "Namespaced"
	}
	definition = &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{
			"group": kind.Group, "scope": scope,
			"names":    map[string]any{"kind": kind.Kind, "plural": r.Resource},
			"versions": []any{map[string]any{"name": kind.Version, "served": true, "storage": true}},
		},
	}}
	definition.SetGroupVersionKind(crds)
	definition.SetName(r.GroupResource().String())
	return definition, true, nil
}
