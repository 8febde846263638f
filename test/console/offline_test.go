package console

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

const objects = "testdata/objects"

// podReview is a review of a pod, with places for its UID, name, image, namespace and user.
const podReview = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":%[1]q,"kind":{"group":"","version":"v1","kind":"Pod"},` +
	`"resource":{"group":"","version":"v1","resource":"pods"},"requestKind":{"group":"","version":"v1","kind":"Pod"},` +
	`"requestResource":{"group":"","version":"v1","resource":"pods"},"name":%[2]q,"namespace":%[4]q,"operation":"CREATE","userInfo":{"username":%[5]q},` +
	`"object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":%[2]q,"namespace":%[4]q,"labels":{"app":%[2]q}},"spec":{"containers":[{"name":"app","image":%[3]q}]}}}}`

// recorded is a recording of a real server, whose reviews have lookups and patches.
type recorded struct {
	dir string
	// reviews are how many there are, and denied are the names of the pods that were refused.
	reviews int
	denied  []string
}

// record has a server decide on so many pods of two namespaces.
func record(t *testing.T, pods int) *recorded {
	t.Helper()
	config := t.TempDir()
	must(t, os.CopyFS(config, os.DirFS(objects)))
	must(t, os.WriteFile(filepath.Join(config, "namespaces.yaml"), []byte(namespaces), 0o600))
	r := &recorded{dir: filepath.Join(t.TempDir(), "recording"), reviews: 2 * pods}
	s := gatehouse.StartLocal(t, config, "--record", r.dir)
	for i := range pods {
		namespace, user := shop, anna
		if i%2 == 1 {
			namespace, user = mall, ben
		}
		name, image := fmt.Sprintf("app-%03d", i), "registry.example/app:1"
		if i%10 == 0 {
			image = "old.example/app:1"
			r.denied = append(r.denied, name)
		}
		for _, path := range []string{"/mutate", "/validate"} {
			must(t, s.Post(t.Context(), path, fmt.Appendf(nil, podReview, fmt.Sprintf("%s-%d", path[1:], i), name, image, namespace, user)))
		}
	}
	must(t, s.Signal(os.Interrupt))
	code, err := s.Wait(t.Context())
	if must(t, err); code != 0 {
		t.Fatalf("the server ends with the code %d", code)
	}
	return r
}

const namespaces = `apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {logs: shipped}}
---
apiVersion: v1
kind: Namespace
metadata: {name: mall, labels: {logs: shipped}}
`

var _ = strings.Contains
var _ = support.Eventually
