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

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/paging"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

var (
	_ policy.Objects     = (*Once)(nil)
	_ sidecar.Namespaces = (*Once)(nil)
	_ sidecar.ConfigMaps = (*Once)(nil)
)

const (
	// maxRemembered bounds the remembered objects, and maxLists the remembered lists.
	maxRemembered, maxLists = 2048, 64
	// maxBytes bounds the memory of the remembered objects, and that of the remembered lists, besides one that is
	// larger: it is in use.
	maxBytes = 64 << 20
	// rememberFor is longer than a command runs.
	rememberFor = 24 * time.Hour
	// maxProblems bounds the problems: rights name namespaces, which tenants create.
	maxProblems = 20
)

// Once is what a command looks up in a cluster: it reads with get and list what is asked for, and
// remembers it. Unlike a View it needs no right to watch. It is safe for concurrent use.
type Once struct {
	// ctx is that of the command: a look-up has none.
	ctx     context.Context //nolint:containedctx // see above
	cluster *Cluster

	// objects and lists are what was read last: tenants who create namespaces must not choose how much memory they take.
	objects, lists *memory

	mu        sync.Mutex
	resources map[schema.GroupVersionKind]discovered
	problems  []Problem
	more      int
}

// discovered is the resource of a kind, or why it is not known.
type discovered struct {
	*resource
	err error
}

// Problem is what could not be read.
type Problem struct {
	// Right is the missing right, as `list configmaps in namespace "shop"`, and "" for another problem.
	Right string
	Err   error
}

// String returns the problem for people.
func (p *Problem) String() string {
	if p.Right != "" {
		for _, group := range []string{v1alpha1.GroupVersion.Group, admissionregistrationv1.GroupName} {
			if strings.HasSuffix(p.Right, "."+group) {
				return "missing right: " + p.Right + " (hint: bind the ClusterRole " + apierr.RoleAuditor + ")"
			}
		}
		return "missing right: " + p.Right
	}
	return p.Err.Error()
}

// Once returns what a command looks up until ctx ends.
func (c *Cluster) Once(ctx context.Context) *Once {
	return &Once{
		ctx: ctx, cluster: c, resources: map[schema.GroupVersionKind]discovered{},
		objects: newMemory(maxRemembered), lists: newMemory(maxLists),
	}
}

// Provide makes a configuration look up everything here.
func (o *Once) Provide(p *policy.Spec, s *sidecar.Spec) {
	p.Objects, p.Authorizer = o, o.cluster.access.authorizer()
	s.Namespaces, s.ConfigMaps, s.Known = o, o, nil
}

// Problems returns what could not be read so far, in the order in which it was missed, and the number of others.
func (o *Once) Problems() (list []Problem, more int) {
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
		case "AccessToken", "TokenRevocation":
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
// served. Errors are as those of Resources.
func (o *Once) Native() (*config.Config, error) {
	out := &config.Config{}
	validating, mutating := &out.Policy, &out.Mutation
	if _, err := addAll(o, "v1", "ValidatingAdmissionPolicy", func(p admissionregistrationv1.ValidatingAdmissionPolicy) {
		validating.Policies = append(validating.Policies, policy.Policy{Source: config.ClusterSource, ValidatingAdmissionPolicy: p})
	}); err != nil {
		return nil, err
	}
	if _, err := addAll(o, "v1", "ValidatingAdmissionPolicyBinding", func(b admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
		validating.Bindings = append(validating.Bindings, policy.Binding{Source: config.ClusterSource, ValidatingAdmissionPolicyBinding: b})
	}); err != nil {
		return nil, err
	}
	for _, version := range []string{"v1", "v1beta1"} { // they have the same fields
		served, err := addAll(o, version, "MutatingAdmissionPolicy", func(p admissionregistrationv1.MutatingAdmissionPolicy) {
			mutating.Policies = append(mutating.Policies, mutation.Policy{Source: config.ClusterSource, MutatingAdmissionPolicy: p})
		})
		if err == nil && !served {
			continue
		}
		if err == nil {
			_, err = addAll(o, version, "MutatingAdmissionPolicyBinding", func(b admissionregistrationv1.MutatingAdmissionPolicyBinding) {
				mutating.Bindings = append(mutating.Bindings, mutation.Binding{Source: config.ClusterSource, MutatingAdmissionPolicyBinding: b})
			})
		}
		return out, err
	}
	return out, nil
}

// addAll calls add with every object of a kind of the API server's policies. It is Once.each otherwise.
func addAll[T any](o *Once, version, kind string, add func(T)) (served bool, err error) {
	return o.each(schema.GroupVersionKind{Group: admissionregistrationv1.GroupName, Version: version, Kind: kind}, func(u *unstructured.Unstructured) error {
		var object T
		u.SetManagedFields(nil)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &object); err != nil {
			return fmt.Errorf("%s %q cannot be read: %w", u.GetKind(), u.GetName(), err)
		}
		add(object)
		return nil
	})
}

