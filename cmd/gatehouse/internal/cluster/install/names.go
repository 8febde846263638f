// Package install has the default names of the objects of an install.
package install

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// The names of an install.
const (
	DefaultNamespace = "gatehouse-system"
	// DefaultRegistration is the name of both webhook configurations.
	DefaultRegistration = "gatehouse"
	// DefaultGroup is the name that the replicas of an install share in its namespace.
	DefaultGroup = "gatehouse"
	// GrantPolicy is the name of the ValidatingAdmissionPolicy of who may grant, and of its binding. A later version with
	// another policy gives it another name, so that servers of this version do not take one for the other.
	GrantPolicy = "gatehouse-grants"
	// DefaultCASecret is the Secret of a self-signed CA, NAMESPACE/NAME.
	DefaultCASecret = "gatehouse-system/gatehouse-ca" // #nosec G101 -- the name of a Secret
)

// CustomResources returns the resources of the group gatehouse.dev.
func CustomResources() []string {
	return []string{"accesstokens", "admissionpolicies", "admissionpolicybindings", "grants", "policybaselines", "policyexceptions", "sidecarprofiles", "tokenrevocations"}
}

// ExcludedNamespaces returns those of which the API server sends nothing to an install with default names.
func ExcludedNamespaces() []string {
	return []string{"kube-system", "kube-node-lease", DefaultNamespace}
}

// ParseNamespacedName splits NAMESPACE/NAME. Both are empty for "".
func ParseNamespacedName(text string) (namespace, name string, err error) {
	if text == "" {
		return "", "", nil
	}
	namespace, name, found := strings.Cut(text, "/")
	if !found || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return "", "", fmt.Errorf("%.100q must be NAMESPACE/NAME", text)
	}
	return namespace, name, nil
}

// ReportName returns the name of the audit reports of an install, by its namespace.
func ReportName(namespace string) string {
	if namespace == DefaultNamespace {
		return "gatehouse-audit"
	}
	return "gatehouse-audit-" + namespace
}
