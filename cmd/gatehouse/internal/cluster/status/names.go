package status

import (
	"fmt"
	"hash/fnv"
	"strings"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// managerPrefix begins the field manager of each install.
	managerPrefix = "gatehouse-status:"
	maxLeaseName  = validation.DNS1123SubdomainMaxLength
)

// managerOf returns the field manager of an install. It is the same for all replicas, so that each
// goes on where another one ended.
func managerOf(namespace, group string) string {
	return shortenName(managerPrefix+namespace+"/"+group, metav1validation.FieldManagerMaxLength)
}

// shortenName returns a name of bounded length that different names do not share.
func shortenName(name string, longest int) string {
	if len(name) <= longest {
		return name
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	end := fmt.Sprintf("-%016x", h.Sum64())
	return strings.TrimRight(name[:longest-len(end)], "-.") + end
}
