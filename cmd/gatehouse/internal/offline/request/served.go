package request

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	namecontent "k8s.io/apimachinery/pkg/api/validate/content"
	apimachineryvalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// Served returns why no API server serves a kind: its group of Kubernetes has no such kind, its version was removed, or its group is that
// of no custom resource, or nearly the name of a group of Kubernetes. Another kind may be a custom resource, which is no error.
func (r *Resources) Served(gvk schema.GroupVersionKind) error {
	if _, known := r.kinds[gvk]; known {
		return removedError(gvk)
	}
	if slices.ContainsFunc(subresources(), func(s subresource) bool { return s.kind == gvk }) {
		return nil
	}
	if since, instead := removedKind(gvk); since != "" {
		return fmt.Errorf("kind %q of %q is in no version of Kubernetes since %s%s", gvk.Kind, gvk.GroupVersion(), since, instead)
	}
	if best, known := r.preferred[gvk.GroupKind()]; known {
		return fmt.Errorf("kind %.100q is not in apiVersion %.100q (hint: write apiVersion: %s)", gvk.Kind, gvk.GroupVersion().String(), best.GroupVersion())
	}
	if strings.Contains(gvk.Group, ".") && !scheme.Scheme.IsGroupRegistered(gvk.Group) && !isAdded(gvk.Group) {
		return r.servedGroup(gvk.Group) // the group of a custom resource has a dot in it
	}
	var names []string
	for known := range r.preferred {
		if known.Group == gvk.Group {
			names = append(names, known.Kind)
		}
	}
	slices.Sort(names)
	hint := diagnostic.DidYouMean(gvk.Kind, names...)
	if other := r.elsewhere(gvk.Kind); hint == "" && other != "" {
		hint = "write apiVersion: " + other
	}
	if hint != "" {
		hint = " (hint: " + hint + ")"
	}
	return fmt.Errorf("kind %.100q of %.100q is not known%s", gvk.Kind, gvk.GroupVersion(), hint)
}

// servedGroup returns an error for a group of no kind that is known if it is nearly the name of one of Kubernetes: a typing error rather
// than a custom resource. Groups of projects of Kubernetes end in x-k8s.io, as scheduling.x-k8s.io does.
func (r *Resources) servedGroup(group string) error {
	const most = 2 // characters
	if strings.HasSuffix(group, ".x-k8s.io") {
		return nil
	}
	own := map[string]bool{}
	for known := range r.preferred {
		if known.Group == group {
			return nil
		}
		own[known.Group] = strings.Contains(known.Group, ".") && (scheme.Scheme.IsGroupRegistered(known.Group) || isAdded(known.Group))
	}
	maps.DeleteFunc(own, func(_ string, of bool) bool { return !of })
	if near, isNear := diagnostic.NearestWithin(most, group, slices.Sorted(maps.Keys(own))...); isNear {
		return fmt.Errorf("group %.100q of apiVersion is not known (hint: did you mean %q?)", group, near)
	}
	return nil
}

// removedKind returns since which version of Kubernetes there is no kind of that name any more, and a hint, of those that its packages no
// longer know.
func removedKind(gvk schema.GroupVersionKind) (since, hint string) {
	switch gvk.GroupKind() {
	case schema.GroupKind{Group: "policy", Kind: "PodSecurityPolicy"}, schema.GroupKind{Group: "extensions", Kind: "PodSecurityPolicy"}:
		return "1.25", " (hint: podSecurity of an AdmissionPolicy, or Pod Security Admission, takes its place)"
	case schema.GroupKind{Group: "networking.k8s.io", Kind: "ClusterCIDR"}:
		return "1.31", ""
	case schema.GroupKind{Group: "settings.k8s.io", Kind: "PodPreset"}:
		return "1.20", " (hint: a SidecarProfile takes its place)"
	case schema.GroupKind{Group: "auditregistration.k8s.io", Kind: "AuditSink"}:
		return "1.19", ""
	case schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "InitializerConfiguration"}:
		return "1.14", ""
	default:
		return "", ""
	}
}

// isAdded reports whether a group of Kubernetes is not in the scheme.
func isAdded(group string) bool {
	return slices.ContainsFunc(addedKinds(), func(gvk schema.GroupVersionKind) bool { return gvk.Group == group })
}

// isPreferred reports whether a version is preferred to another: a served one, of these a stable one, and of these the latest.
func isPreferred(a, b schema.GroupVersionKind) bool {
	if x, y := removedError(a) == nil, removedError(b) == nil; x != y {
		return x
	}
	if x, y := len(a.Version), len(b.Version); x != y {
		return x < y // v2 before v2beta1
	}
	return a.Version > b.Version
}

