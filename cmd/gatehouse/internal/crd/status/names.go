package status

import (
	"fmt"
	"hash/fnv"
	"strings"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// managerPrefix begins the name under which an install writes status, so that
	// another install can be told from a person.
	managerPrefix = "gatehouse-status:"
	// maxLeaseName leaves room for what is random in the name of a Lease.
	maxLeaseName = validation.DNS1123SubdomainMaxLength - len("-0123456789")
)

// managerOf is whose fields ours are in metadata.managedFields. It is the same for
// all replicas of an install, so that each goes on where another one ended.
func managerOf(namespace, group string) string {
	return shortenName(managerPrefix+namespace+"/"+group, metav1validation.FieldManagerMaxLength)
}

// shortenName is a name of bounded length that different names do not share.
func shortenName(name string, longest int) string {
	if len(name) <= longest {
		return name
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	end := fmt.Sprintf("-%016x", h.Sum64())
	return strings.TrimRight(name[:longest-len(end)], "-.") + end
}
