package resolve

import (
	"errors"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// CommandSources say by what a command decides that has a cluster: documents, what is active in the cluster, or both.
// Namespaces and params are those of the cluster.
type CommandSources struct {
	// Dir is the directory of the documents, "" without one. Documents and Found are what config.InspectBeside
	// returned for it.
	Dir       string
	Documents *config.Config
	Found     diagnostic.List
	// Cluster reads from the cluster.
	Cluster Cluster
	// Custom reports whether the custom resources of the cluster decide too, and Native whether its own
	// MutatingAdmissionPolicies and ValidatingAdmissionPolicies do. A document takes the place of one with its kind and name.
	Custom, Native bool
	// Prepare, if set, is called with the configuration before it is compiled.
	Prepare func(*config.Config)
}

// Cluster reads from a cluster, each object once.
type Cluster interface {
	policy.Objects
	sidecar.ConfigMaps
	// Resources returns the custom resources of Gatehouse's kinds, and whether the cluster knows these kinds.
	Resources() ([]*config.Resource, bool, error)
	// Native returns the cluster's own MutatingAdmissionPolicies and ValidatingAdmissionPolicies, and their bindings.
	Native() ([]*config.Resource, error)
	// Provide connects specs with the cluster.
	Provide(*policy.Spec, *sidecar.Spec)
}

// CommandConfig is a configuration by which a command decides.
type CommandConfig struct {
	Config   *config.Config
	Snapshot *webhooks.Snapshot
	// Found is what is wrong with objects of the cluster, and warnings. None is about a document as an error.
	Found diagnostic.List
	// LeftOut are the objects of the cluster that restrict and have errors, by their names in diagnostics: a server may have an
	// earlier version. Objects that permit are not among them, because with errors they permit nothing in any server.
	LeftOut []string
	// Installed reports whether the cluster has custom resources of Gatehouse's kinds at all. It is false if they
	// were not read.
	Installed bool
	// Compiled are the documents of gatehouse compile among the cluster's own policies and bindings, and Config has those alone whose sources
	// do not decide themselves.
	Compiled []metav1.Object
}

// ForCommand reads what is active in a cluster, once, and compiles it as a server does: an object with errors does
// not keep the others from deciding. The error is about the documents, or that the cluster cannot be reached. What must
// not be read is a problem of Cluster.
func ForCommand(in CommandSources) (*CommandConfig, error) {
	if in.Found.Err() != nil {
		_, found := config.Compile(in.Documents, in.Found)
		return nil, config.InvalidError(in.Dir, found.Err())
	}
	out := &CommandConfig{}
	resources, err := in.read(out)
	if err != nil {
		return nil, err
	}
	resolved, err := new(Resolver).Resolve(Input{
		Documents: in.Documents, Resources: resources, Clustered: true, Tolerant: true,
		Prepare: func(merged *config.Config) error {
			merged.LeaveCompiled()
			in.provide(merged)
			return nil
		},
	})
	if _, invalid := errors.AsType[diagnostic.List](err); invalid {
		return nil, config.InvalidError(in.Dir, err)
	}
	if err != nil {
		return nil, err
	}
	out.Config, out.Snapshot, out.Found = resolved.Config, resolved.Snapshot, resolved.Diagnostics()
	ofDocuments := slices.DeleteFunc(slices.Clone(out.Found), func(d diagnostic.Diagnostic) bool { return d.Source == config.ClusterSource })
	if err := ofDocuments.Err(); err != nil {
		return nil, config.InvalidError(in.Dir, err)
	}
	for _, one := range resolved.Candidates {
		switch object := one.Read.Object(); {
		case one.Use() == Current:
		case Permits(one.Read.Kind):
			// Whatever the server had before: an object that permits has no previous version.
			out.Found = append(out.Found, diagnostic.Diagnostic{
				Severity: diagnostic.Warning, Source: config.ClusterSource, Object: object, Message: "it has errors, so that it exempts nothing, in the servers too",
			})
		default:
			out.LeftOut = append(out.LeftOut, object)
		}
	}
	return out, nil
}

// read returns the custom resources of the cluster, and its own policies, without those whose place a document takes.
func (in *CommandSources) read(out *CommandConfig) (all []*config.Resource, err error) {
	if in.Custom {
		if all, out.Installed, err = in.Cluster.Resources(); err != nil {
			return nil, err
		}
	}
	if in.Native {
		native, err := in.Cluster.Native()
		if err != nil {
			return nil, err
		}
		for _, r := range native {
			if object, ok := r.Value.(metav1.Object); ok {
				if _, is := config.CompiledFrom(object); is {
					out.Compiled = append(out.Compiled, object)
				}
			}
		}
		all = append(all, native...)
	}
	known := map[string]map[string]string{}
	return slices.DeleteFunc(all, func(r *config.Resource) bool {
		if known[r.Kind] == nil {
			known[r.Kind] = in.Documents.Sources(r.Kind)
		}
		_, replaced := known[r.Kind][config.ObjectName(r.GetObjectMeta())]
		return replaced
	}), nil
}

// provide connects a configuration with the cluster. Objects of the directory that the cluster does not have, or has in
// another version, are known as if they were applied.
func (in *CommandSources) provide(c *config.Config) {
	documents, maps := c.Policy.Objects, c.Sidecar.ConfigMaps
	in.Cluster.Provide(&c.Policy, &c.Sidecar)
	over := &overlay{Objects: in.Cluster, cluster: in.Cluster, documents: documents, maps: maps}
	c.Policy.Objects, c.Sidecar.Namespaces, c.Sidecar.ConfigMaps = over, over, over
	c.Policy.KeepBroken = true
	if in.Prepare != nil {
		in.Prepare(c)
	}
}

// overlay are the objects of a cluster after those of a directory were applied.
type overlay struct {
	policy.Objects // of the cluster

	cluster   Cluster
	documents policy.Objects
	maps      sidecar.ConfigMaps
}

// Namespace returns the namespace of the cluster, with the labels and annotations of that of the directory.
func (o *overlay) Namespace(name string) (*corev1.Namespace, bool) {
	own, applied := o.documents.Namespace(name)
	there, exists := o.cluster.Namespace(name)
	switch {
	case !applied:
		return there, exists
	case !exists:
		return own, true
	default:
		return Applied(there, own), true
	}
}

// Applied returns a namespace after another version of it was applied: labels and annotations are merged.
func Applied(there, next *corev1.Namespace) *corev1.Namespace {
	out := there.DeepCopy()
	for key, value := range next.Labels {
		metav1.SetMetaDataLabel(&out.ObjectMeta, key, value)
	}
	for key, value := range next.Annotations {
		metav1.SetMetaDataAnnotation(&out.ObjectMeta, key, value)
	}
	return out
}

// Namespaced is that of the cluster. Of a kind that it does not have, the directory may.
func (o *overlay) Namespaced(kind schema.GroupVersionKind) (bool, error) {
	is, err := o.Objects.Namespaced(kind)
	if errors.Is(err, policy.ErrNotServed) && o.has(kind) {
		return o.documents.Namespaced(kind)
	}
	return is, err
}

// has reports whether the directory has an object of a kind outside of namespaces, or its definition.
func (o *overlay) has(kind schema.GroupVersionKind) bool {
	definitions, _ := o.documents.List(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}, "", nil)
	return slices.ContainsFunc(definitions, func(u *unstructured.Unstructured) bool {
		defined, _, ok := config.CustomScope(u)
		return ok && defined == kind.GroupKind()
	})
}

