package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// ClusterSource is the Source of diagnostics about custom resources. That of documents of
// a directory is a file.
const ClusterSource = "cluster"

// ResourceKinds are the kinds that may be custom resources, in the order of their
// names.
func ResourceKinds() []schema.GroupVersionKind {
	names := []string{accessToken, admissionPolicy, admissionBinding, grant, policyBaseline, policyException, sidecarProfile, tokenRevocation}
	kinds := make([]schema.GroupVersionKind, len(names))
	for i, name := range names {
		kinds[i] = v1alpha1.GroupVersion.WithKind(name)
	}
	return kinds
}

// ResourceID distinguishes custom resources, also one that was deleted and
// made again, and what was written to one at different times.
type ResourceID struct {
	Kind, Namespace, Name string
	UID                   types.UID
	Generation            int64
	// Sum stands for the content, of which a definition with other defaults changes
	// some without a new generation.
	Sum string
}

// Object returns the name of the resource in diagnostics.
func (id *ResourceID) Object() string {
	if id.Namespace != "" {
		return strict.Printable(id.Kind) + "/" + strict.Printable(id.Namespace) + "/" + strict.Printable(id.Name)
	}
	return strict.Printable(id.Kind) + "/" + strict.Printable(id.Name)
}

// Resource is a custom resource as it was read. It never changes.
type Resource struct {
	ResourceID

	// Value is one of *v1alpha1.SidecarProfile, AdmissionPolicy,
	// AdmissionPolicyBinding, PolicyException, AccessToken, TokenRevocation and Grant, or a
	// *policy.Baseline. It is nil if nothing of the object could be read.
	Value any
	// Found is what is wrong with the object by itself. With an error it must not be
	// used.
	Found diagnostic.List
	// ChangedAt is when a manager of fields of its spec wrote last, to the second, by the
	// clock of the API server: of objects that conflict, the one changed last is rejected.
	// It may change without the version, when such a manager writes something else.
	ChangedAt time.Time
	// Deleting reports whether the object is being deleted and waits for its finalizers.
	Deleting bool

	metadata metav1.ObjectMeta
}

var _ metav1.ObjectMetaAccessor = (*Resource)(nil)

// GetObjectMeta has the names and versions of the object, for stores of client-go.
func (r *Resource) GetObjectMeta() metav1.Object { return &r.metadata }

// Equal reports whether a and b are readings of the same version of an object, changed
// at the same time: one is used as the other is, beside whatever others.
func (r *Resource) Equal(other *Resource) bool {
	return r.ResourceID == other.ResourceID && r.ChangedAt.Equal(other.ChangedAt)
}

// ReadResource reads a custom resource as strictly as a document of a directory: a
// field that this version does not know is an error. It is pure and does not change
// the object.
func ReadResource(u *unstructured.Unstructured) *Resource {
	r := &Resource{
		ResourceID: ResourceID{Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), Generation: u.GetGeneration()},
		ChangedAt:  changedAt(u), Deleting: u.GetDeletionTimestamp() != nil,
		metadata: metav1.ObjectMeta{Name: u.GetName(), Namespace: u.GetNamespace(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion()},
	}
	fields := content(u)
	tooLarge := func(message string) {
		r.Found = diagnostic.List{{Severity: diagnostic.Error, Source: ClusterSource, Object: r.Object(), Message: message, Hint: "split it into several objects"}}
	}
	if message := tooMany(fields, 0); message != "" {
		tooLarge(message)
		return r
	}
	text, err := json.Marshal(fields)
	if err != nil || len(text) > maxResourceBytes {
		tooLarge(fmt.Sprintf("is larger than %d KiB without its status and annotations", maxResourceBytes>>10))
	}
	sum := sha256.Sum256(text)
	const enough = 12 // bytes
	r.Sum = hex.EncodeToString(sum[:enough])
	if r.Found != nil {
		return r
	}
	d := newDecoder(&tree{limits: defaultLimits()})
	o := object{decoder: d, source: ClusterSource, file: ClusterSource}
	o.read(fields)
	if slices.Contains(ResourceKinds(), u.GroupVersionKind()) {
		r.Value = d.last
	} else if len(d.found) == 0 {
		o.report(problem{field: "kind", message: fmt.Sprintf("%q is not a kind of custom resources", strict.Cut(u.GetKind(), 60))})
	}
	d.found.Sort()
	r.Found = slices.Concat(d.found, d.warnings)
	return r
}

