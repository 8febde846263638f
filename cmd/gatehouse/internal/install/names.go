package install

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/certs"
)

const DefaultRegistration = "gatehouse"

// ParseNamespacedName takes NAMESPACE/NAME apart. Nothing is none.
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

// ReplacedFilesWarning is what to say of files of a CA of ours whose key is gone.
func ReplacedFilesWarning(dir string) string {
	return fmt.Sprintf("%s has files of an older Gatehouse and no %s: they are replaced by those of a new CA (hint: give the API server %s and the client certificate again, where it has copies)",
		dir, certs.AuthorityFile, certs.CAFile)
}

// DefaultCASecret is looked at unless another is named.
const DefaultCASecret = "gatehouse-system/gatehouse-ca" // #nosec G101 -- the name of a Secret

// DefaultGroup is what the replicas of an install have in common in its namespace.
const DefaultGroup = "gatehouse"

// DefaultNamespace is that of an install that does not say otherwise.
const DefaultNamespace = "gatehouse-system"
