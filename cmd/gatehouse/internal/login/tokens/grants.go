package tokens

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// GrantStore keeps the documents of Grants, as Store keeps those of access tokens, and with its errors.
type GrantStore interface {
	// CreateGrant keeps a new Grant, and says where.
	CreateGrant(ctx context.Context, grant *v1alpha1.Grant) (place string, err error)
	// ListGrants is what List is for tokens.
	ListGrants(ctx context.Context) (Listing, error)
	// DeleteGrant removes a Grant, as ListGrants has given it, and says where it was. A dry run changes nothing.
	DeleteGrant(ctx context.Context, grant *authn.Grant, dryRun bool) (place string, err error)
}

var (
	_ GrantStore = Directory{}
	_ GrantStore = (*Cluster)(nil)
)

// GrantFile returns where CreateGrant writes the Grant of a name.
func (d Directory) GrantFile(name string) string { return filepath.Join(d.Dir, "grant-"+name+".yaml") }

// CreateGrant writes the Grant to grant-<name>.yaml, never over a file.
func (d Directory) CreateGrant(ctx context.Context, grant *v1alpha1.Grant) (string, error) {
	return d.create(ctx, d.GrantFile(grant.Name), grant)
}

// ListGrants reads the directory as a server does.
func (d Directory) ListGrants(ctx context.Context) (Listing, error) { return d.List(ctx) }

// DeleteGrant removes the file of a Grant as Delete that of a token.
func (d Directory) DeleteGrant(ctx context.Context, grant *authn.Grant, dryRun bool) (string, error) {
	return d.remove(ctx, grant.Source, "Grant", dryRun)
}

// CreateGrant makes the object of the Grant, with the name of the client's user as grantedBy: the API server takes no
// other. The error of a Grant that is refused is ErrRefused.
func (c *Cluster) CreateGrant(ctx context.Context, grant *v1alpha1.Grant) (string, error) {
	place := object(grantKind, grant.Name)
	review := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}}
	answer, err := c.myself.Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return place, fmt.Errorf("the API server does not say who you are: %s", singleLine(cmp.Or(apierr.Unreached(err), err).Error()))
	}
	if grant.Spec.GrantedBy, _, _ = unstructured.NestedString(answer.Object, "status", "userInfo", "username"); grant.Spec.GrantedBy == "" {
		return place, errors.New("the API server does not say who you are: its SelfSubjectReview has no user name")
	}
	made, err := c.create(ctx, c.grants, grantResource, grant)
	if err == nil {
		grant.UID, grant.CreationTimestamp = made.GetUID(), made.GetCreationTimestamp()
	}
	return place, err
}

// ListGrants reads all Grants, those that servers do not use included.
func (c *Cluster) ListGrants(ctx context.Context) (Listing, error) {
	listing := Listing{Unused: map[string]string{}, Pending: map[string]bool{}}
	err := each(ctx, c.grants, grantResource, func(u *unstructured.Unstructured) {
		r := config.ReadResource(u)
		grant := authn.Grant{Source: config.ClusterSource}
		if value, ok := r.Value.(*v1alpha1.Grant); ok {
			grant.Grant = *value
		}
		grant.Name, grant.UID, grant.CreationTimestamp = u.GetName(), u.GetUID(), u.GetCreationTimestamp()
		listing.noteUse(u, r.Found.Err())
		listing.Grants = append(listing.Grants, grant)
	})
	return listing, err
}

// DeleteGrant deletes the object of a Grant, if it is still the one that was listed.
func (c *Cluster) DeleteGrant(ctx context.Context, grant *authn.Grant, dryRun bool) (string, error) {
	return remove(ctx, c.grants, grantResource, grant, dryRun)
}

// GrantAcceptance reads which replicas use a Grant, by the conditions that they write.
func (c *Cluster) GrantAcceptance(ctx context.Context, name string) (Acceptance, error) {
	return acceptance(ctx, c.grants, grantResource, name)
}