// elsewhere returns the apiVersion of a kind that is in one group only.
func (r *Resources) elsewhere(kind string) string {
	var found []string
	for known, best := range r.preferred {
		if known.Kind == kind && removedError(best) == nil {
			found = append(found, best.GroupVersion().String())
		}
	}
	if len(found) != 1 {
		return ""
	}
	return found[0]
}

// removedError returns an error if a version of a kind was removed from Kubernetes.
func removedError(gvk schema.GroupVersionKind) error {
	object, err := scheme.Scheme.New(gvk)
	if err != nil {
		return nil //nolint:nilerr // a custom resource
	}
	ending, ok := object.(interface{ APILifecycleRemoved() (major, minor int) })
	if !ok {
		return nil
	}
	major, minor := ending.APILifecycleRemoved()
	now := environment.DefaultCompatibilityVersion()
	if major <= 0 || !now.AtLeast(now.WithMajor(uint(major)).WithMinor(uint(max(minor, 0)))) {
		return nil
	}
	text := fmt.Sprintf("kind %q of %q is in no version of Kubernetes since %d.%d", gvk.Kind, gvk.GroupVersion(), major, minor)
	if then, ok := object.(interface {
		APILifecycleReplacement() schema.GroupVersionKind
	}); ok {
		text += " (hint: write apiVersion: " + then.APILifecycleReplacement().GroupVersion().String() + ")"
	}
	return errors.New(text)
}

// CheckName returns why no API server accepts an object with this name or namespace. The diagnostics have Field, Message and Hint. It
// ignores what is no object.
func (r *Resources) CheckName(text []byte) diagnostic.List {
	o, err := read("object", text)
	if err != nil || o.value == nil {
		return nil //nolint:nilerr // Build reports it
	}
	var found diagnostic.List
	report := func(field, hint, format string, args ...any) {
		found = append(found, diagnostic.Diagnostic{
			Severity: diagnostic.Error, Field: "metadata." + field, Message: fmt.Sprintf(format, args...), Hint: hint,
		})
	}
	metadata := o.value.Get("metadata")
	given := make(map[string]string)
	for _, field := range []string{"name", "generateName", "namespace"} {
		switch value := metadata.Get(field); value.Kind() {
		case rawjson.Invalid, rawjson.Null:
		case rawjson.String:
			given[field] = value.Text()
		default:
			report(field, "put it in quotes", "is %s, and must be a string", value.Kind())
		}
	}
	if len(found) > 0 {
		return found
	}
	check := func(field string, problems []string) {
		if len(problems) > 0 {
			report(field, "", "%.100q is not valid: %s", given[field], diagnostic.WithoutPattern(strings.Join(problems, "; ")))
		}
	}
	as := r.Of(o.kind)
	if rule := nameRule(o.kind, as.Guessed); rule != nil {
		switch {
		case given["name"] != "":
			check("name", rule(given["name"], false))
		case given["generateName"] != "":
			check("generateName", rule(given["generateName"], true))
		default:
			report("name", "", "is missing")
		}
	}
	if given["namespace"] != "" && !as.ClusterScoped {
		check("namespace", apimachineryvalidation.ValidateNamespaceName(given["namespace"], false))
	}
	return found
}

// nameRule returns the API server's validation of names of a kind. It is nil for a kind that needs no name.
func nameRule(gvk schema.GroupVersionKind, guessed bool) apimachineryvalidation.ValidateNameFunc {
	switch {
	case slices.ContainsFunc(subresources(), func(s subresource) bool { return s.kind == gvk }):
		return nil
	case guessed:
		return inPath
	}
	switch gvk.Group {
	case "authentication.k8s.io", "authorization.k8s.io", "imagepolicy.k8s.io", "internal.apiserver.k8s.io":
		return nil // most are never stored
	case "certificates.k8s.io", "rbac.authorization.k8s.io", "events.k8s.io":
		return inPath
	}
	switch gvk.Kind {
	case "IPAddress", "Event":
		return inPath
	case "Namespace", "Service":
		return apimachineryvalidation.NameIsDNSLabel
	default:
		return apimachineryvalidation.NameIsDNSSubdomain
	}
}

// inPath validates names that need only fit into the path of a request.
func inPath(name string, prefix bool) []string {
	if prefix {
		return namecontent.IsPathSegmentPrefix(name)
	}
	return namecontent.IsPathSegmentName(name)
}
