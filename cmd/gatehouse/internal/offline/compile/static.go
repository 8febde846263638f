package compile

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/admission/plugin/manifest"
)

// Static makes the documents ones of files from which an API server reads policies (staticManifestsDir). They have names that its API does not
// take, and what files cannot hold is left out: it stays.
func (o *Output) Static() {
	declined := map[string]string{}
	for i := range o.Documents {
		d := &o.Documents[i]
		switch name := d.Object().GetName(); {
		case d.hasParams():
			declined[d.From] = "a policy in a file has no params (hint: write the values into the policy)"
		case len(name)+len(manifest.StaticConfigSuffix) > validation.DNS1123SubdomainMaxLength:
			declined[d.From] = "the name " + name + " is too long with " + manifest.StaticConfigSuffix
		}
	}
	for _, item := range o.Items {
		if reason := declined[item.Kind+"/"+item.Name]; reason != "" && item.Status != Stays {
			item.Reasons = nil
			item.stay(reason)
		}
	}
	o.Documents = slices.DeleteFunc(o.Documents, func(d Document) bool { return declined[d.From] != "" })
	o.Expires = time.Time{}
	static := func(name string) string {
		return strings.TrimSuffix(name, manifest.StaticConfigSuffix) + manifest.StaticConfigSuffix
	}
	for i := range o.Documents {
		d := &o.Documents[i]
		d.Object().SetName(static(d.Object().GetName()))
		switch {
		case d.Binding != nil:
			d.Binding.Spec.PolicyName = static(d.PolicyName())
		case d.MutatingBinding != nil:
			d.MutatingBinding.Spec.PolicyName = static(d.PolicyName())
		}
		if at, err := time.Parse(time.RFC3339, d.Object().GetAnnotations()[ExpiresAnnotation]); err == nil && (o.Expires.IsZero() || at.Before(o.Expires)) {
			o.Expires = at
		}
	}
}

// hasParams reports whether a document is a policy with params, or the binding of one.
func (d *Document) hasParams() bool {
	switch {
	case d.Policy != nil:
		return d.Policy.Spec.ParamKind != nil
	case d.Binding != nil:
		return d.Binding.Spec.ParamRef != nil
	case d.MutatingPolicy != nil:
		return d.MutatingPolicy.Spec.ParamKind != nil
	default:
		return d.MutatingBinding.Spec.ParamRef != nil
	}
}
