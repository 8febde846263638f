package tokens

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// newCluster is a client of a cluster without objects.
func newCluster() *fake.FakeDynamicClient {
	return fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		v1alpha1.GroupVersion.WithResource(tokenResource):      "AccessTokenList",
		v1alpha1.GroupVersion.WithResource(revocationResource): "TokenRevocationList",
		v1alpha1.GroupVersion.WithResource(grantResource):      "GrantList",
	})
}

// newObject reads an object of this API group from YAML.
func newObject(t testing.TB, kind, text string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	u := &unstructured.Unstructured{}
	if err == nil {
		err = kjson.Unmarshal(data, &u.Object)
	}
	if err != nil {
		t.Fatal(err)
	}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	return u
}

// clusterToken is a token of the cluster as servers know it.
func clusterToken(id string) authn.Token {
	return authn.Token{Source: config.ClusterSource, AccessToken: v1alpha1.AccessToken{ObjectMeta: metav1.ObjectMeta{Name: id, UID: types.UID("uid-" + id)}}}
}

// statusError is the error for an answer of the API server.
func statusError(t testing.TB, body string) error {
	t.Helper()
	var status metav1.Status
	if json.Unmarshal([]byte(body), &status) != nil {
		return apierrors.NewGenericServerResponse(404, "get", schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: tokenResource}, "a", body, 0, true)
	}
	return &apierrors.StatusError{ErrStatus: status}
}

func TestClusterErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, body string
		is         error
		says       string
	}{
		{"taken", `{"reason":"AlreadyExists","code":409,"message":"exists"}`, ErrExists, "AccessToken/a already exists"},
		{"no right", `{"reason":"Forbidden","code":403,"message":"accesstokens is forbidden: User \"x\" cannot create resource \"accesstokens\""}`, ErrForbidden, "(hint: bind the ClusterRole gatehouse-admin, or a role that allows create of accesstokens in gatehouse.dev)"},
		{"denied by somebody else", `{"reason":"Forbidden","code":403,"message":"denied by\u001b[2J a policy"}`, ErrRefused, "denied by[2J a policy"},
		{"invalid", `{"reason":"Invalid","code":422,"message":"x","details":{"causes":[{"field":"spec.user.groups[0]","message":"\"system:masters\" is reserved"},{"field":"spec.x","message":"gatehouse_ci_aaaqeayeaudaocajbifqydiob4ibceqtcqkrmfyyxyccrrq"}]}}`, ErrRefused, "cluster: AccessToken/a: spec.user.groups[0]: \"system:masters\" is reserved\ncluster: AccessToken/a: spec.x: gatehouse_…"},
		{"no definition", "404 page not found", nil, "(hint: apply the CRDs: gatehouse manifests --crds | kubectl apply --server-side -f -)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			client := newCluster()
			client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, statusError(t, c.body) })
			token := clusterToken("a").AccessToken
			_, err := NewCluster(client).Create(t.Context(), &token)
			if err == nil || !strings.Contains(err.Error(), c.says) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}