// each calls f with every object of a kind, and reports whether the cluster has it. A missing right is a problem, any
// other failure an error.
func (o *Once) each(kind schema.GroupVersionKind, f func(*unstructured.Unstructured) error) (served bool, err error) {
	r, err := o.find(kind)
	if errors.Is(err, policy.ErrNotServed) {
		return false, nil
	}
	if err == nil {
		err = paging.Objects(o.ctx, o.cluster.dynamic.Resource(r.GroupVersionResource).List, metav1.ListOptions{}, f)
	}
	switch {
	case apierrors.IsForbidden(err):
		o.note("list "+resourceName(r, kind), err)
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

// note adds a problem, unless the command ends.
func (o *Once) note(right string, err error) {
	if o.ctx.Err() != nil {
		return
	}
	p := Problem{Err: err}
	if apierr.Classify(err).IsDenied() {
		p.Right = right
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch text := p.String(); {
	case slices.ContainsFunc(o.problems, func(known Problem) bool { return known.String() == text }):
	case len(o.problems) >= maxProblems:
		o.more++
	default:
		o.problems = append(o.problems, p)
	}
}

// Namespace returns a namespace, and false if there is none or it cannot be read.
func (o *Once) Namespace(name string) (*corev1.Namespace, bool) {
	if len(validation.IsDNS1123Label(name)) > 0 {
		return nil, false
	}
	found := o.remember(o.objects, objectKey{name: name}, func() (any, error) {
		n, err := o.cluster.namespaces.Get(o.ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return (*corev1.Namespace)(nil), nil
		}
		if err != nil {
			o.note("get namespaces", err)
			return nil, err
		}
		n.ManagedFields = nil
		return n, nil
	})
	n, _ := found.value.(*corev1.Namespace)
	return n, n != nil
}

// objectKey is the key of a remembered object or list. That of a namespace has no kind.
type objectKey struct {
	kind                      schema.GroupVersionKind
	namespace, name, selector string
}

// remembered is what was read, or why it could not be.
type remembered struct {
	value any
	err   error
}

// remember returns what is remembered for a key, or reads it. An error is remembered too: a command does not try again.
func (o *Once) remember(in *memory, key objectKey, read func() (any, error)) remembered {
	if found, known := in.get(key); known {
		return found
	}
	value, err := read()
	found := remembered{value, err}
	if o.ctx.Err() == nil {
		in.add(key, found)
	}
	return found
}

// memory is what was read last. It is bounded by number and by bytes. It is safe for concurrent use.
type memory struct {
	mu    sync.Mutex
	most  int
	cache *cache.LRUExpireCache
	// bytes is the memory of what was added since the cache was empty, estimated.
	bytes int
}

func newMemory(most int) *memory {
	return &memory{most: most, cache: cache.NewLRUExpireCache(most)}
}

func (m *memory) get(key objectKey) (remembered, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, known := m.cache.Get(key)
	found, _ := value.(remembered)
	return found, known
}

// add adds what was read. If that is too much, everything else is forgotten.
func (m *memory) add(key objectKey, found remembered) {
	size := sizeOf(found.value)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bytes+size > maxBytes {
		m.cache, m.bytes = cache.NewLRUExpireCache(m.most), 0
	}
	m.bytes += size
	m.cache.Add(key, found, rememberFor)
}

// sizeOf estimates the memory of an object, a list of objects, or a value of decoded JSON, in bytes.
func sizeOf(value any) int {
	const cell, entry = 16, 64 // an interface, and the place of a key and its value in a map
	size := cell
	switch v := value.(type) {
	case *corev1.Namespace:
		if v != nil {
			size += 1024 + 2*v.Size()
		}
	case *unstructured.Unstructured:
		if v != nil {
			size += sizeOf(v.Object)
		}
	case []*unstructured.Unstructured:
		for _, u := range v {
			size += sizeOf(u)
		}
	case map[string]any:
		for key, value := range v {
			size += entry + len(key) + sizeOf(value)
		}
	case []any:
		for _, value := range v {
			size += sizeOf(value)
		}
	case string:
		size += len(v)
	}
	return size
}

// find returns the resource of a kind.
func (o *Once) find(kind schema.GroupVersionKind) (*resource, error) {
	o.mu.Lock()
	found, known := o.resources[kind]
	o.mu.Unlock()
	if !known {
		found.resource, found.err = (&paramSource{kind: kind, discovery: o.cluster.discovery}).find(o.ctx)
		if o.ctx.Err() == nil {
			o.mu.Lock()
			o.resources[kind] = found
			o.mu.Unlock()
		}
	}
	return found.resource, found.err
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
	found := o.remember(o.objects, objectKey{kind: kind, namespace: namespace, name: name}, func() (any, error) {
		r, err := o.find(kind)
		if err != nil {
			return nil, err
		}
		object, err := (&paramSource{kind: kind, client: o.cluster.dynamic}).get(o.ctx, r, namespace, name)
		if apierrors.IsNotFound(err) {
			return (*unstructured.Unstructured)(nil), nil
		}
		if err != nil {
			return nil, o.failed("get", r, namespace, err)
		}
		u, _ := object.(*unstructured.Unstructured)
		u.SetManagedFields(nil)
		return u, nil
	})
	u, _ := found.value.(*unstructured.Unstructured)
	return u, found.err
}

// List returns every object of a kind in a namespace, or without one if it is "", that the selector matches, in the order
// of their names. A nil selector matches all. Errors are as for Get.
func (o *Once) List(kind schema.GroupVersionKind, namespace string, selector labels.Selector) ([]*unstructured.Unstructured, error) {
	if selector == nil {
		selector = labels.Everything()
	}
	found := o.remember(o.lists, objectKey{kind: kind, namespace: namespace, selector: selector.String()}, func() (any, error) {
		r, err := o.find(kind)
		if err != nil {
			return nil, err
		}
		var list []*unstructured.Unstructured
		options := metav1.ListOptions{LabelSelector: selector.String()}
		err = paging.Objects(o.ctx, o.cluster.dynamic.Resource(r.GroupVersionResource).Namespace(namespace).List, options, func(u *unstructured.Unstructured) error {
			u.SetManagedFields(nil)
			list = append(list, u)
			return nil
		})
		if err != nil {
			return nil, o.failed("list", r, namespace, err)
		}
		slices.SortFunc(list, func(a, b *unstructured.Unstructured) int { return cmp.Compare(a.GetName(), b.GetName()) })
		return list, nil
	})
	list, _ := found.value.([]*unstructured.Unstructured)
	return list, found.err
}

// failed notes that objects cannot be read, and returns the error of the look-up.
func (o *Once) failed(verb string, r *resource, namespace string, err error) error {
	right := verb + " " + r.GroupResource().String()
	if namespace != "" {
		right += " in namespace " + strconv.Quote(namespace)
	}
	o.note(right, err)
	if apierr.Classify(err).IsDenied() {
		return &unansweredError{errors.New("missing right: " + right)}
	}
	return &unansweredError{fmt.Errorf("cannot %s: %w", right, err)}
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