// NativeResource returns a policy or binding of the API server itself, which is one of the types of admissionregistration.k8s.io/v1.
func NativeResource(kind string, object metav1.Object) *Resource {
	return &Resource{
		ResourceID: ResourceID{Kind: kind, Name: object.GetName(), UID: object.GetUID(), Generation: object.GetGeneration()},
		Value:      object, metadata: metav1.ObjectMeta{Name: object.GetName()},
	}
}

// maxResourceBytes bounds one custom resource. Those of real life have a tenth of it;
// the API server stores three times as much, and all of them are kept in memory.
const maxResourceBytes = 512 << 10

// The bounds of what is in a custom resource. The definitions allow fewer elements of most
// lists, but callers of the webhook itself are not limited by a definition. What is read
// here is compared with each other, element by element.
const (
	maxElements = 1000
	maxNesting  = 100
)

// tooMany returns the error of a value with lists or mappings that are too long or nested
// too deeply, "" if there is none.
func tooMany(value any, depth int) string {
	var below iter.Seq[any]
	n, what := 0, ""
	switch v := value.(type) {
	case map[string]any:
		below, n, what = maps.Values(v), len(v), "mapping"
	case []any:
		below, n, what = slices.Values(v), len(v), "list"
	default:
		return ""
	}
	if n > maxElements {
		return fmt.Sprintf("has a %s of %d elements, the maximum is %d", what, n, maxElements)
	}
	if depth == maxNesting {
		return fmt.Sprintf("is nested more than %d deep", maxNesting)
	}
	for element := range below {
		if message := tooMany(element, depth+1); message != "" {
			return message
		}
	}
	return ""
}

// content returns the part of a custom resource that is configuration: without its status,
// which is ours, and without managed fields and the annotations of others, which may be as
// large as the object itself.
func content(u *unstructured.Unstructured) map[string]any {
	fields := make(map[string]any, len(u.Object))
	for name, value := range u.Object {
		if name != "status" {
			fields[name] = value
		}
	}
	if metadata, ok := fields["metadata"].(map[string]any); ok {
		kept := make(map[string]any, len(metadata))
		for name, value := range metadata {
			switch name {
			case "managedFields", "resourceVersion", "labels", "ownerReferences":
			case "annotations":
				if ours := readAnnotations(value); len(ours) > 0 {
					kept[name] = ours
				}
			default:
				kept[name] = value
			}
		}
		fields["metadata"] = kept
	}
	return fields
}

// readAnnotations returns the annotations of a custom resource that Gatehouse reads.
func readAnnotations(value any) map[string]any {
	all, _ := value.(map[string]any)
	ours := map[string]any{}
	for _, name := range []string{v1alpha1.ContactAnnotation, v1alpha1.LintIgnoreAnnotation} {
		if text, ok := all[name]; ok {
			ours[name] = text
		}
	}
	return ours
}

// changedAt returns when a manager of fields of the spec last wrote, and the creation time
// without one. Managers of other fields do not count.
func changedAt(u *unstructured.Unstructured) time.Time {
	at := u.GetCreationTimestamp().Time
	value, _, _ := unstructured.NestedFieldNoCopy(u.Object, "metadata", "managedFields") // what is no list is none
	entries, _ := value.([]any)
	for _, value := range entries {
		// Other fields are skipped: a manager has a field for every line of an object.
		entry, _ := value.(map[string]any)
		fields, _ := entry["fieldsV1"].(map[string]any)
		if _, ofSpec := fields["f:spec"]; !ofSpec || entry["subresource"] != nil && entry["subresource"] != "" {
			continue
		}
		text, _ := entry["time"].(string)
		if written, err := time.Parse(time.RFC3339, text); err == nil && written.After(at) {
			at = written
		}
	}
	return at
}

