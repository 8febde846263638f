package tokens

import (
	"errors"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

func newGrant(name string) *v1alpha1.Grant {
	return &v1alpha1.Grant{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: grantKind}, ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.GrantSpec{Subject: v1alpha1.GrantSubject{User: "jane"}, Groups: []string{"oncall"}, ExpiresAt: metav1.Unix(1_900_000_000, 0), GrantedBy: "somebody"},
	}
}

// TestGrantsOfACluster: a Grant has the author that the API server knows, and is listed with what servers make of it.
func TestGrantsOfACluster(t *testing.T) {
	t.Parallel()
	client := newCluster()
	answer := map[string]any{"status": map[string]any{"userInfo": map[string]any{"username": "boss"}}}
	client.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &unstructured.Unstructured{Object: answer}, nil
	})
	c := NewCluster(client)
	place, err := c.CreateGrant(t.Context(), newGrant("a"))
	if err != nil || place != "Grant/a" {
		t.Fatalf("got %q, %v", place, err)
	}
	if _, err := c.CreateGrant(t.Context(), newGrant("a")); !errors.Is(err, ErrExists) {
		t.Errorf("again: %v", err)
	}
	for _, object := range []string{
		`{metadata: {name: broken, generation: 1}, spec: {groups: x}}`,
		`{metadata: {name: used, generation: 2}, spec: {subject: {user: jane}, groups: [a], expiresAt: "2999-01-01T00:00:00Z"}, status: {conditions: [{type: Compiled, status: "True", observedGeneration: 2}]}}`,
		`{metadata: {name: refused, generation: 1}, spec: {subject: {user: jane}, groups: [a], expiresAt: "2999-01-01T00:00:00Z"}, status: {conditions: [{type: Compiled, status: "False", observedGeneration: 1, message: nobody has verified it}]}}`,
	} {
		if err := client.Tracker().Add(newObject(t, grantKind, object)); err != nil {
			t.Fatal(err)
		}
	}
	listing, err := c.ListGrants(t.Context())
	if err != nil || len(listing.Grants) != 4 {
		t.Fatalf("got %+v, %v", listing.Grants, err)
	}
	for i := range listing.Grants {
		if g := &listing.Grants[i]; g.Name == "a" && g.Spec.GrantedBy != "boss" {
			t.Errorf("granted by %q", g.Spec.GrantedBy)
		}
	}
	if len(listing.Unused) != 2 || listing.Unused["refused"] != "nobody has verified it" || !strings.Contains(listing.Unused["broken"], "spec.groups") {
		t.Errorf("unused are %q", listing.Unused)
	}
	if len(listing.Pending) != 1 || !listing.Pending["a"] {
		t.Errorf("pending are %v", listing.Pending)
	}
	if err := client.Tracker().Add(newObject(t, grantKind, `{metadata: {name: doubtful, generation: 1}, spec: {subject: {user: jane}, groups: [a], expiresAt: "2999-01-01T00:00:00Z"}, status: {conditions: [
		{type: Compiled, status: "True", reason: Warnings, observedGeneration: 1, message: no user has this name}, {type: Ready, status: "True", reason: InUse, observedGeneration: 1}]}}`)); err != nil {
		t.Fatal(err)
	}
	if a, err := c.GrantAcceptance(t.Context(), "doubtful"); err != nil || !a.Everywhere || a.Warnings != "no user has this name" {
		t.Errorf("acceptance %+v, %v", a, err)
	}
	answer["status"] = map[string]any{}
	if _, err := c.CreateGrant(t.Context(), newGrant("b")); err == nil || !strings.Contains(err.Error(), "the API server does not say who you are") {
		t.Errorf("an API server that does not know who asks: %v", err)
	}
}

func TestGrantsOfADirectory(t *testing.T) {
	t.Parallel()
	d := Directory{Dir: t.TempDir()}
	file, err := d.CreateGrant(t.Context(), newGrant("a"))
	if err != nil || file != d.GrantFile("a") {
		t.Fatalf("got %q, %v", file, err)
	}
	if _, err := d.CreateGrant(t.Context(), newGrant("a")); !errors.Is(err, ErrExists) {
		t.Errorf("again: %v", err)
	}
	listing, err := d.ListGrants(t.Context())
	if err != nil || len(listing.Grants) != 1 || listing.Found.Err() != nil {
		t.Fatalf("got %+v, %v", listing, err)
	}
	if _, err := d.DeleteGrant(t.Context(), &listing.Grants[0], true); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("after a dry run: %v", err)
	}
	if _, err := d.DeleteGrant(t.Context(), &listing.Grants[0], false); err != nil {
		t.Error(err)
	}
	if _, err := d.DeleteGrant(t.Context(), &listing.Grants[0], false); !errors.Is(err, ErrNotFound) {
		t.Errorf("again: %v", err)
	}
}