// Get implements policy.Objects.
func (o *overlay) Get(kind schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	if own, _ := o.documents.Get(kind, namespace, name); own != nil {
		return own, nil
	}
	return o.Objects.Get(kind, namespace, name)
}

// List implements policy.Objects.
func (o *overlay) List(kind schema.GroupVersionKind, namespace string, selector labels.Selector) ([]*unstructured.Unstructured, error) {
	all, err := o.Objects.List(kind, namespace, selector)
	own, _ := o.documents.List(kind, namespace, nil)
	if err != nil && (len(own) == 0 || !errors.Is(err, policy.ErrNotServed)) {
		return nil, err
	}
	if len(own) == 0 {
		return all, nil
	}
	byName := make(map[string]*unstructured.Unstructured, len(all))
	for _, u := range all {
		byName[u.GetName()] = u
	}
	for _, u := range own {
		delete(byName, u.GetName())
		if selector == nil || selector.Matches(labels.Set(u.GetLabels())) {
			byName[u.GetName()] = u
		}
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b *unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) }), nil
}

// ConfigMapData implements sidecar.ConfigMaps.
func (o *overlay) ConfigMapData(namespace, name string) (map[string]string, bool) {
	if data, own := o.maps.ConfigMapData(namespace, name); own {
		return data, true
	}
	return o.cluster.ConfigMapData(namespace, name)
}

// Deciding returns the number of policies and profiles of a configuration that decide about objects: a policy needs
// actions of its own or a binding.
func Deciding(c *config.Config) int {
	n := len(c.Sidecar.Profiles)
	for _, p := range c.Policy.All() {
		if len(p.Bindings) > 0 {
			n++
		}
	}
	for i := range c.Mutation.Policies {
		name := c.Mutation.Policies[i].Name
		if slices.ContainsFunc(c.Mutation.Bindings, func(b mutation.Binding) bool { return b.Spec.PolicyName == name }) {
			n++
		}
	}
	return n
}
