package registration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/admission/plugin/manifest"
)

// StaticKinds returns the kinds of webhook configurations that Static takes.
func StaticKinds() []string { return []string{"mutating", "validating"} }

// Static returns the webhook configuration of a kind among documents as a file from which an API server reads webhooks, where each kind has a
// directory of its own. It has a name that the API does not take. There is no document if the configuration needs no such webhook.
func Static(documents []Document, kind string) (list []Document) {
	for _, d := range documents {
		switch object := d.object.(type) {
		case *admissionregistrationv1.MutatingWebhookConfiguration:
			if kind == "mutating" {
				object.Name += manifest.StaticConfigSuffix
				list = append(list, d)
			}
		case *admissionregistrationv1.ValidatingWebhookConfiguration:
			if kind == "validating" {
				object.Name += manifest.StaticConfigSuffix
				list = append(list, d)
			}
		}
	}
	return list
}
