package podcheck

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// resources checks what a container needs: that names are known, that no request
// is above its limit, and that what cannot be shared is asked for as a whole.
func (c *Checker) resources(at string, container *corev1.Container) {
	r := &container.Resources
	for _, list := range []struct {
		field string
		all   corev1.ResourceList
	}{{"requests", r.Requests}, {"limits", r.Limits}} {
		for _, name := range slices.Sorted(maps.Keys(list.all)) {
			quantity := list.all[name]
			c.resource(fmt.Sprintf("%s.resources.%s.%s", at, list.field, name), name, &quantity)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		request, path := r.Requests[name], fmt.Sprintf("%s.resources.requests.%s", at, name)
		limit, limited := r.Limits[name]
		switch {
		case limited && request.Cmp(limit) > 0:
			c.error(path, "", "the request %q exceeds the limit %q", request.String(), limit.String())
		case !isExclusive(name):
		case !limited:
			c.invalid(path, "%s cannot be overcommitted: a limit of %q is required", name, request.String())
		case request.Cmp(limit) != 0:
			c.invalid(path, "%s cannot be overcommitted: the request %q must equal the limit %q", name, request.String(), limit.String())
		}
	}
	names := slices.AppendSeq(slices.Collect(maps.Keys(r.Requests)), maps.Keys(r.Limits))
	if slices.ContainsFunc(names, isHugePages) && !slices.Contains(names, corev1.ResourceCPU) && !slices.Contains(names, corev1.ResourceMemory) {
		c.error(at+".resources", "", "huge pages also require cpu or memory")
	}
	for i := range r.Claims {
		claim := r.Claims[i].Name
		if !c.claims[claim] {
			c.invalid(Indexed(at+".resources.claims", i)+".name", "%q is not a resourceClaim of the template", claim)
		}
	}
}

func (c *Checker) resource(path string, name corev1.ResourceName, quantity *resource.Quantity) {
	if messages := validation.IsQualifiedName(string(name)); len(messages) > 0 {
		c.messages(path, string(name), messages)
		return
	}
	if quantity.Sign() < 0 {
		c.error(path, "", "%q is negative", quantity.String())
	}
	switch {
	case name == corev1.ResourceCPU, name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage, isHugePages(name):
	case !strings.Contains(string(name), "/"):
		c.invalid(path, "%q is unknown: must be cpu, memory, ephemeral-storage, hugepages-<size> or a name with a domain", name)
	case isExclusive(name) && quantity.MilliValue()%1000 != 0:
		c.invalid(path, "%q must be an integer", quantity.String())
	}
}

func isHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// isExclusive reports whether a resource cannot be shared: an extended one, or huge
// pages.
func isExclusive(name corev1.ResourceName) bool {
	return isHugePages(name) || strings.Contains(string(name), "/") && !strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}
