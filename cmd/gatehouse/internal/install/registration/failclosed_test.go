package registration

import (
	"strings"
	"testing"
)

func TestCheckClosed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"services,secrets:*,pods/exec,pods/ephemeralcontainers,deployments.apps/scale,namespaces,serviceaccounts": "",
		"nodes.metrics.k8s.io,events.example.org,endpoints.example.org,leases.example.org":                        "",
		"pods:DELETE":                            "",
		"*":                                      `"*": a wildcard must not fail closed`,
		"*/*":                                    `"*/*": a wildcard`,
		"*.*/*":                                  `"*.*/*": a wildcard`,
		"pods/*":                                 `"pods/*": a wildcard`,
		"*/status":                               `"*/status": a wildcard`,
		"services.*":                             `"services.*": a wildcard`,
		"*.apps":                                 `"*.apps": a wildcard`,
		"pods/status":                            `"pods/status": must not fail closed`,
		"deployments.apps/status:UPDATE":         `"deployments.apps/status": must not`,
		"widgets.example.org/status":             `"widgets.example.org/status": must not`,
		"pods/binding":                           `"pods/binding": must not`,
		"bindings":                               `"bindings": must not`,
		"pods/eviction:CREATE":                   `"pods/eviction": must not`,
		"serviceaccounts/token":                  `"serviceaccounts/token": must not`,
		"nodes":                                  `"nodes": must not`,
		"nodes/proxy":                            `"nodes/proxy": must not`,
		"namespaces/finalize":                    `"namespaces/finalize": must not`,
		"endpoints":                              `"endpoints": must not`,
		"endpointslices.discovery.k8s.io:CREATE": `"endpointslices.discovery.k8s.io": must not`,
		"leases.coordination.k8s.io":             `"leases.coordination.k8s.io": must not`,
		"events":                                 `"events": must not`,
		"events.v1.events.k8s.io":                `"events.events.k8s.io": must not`,
		"customresourcedefinitions.apiextensions.k8s.io":               `"customresourcedefinitions.apiextensions.k8s.io": must not`,
		"apiservices.apiregistration.k8s.io":                           `"apiservices.apiregistration.k8s.io": must not`,
		"validatingwebhookconfigurations.admissionregistration.k8s.io": `"validatingwebhookconfigurations.admissionregistration.k8s.io": must not`,
		"services,nodes,pods,*.apps":                                   "recover while Gatehouse is down (hint: --validate-open, and failurePolicy Ignore in the policy)\n--validate: \"*.apps\": a wildcard",
	} {
		err := CheckClosed(rulesOf(text))
		got := ""
		if err != nil {
			got = err.Error()
		}
		if (want == "") != (err == nil) || !strings.Contains(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// The usual registration is one that the check lets pass.
func TestDefaultRulesMayFailClosed(t *testing.T) {
	t.Parallel()
	if err := CheckClosed(defaultRules()); err != nil {
		t.Error(err)
	}
}
