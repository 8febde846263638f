package tokens

import (
	"encoding/json"
	"errors"
	"fmt"
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

// newCluster is a client of a cluster with these objects.
func newCluster(objects ...runtime.Object) *fake.FakeDynamicClient {
	return fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		v1alpha1.GroupVersion.WithResource(tokenResource):      "AccessTokenList",
		v1alpha1.GroupVersion.WithResource(revocationResource): "TokenRevocationList",
	}, objects...)
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

// TestClusterList reads in pages, tokens that are not used too, and deletes what was listed and nothing else.
func TestClusterList(t *testing.T) {
	t.Parallel()
	token := func(id, more, status string) unstructured.Unstructured {
		return *newObject(t, kind, fmt.Sprintf(`
metadata: {name: %[1]s, uid: uid-%[1]s, generation: 1, creationTimestamp: "2026-11-20T12:00:00Z"}
spec: {sha256: "%064[2]d", user: {username: jane%[3]s}, expiresAt: "2999-01-01T00:00:00Z"}
status: %[4]s`, id, 1, more, status))
	}
	compiled := func(status, generation string) string {
		return `{conditions: [{type: Compiled, status: "` + status + `", observedGeneration: ` + generation + `, reason: X, message: is reserved, lastTransitionTime: "2026-11-20T12:00:00Z"}]}`
	}
	const masters = `, groups: ["system:masters"]`
	newer := token("c", "", "{}")
	if err := unstructured.SetNestedField(newer.Object, int64(1), "spec", "newer"); err != nil {
		t.Fatal(err)
	}
	revocation := func(name, more string) *unstructured.Unstructured {
		return newObject(t, "TokenRevocation", `{metadata: {name: `+name+`}, spec: {user: bob, issuedBefore: "2026-01-01T00:00:00Z"`+more+`}}`)
	}
	client := newCluster(revocation("r", ""), revocation("s", ", newer: 1"))
	more := false // the fake does not pass on what the list continues
	client.PrependReactor("list", tokenResource, func(clienttesting.Action) (bool, runtime.Object, error) {
		more = !more
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("AccessTokenList"))
		if more {
			list.SetContinue("more")
			list.Items = append(list.Items, token("a", "", `{lastUsed: "2026-11-20T13:00:00Z"}`))
		} else {
			list.Items = append(list.Items, token("b", "", compiled("False", "1")), newer, token("good", "", compiled("True", "1")),
				token("m", masters, compiled("True", "0")), token("o", masters, compiled("False", "1")))
		}
		return true, list, nil
	})
	client.PrependReactor("delete", tokenResource, func(action clienttesting.Action) (bool, runtime.Object, error) {
		options := action.(clienttesting.DeleteActionImpl).DeleteOptions
		resource := schema.GroupResource{Resource: tokenResource}
		switch {
		case *options.Preconditions.UID != "uid-a":
			return true, nil, apierrors.NewConflict(resource, "b", errors.New("UID in precondition"))
		case len(options.DryRun) > 0:
			return true, nil, nil
		default:
			return true, nil, apierrors.NewNotFound(resource, "a")
		}
	})
	c := NewCluster(client)
	listing, err := c.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(listing.Tokens) != 6 || listing.Tokens[2].Name != "c" || listing.Tokens[2].UID != "uid-c" {
		t.Errorf("tokens: %+v", listing.Tokens)
	}
	if len(listing.Unused) != 3 || listing.Unused["b"] != "is reserved" || !strings.Contains(listing.Unused["c"], "newer") {
		t.Errorf("unused: %q", listing.Unused)
	}
	if len(listing.Pending) != 2 || !listing.Pending["a"] || !listing.Pending["m"] {
		t.Errorf("pending: %v", listing.Pending)
	}
	if len(listing.Revocations) != 1 || listing.Revocations[0].Name != "r" || listing.Found.Err() == nil || !strings.Contains(listing.Found.Error(), "TokenRevocation/s") {
		t.Errorf("revocations: %+v, found %v", listing.Revocations, listing.Found)
	}
	if used := listing.Tokens[0].Status.LastUsed; used == nil || used.UTC().Hour() != 13 || listing.Tokens[1].Status.LastUsed != nil {
		t.Errorf("used: %v", used)
	}
	for _, dry := range []bool{true, false} {
		removals := c.Delete(t.Context(), []authn.Token{listing.Tokens[0], listing.Tokens[1]}, dry)
		if dry != (removals[0].Err == nil) || !dry && !errors.Is(removals[0].Err, ErrNotFound) || !errors.Is(removals[1].Err, ErrChanged) {
			t.Errorf("dry run %v: %+v", dry, removals)
		}
	}
}

func TestClusterErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, body string
		is         error
		says       string
	}{
		{"taken", `{"reason":"AlreadyExists","code":409,"message":"exists"}`, ErrExists, "AccessToken/a already exists"},
		{"no right", `{"reason":"Forbidden","code":403,"message":"accesstokens is forbidden: User \"x\" cannot create resource \"accesstokens\""}`, ErrForbidden, "(hint: a ClusterRole must allow create of accesstokens in gatehouse.dev)"},
		{"denied by somebody else", `{"reason":"Forbidden","code":403,"message":"denied by\u001b[2J a policy"}`, ErrRefused, "denied by[2J a policy"},
		{"invalid", `{"reason":"Invalid","code":422,"message":"x","details":{"causes":[{"field":"spec.user.groups[0]","message":"\"system:masters\" is reserved"},{"field":"spec.x","message":"gatehouse_ci_aaaqeayeaudaocajbifqydiob4ibceqtcqkrmfyyxyccrrq"}]}}`, ErrRefused, "cluster: AccessToken/a: spec.user.groups[0]: \"system:masters\" is reserved\ncluster: AccessToken/a: spec.x: gatehouse_…"},
		{"no definition", "404 page not found", nil, "(hint: apply the CRDs: gatehouse manifests --crds | kubectl apply --server-side -f -)"},
		{"no credentials", `{"reason":"Unauthorized","code":401,"message":"Unauthorized"}`, nil, "rejects the credentials"},
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
