package debug

import (
	"net/http"

	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// ConfigurationPath is the path of the documents of the server's own directory that decide about objects, as YAML.
const ConfigurationPath = "/debug/configuration"

// Deciding returns what of an active configuration decides about objects and is not a custom resource of the cluster: policies,
// bindings, exceptions, profiles and the PolicyConfiguration. Nothing about tokens, issuers and directories is in it, and no param.
func Deciding(c *config.Config) *config.Config {
	out := &config.Config{Digest: c.Digest}
	out.Policy.Configuration = c.Policy.Configuration
	for _, p := range c.Sidecar.Profiles {
		out.Sidecar.Profiles = addOwn(out.Sidecar.Profiles, p, p.Source)
	}
	to, from := &out.Policy, &c.Policy
	for _, p := range from.Policies {
		to.Policies = addOwn(to.Policies, p, p.Source)
	}
	for _, b := range from.Bindings {
		to.Bindings = addOwn(to.Bindings, b, b.Source)
	}
	for _, p := range from.AdmissionPolicies {
		to.AdmissionPolicies = addOwn(to.AdmissionPolicies, p, p.Source)
	}
	for _, b := range from.AdmissionPolicyBindings {
		to.AdmissionPolicyBindings = addOwn(to.AdmissionPolicyBindings, b, b.Source)
	}
	for _, x := range from.Exceptions {
		to.Exceptions = addOwn(to.Exceptions, x, x.Source)
	}
	return out
}

// addOwn adds an object unless its source is the cluster.
func addOwn[T any](list []T, object T, source string) []T {
	if source == config.ClusterSource {
		return list
	}
	return append(list, object)
}

// serveConfiguration answers ConfigurationPath.
func serveConfiguration(active func() *config.Config) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !isRead(w, r) {
			return
		}
		c := active()
		if c == nil {
			http.Error(w, "no configuration is active yet", http.StatusServiceUnavailable)
			return
		}
		text, err := c.Encode(func([]byte) []byte { return nil }) // there is no Secret in it
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(text) // the caller may have closed the connection
	}
}
