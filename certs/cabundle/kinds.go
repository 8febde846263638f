package cabundle

import (
	"encoding/json"
	"strings"

	apply "k8s.io/client-go/applyconfigurations/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/certs/webhookconfig"
)

// kind is a kind of webhook configuration.
type kind = webhookconfig.Kind

// prefix returns what begins a Registration of a kind: "mutating" or "validating".
func prefix(k kind) string {
	return strings.ToLower(strings.TrimSuffix(string(k), "WebhookConfiguration"))
}

// patchOf returns the server-side apply patch that writes the caBundles of entries. The API
// server removes caBundles that were applied before and are missing now.
func patchOf(t target, resourceVersion string, entries []entry) ([]byte, error) {
	// The kinds have all of these fields in common.
	patch := apply.ValidatingWebhookConfiguration(t.name).WithKind(string(t.kind)).WithResourceVersion(resourceVersion)
	for _, e := range entries {
		patch.WithWebhooks(apply.ValidatingWebhook().WithName(e.name).WithClientConfig(apply.WebhookClientConfig().WithCABundle([]byte(e.raw)...)))
	}
	return json.Marshal(patch)
}