// With returns this configuration with custom resources, whose own diagnostics have no
// errors. A document of the directory overrides a resource of its name, which is then an
// error among the diagnostics.
func (c *Config) With(resources []*Resource) (*Config, diagnostic.List) {
	resources = slices.SortedFunc(slices.Values(resources), func(a, b *Resource) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	out := c.extensible()
	out.Authn.Directories = slices.Clone(c.Authn.Directories)
	known := map[string]map[string]string{}
	for _, kind := range ResourceKinds() {
		known[kind.Kind] = c.Sources(kind.Kind)
	}
	digest := sha256.New()
	_, _ = fmt.Fprintln(digest, c.Digest)
	var found diagnostic.List
	for _, r := range resources {
		if source, twice := known[r.Kind][ObjectName(r.GetObjectMeta())]; twice {
			found = append(found, diagnostic.Diagnostic{
				Severity: diagnostic.Error, Source: ClusterSource, Object: r.Object(),
				Message: fmt.Sprintf("the configuration directory has a document of the same name, in %q, which takes precedence", source),
				Hint:    "remove one of the two or give it another name",
			})
			continue
		}
		_, _ = fmt.Fprintln(digest, r.Object(), r.UID, r.Generation, r.Sum)
		out.add(ClusterSource, r.Value)
	}
	if len(resources) > 0 {
		out.Digest = hex.EncodeToString(digest.Sum(nil))
	}
	return out, found
}

// extensible returns a copy to which objects can be added.
func (c *Config) extensible() *Config {
	out := *c
	out.Sidecar.Profiles = slices.Clone(c.Sidecar.Profiles)
	out.Policy.Policies = slices.Clone(c.Policy.Policies)
	out.Policy.Bindings = slices.Clone(c.Policy.Bindings)
	out.Policy.AdmissionPolicies = slices.Clone(c.Policy.AdmissionPolicies)
	out.Policy.AdmissionPolicyBindings = slices.Clone(c.Policy.AdmissionPolicyBindings)
	out.Policy.Exceptions = slices.Clone(c.Policy.Exceptions)
	out.Policy.Baselines = slices.Clone(c.Policy.Baselines)
	out.Mutation.Policies = slices.Clone(c.Mutation.Policies)
	out.Mutation.Bindings = slices.Clone(c.Mutation.Bindings)
	out.Authn.Tokens = slices.Clone(c.Authn.Tokens)
	out.Authn.Revocations = slices.Clone(c.Authn.Revocations)
	out.Authn.Grants = slices.Clone(c.Authn.Grants)
	return &out
}

// add adds a decoded object of a typed kind.
func (c *Config) add(source string, value any) {
	switch v := value.(type) {
	case *v1alpha1.SidecarProfile:
		c.Sidecar.Profiles = append(c.Sidecar.Profiles, sidecar.Profile{Source: source, SidecarProfile: *v})
	case *v1alpha1.AdmissionPolicy:
		c.Policy.AdmissionPolicies = append(c.Policy.AdmissionPolicies, policy.AdmissionPolicy{Source: source, AdmissionPolicy: *v})
	case *v1alpha1.AdmissionPolicyBinding:
		c.Policy.AdmissionPolicyBindings = append(c.Policy.AdmissionPolicyBindings, policy.AdmissionPolicyBinding{Source: source, AdmissionPolicyBinding: *v})
	case *v1alpha1.PolicyException:
		c.Policy.Exceptions = append(c.Policy.Exceptions, policy.Exception{Source: source, PolicyException: *v})
	case *policy.Baseline:
		b := *v
		b.Source = source
		c.Policy.Baselines = append(c.Policy.Baselines, b)
	case *v1alpha1.AccessToken:
		c.Authn.Tokens = append(c.Authn.Tokens, authn.Token{Source: source, AccessToken: *v})
	case *v1alpha1.TokenRevocation:
		c.Authn.Revocations = append(c.Authn.Revocations, authn.Revocation{Source: source, TokenRevocation: *v})
	case *v1alpha1.Grant:
		c.Authn.Grants = append(c.Authn.Grants, authn.Grant{Source: source, Grant: *v})
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		c.Policy.Policies = append(c.Policy.Policies, policy.Policy{Source: source, ValidatingAdmissionPolicy: *v})
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		c.Policy.Bindings = append(c.Policy.Bindings, policy.Binding{Source: source, ValidatingAdmissionPolicyBinding: *v})
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		c.Mutation.Policies = append(c.Mutation.Policies, mutation.Policy{Source: source, MutatingAdmissionPolicy: *v})
	case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
		c.Mutation.Bindings = append(c.Mutation.Bindings, mutation.Binding{Source: source, MutatingAdmissionPolicyBinding: *v})
	}
}

// Object is an object of a configuration: a document, or a custom resource.
type Object struct {
	metav1.Object // a pointer to the API type

	Kind, Source string
}

// Objects returns the objects of these kinds, in the order of this list: SidecarProfile, MutatingAdmissionPolicy and its bindings,
// ValidatingAdmissionPolicy and its bindings, AdmissionPolicy and its bindings, PolicyException, PolicyBaseline, TokenRevocation, Grant,
// AccessToken.
func (c *Config) Objects(kinds ...string) iter.Seq[Object] {
	return func(yield func(Object) bool) {
		of := objectsOf{kinds, yield}
		_ = each(of, sidecarProfile, c.Sidecar.Profiles, func(p *sidecar.Profile) (metav1.Object, string) { return &p.SidecarProfile, p.Source }) &&
			each(of, mutatingPolicy, c.Mutation.Policies, func(p *mutation.Policy) (metav1.Object, string) { return &p.MutatingAdmissionPolicy, p.Source }) &&
			each(of, mutatingBinding, c.Mutation.Bindings, func(b *mutation.Binding) (metav1.Object, string) { return &b.MutatingAdmissionPolicyBinding, b.Source }) &&
			each(of, upstreamPolicy, c.Policy.Policies, func(p *policy.Policy) (metav1.Object, string) { return &p.ValidatingAdmissionPolicy, p.Source }) &&
			each(of, upstreamBinding, c.Policy.Bindings, func(b *policy.Binding) (metav1.Object, string) { return &b.ValidatingAdmissionPolicyBinding, b.Source }) &&
			each(of, admissionPolicy, c.Policy.AdmissionPolicies, func(p *policy.AdmissionPolicy) (metav1.Object, string) { return &p.AdmissionPolicy, p.Source }) &&
			each(of, admissionBinding, c.Policy.AdmissionPolicyBindings, func(b *policy.AdmissionPolicyBinding) (metav1.Object, string) {
				return &b.AdmissionPolicyBinding, b.Source
			}) &&
			each(of, policyException, c.Policy.Exceptions, func(e *policy.Exception) (metav1.Object, string) { return &e.PolicyException, e.Source }) &&
			each(of, policyBaseline, c.Policy.Baselines, func(b *policy.Baseline) (metav1.Object, string) { return b, b.Source }) &&
			each(of, tokenRevocation, c.Authn.Revocations, func(r *authn.Revocation) (metav1.Object, string) { return &r.TokenRevocation, r.Source }) &&
			each(of, grant, c.Authn.Grants, func(g *authn.Grant) (metav1.Object, string) { return &g.Grant, g.Source }) &&
			each(of, accessToken, c.Authn.Tokens, func(t *authn.Token) (metav1.Object, string) { return &t.AccessToken, t.Source })
	}
}

// objectsOf are the parameters of Objects.
type objectsOf struct {
	kinds []string
	yield func(Object) bool
}

// each yields the objects of a list, if its kind is one of the kinds, and reports whether to go on.
func each[T any](of objectsOf, kind string, list []T, object func(*T) (metav1.Object, string)) bool {
	if !slices.Contains(of.kinds, kind) {
		return true
	}
	for i := range list {
		one, source := object(&list[i])
		if !of.yield(Object{one, kind, source}) {
			return false
		}
	}
	return true
}

// Sources returns the sources of the objects of a kind, by NAME, or NAMESPACE/NAME.
func (c *Config) Sources(kind string) map[string]string {
	out := map[string]string{}
	for o := range c.Objects(kind) {
		out[ObjectName(o)] = o.Source
	}
	return out
}

// ObjectName returns "namespace/name", or the name alone for an object without a namespace.
func ObjectName(object metav1.Object) string {
	if object.GetNamespace() == "" {
		return object.GetName()
	}
	return object.GetNamespace() + "/" + object.GetName()
}
