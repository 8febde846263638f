package config

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/webhooks/finding"
	"github.com/gatehouse-dev/gatehouse/webhooks/shape"
)

// meant is the kind that the author of an unknown one has most likely meant. Of
// our own kinds a part of the name is enough if no other has it, as of
// PolicyConfig.
func meant(gvk schema.GroupVersionKind, names []string) (string, bool) {
	if near, isNear := finding.Nearest(gvk.Kind, names...); isNear {
		return near, true
	}
	const least = 4 // characters: fewer are in too many names
	if gvk.Group == admissionregistrationv1.GroupName || len(gvk.Kind) < least {
		return "", false
	}
	found := ""
	for _, name := range names {
		if !strings.Contains(strings.ToLower(name), strings.ToLower(gvk.Kind)) {
			continue
		}
		if found != "" {
			return "", false
		}
		found = name
	}
	return found, found != ""
}

// warnOfKind reports a kind that a group of Kubernetes does not have, but for
// its case or a letter: nothing finds the object. Other groups have any kinds.
func (o *object) warnOfKind(gvk schema.GroupVersionKind) {
	if scheme.Scheme.Recognizes(gvk) {
		return
	}
	var names []string
	for name, t := range scheme.Scheme.KnownTypes(gvk.GroupVersion()) {
		// What every group has, such as ListOptions, is no object.
		if !strings.HasPrefix(t.PkgPath(), "k8s.io/apimachinery/") && !strings.HasSuffix(name, "List") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if near, isNear := finding.Nearest(gvk.Kind, names...); isNear {
		o.warnings = append(o.warnings, finding.Finding{
			Severity: finding.Warning, Source: o.source, Object: o.label, Field: "kind",
			Message: fmt.Sprintf("%q is not a kind of %s, so nothing looks the object up", shape.Cut(gvk.Kind, 60), gvk.GroupVersion()),
			Hint:    fmt.Sprintf("did you mean %q?", near),
		})
	}
}
