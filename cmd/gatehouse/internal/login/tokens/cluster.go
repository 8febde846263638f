package tokens

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/paging"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// kind is that of access tokens, and grantKind that of Grants.
const (
	kind      = "AccessToken"
	grantKind = "Grant"
)

const (
	tokenResource      = "accesstokens"
	revocationResource = "tokenrevocations"
	grantResource      = "grants"
	// manager is who the API server notes as the author of objects made here.
	manager = "gatehouse-token"
)

// Cluster is a Store of custom resources, for whoever the client is to the API
// server. What is found wrong in its errors is in the words of the API server,
// with a remedy where there is one.
//
// It sends hashes, and never sees a token.
type Cluster struct {
	tokens, revocations, grants, myself dynamic.NamespaceableResourceInterface
}

var _ Store = (*Cluster)(nil) // a Cluster is a Store

// NewCluster returns the Store of the cluster of a client.
func NewCluster(client dynamic.Interface) *Cluster {
	return &Cluster{
		tokens:      client.Resource(v1alpha1.GroupVersion.WithResource(tokenResource)),
		revocations: client.Resource(v1alpha1.GroupVersion.WithResource(revocationResource)),
		grants:      client.Resource(v1alpha1.GroupVersion.WithResource(grantResource)),
		myself:      client.Resource(authenticationv1.SchemeGroupVersion.WithResource("selfsubjectreviews")),
	}
}

// Create makes the object of the token. The token gets the metadata that the API
// server gives it: its creationTimestamp, by which it is revoked, is the API
// server's time. The error of a token that is refused is ErrRefused.
func (c *Cluster) Create(ctx context.Context, token *v1alpha1.AccessToken) (string, error) {
	made, err := c.create(ctx, c.tokens, tokenResource, token)
	if err != nil {
		return object(kind, token.Name), err
	}
	token.UID, token.ResourceVersion, token.CreationTimestamp = made.GetUID(), made.GetResourceVersion(), made.GetCreationTimestamp()
	return object(kind, token.Name), nil
}

// Revoke makes the object of the revocation. The error of one that is refused is
// ErrRefused. A dry run asks nobody.
func (c *Cluster) Revoke(ctx context.Context, revocation *v1alpha1.TokenRevocation, dryRun bool) (string, error) {
	place := object(revocation.Kind, revocation.Name)
	if dryRun {
		return place, nil
	}
	_, err := c.create(ctx, c.revocations, revocationResource, revocation)
	return place, err
}

func (*Cluster) create(ctx context.Context, client dynamic.ResourceInterface, resource string, document metav1.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(document)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(content, "status")
	made, err := client.Create(ctx, u, metav1.CreateOptions{FieldManager: manager, FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		return nil, explain(err, "create", resource, document.GetName())
	}
	return made, nil
}

// List reads all tokens and revocations. A token that is not used is among them
// all the same, and in Unused, and one that no server has reported of in Pending. Of what cannot be read as this version would, the
// name is there, and what is wrong is in Found.
func (c *Cluster) List(ctx context.Context) (Listing, error) {
	listing := Listing{Unused: map[string]string{}, Pending: map[string]bool{}}
	if err := each(ctx, c.tokens, tokenResource, listing.addToken); err != nil {
		return Listing{}, err
	}
	err := each(ctx, c.revocations, revocationResource, func(u *unstructured.Unstructured) {
		r := config.ReadResource(u)
		listing.Found = append(listing.Found, r.Found...)
		if value, ok := r.Value.(*v1alpha1.TokenRevocation); ok && r.Found.Err() == nil {
			listing.Revocations = append(listing.Revocations, authn.Revocation{Source: config.ClusterSource, TokenRevocation: *value})
		}
	})
	return listing, err
}

// addToken adds a token as it was read.
func (l *Listing) addToken(u *unstructured.Unstructured) {
	r := config.ReadResource(u)
	token := authn.Token{Source: config.ClusterSource}
	if value, ok := r.Value.(*v1alpha1.AccessToken); ok {
		token.AccessToken = *value
	}
	// Of a document that cannot be read these are known too.
	token.Name, token.UID, token.ResourceVersion, token.CreationTimestamp = u.GetName(), u.GetUID(), u.GetResourceVersion(), u.GetCreationTimestamp()
	token.Status = statusOf(u)
	l.noteUse(u, r.Found.Err())
	l.Tokens = append(l.Tokens, token)
}

// noteUse notes whether servers use an object, by its condition. The error is about the object as it was read here.
func (l *Listing) noteUse(u *unstructured.Unstructured, err error) {
	compiled := meta.FindStatusCondition(statusOf(u).Conditions, v1alpha1.CompiledCondition)
	reported := compiled != nil && compiled.ObservedGeneration == u.GetGeneration()
	switch {
	case err != nil:
		l.Unused[u.GetName()] = err.Error()
	case reported && compiled.Status == metav1.ConditionFalse:
		l.Unused[u.GetName()] = compiled.Message
	case !reported || compiled.Status != metav1.ConditionTrue:
		l.Pending[u.GetName()] = true
	}
}

// Acceptance says which replicas accept a token, or use a Grant.
type Acceptance struct {
	// Everywhere reports whether every replica does.
	Everywhere bool
	// Refused is why no replica does, and Message what the status says, "" while no replica has reported.
	Refused, Message string
	// Warnings are what replicas that use it say about it, "" for nothing.
	Warnings string
}

// Acceptance reads which replicas accept a token, by the conditions that they write.
func (c *Cluster) Acceptance(ctx context.Context, name string) (Acceptance, error) {
	return acceptance(ctx, c.tokens, tokenResource, name)
}

func acceptance(ctx context.Context, client dynamic.ResourceInterface, resource, name string) (Acceptance, error) {
	u, err := client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return Acceptance{}, explain(err, "get", resource, name)
	}
	var a Acceptance
	conditions := statusOf(u).Conditions
	if compiled := meta.FindStatusCondition(conditions, v1alpha1.CompiledCondition); compiled != nil {
		switch {
		case compiled.Status == metav1.ConditionFalse:
			a.Refused = compiled.Message
		case compiled.Reason == v1alpha1.WarningsReason:
			a.Warnings = compiled.Message
		}
	}
	if ready := meta.FindStatusCondition(conditions, v1alpha1.ReadyCondition); ready != nil && ready.ObservedGeneration == u.GetGeneration() {
		// A Grant that begins later has no effect yet in every replica.
		a.Everywhere, a.Message = ready.Status == metav1.ConditionTrue || ready.Reason == v1alpha1.NoEffectReason, ready.Message
	}
	return a, nil
}

// statusOf returns the status of a token. One that is not ours to read counts as none.
func statusOf(u *unstructured.Unstructured) v1alpha1.AccessTokenStatus {
	var status v1alpha1.AccessTokenStatus
	content, ok := u.Object["status"].(map[string]any)
	if !ok || runtime.DefaultUnstructuredConverter.FromUnstructured(content, &status) != nil {
		return v1alpha1.AccessTokenStatus{}
	}
	return status
}

// each reads all objects of a kind.
func each(ctx context.Context, client dynamic.ResourceInterface, resource string, do func(*unstructured.Unstructured)) error {
	err := paging.Objects(ctx, client.List, metav1.ListOptions{}, func(u *unstructured.Unstructured) error {
		do(u)
		return nil
	})
	return explain(err, "list", resource, "")
}

// Delete deletes the token's object, if it is still the one that was listed. A dry run asks nobody.
func (c *Cluster) Delete(ctx context.Context, token *authn.Token, dryRun bool) (string, error) {
	return remove(ctx, c.tokens, tokenResource, token, dryRun)
}

func remove(ctx context.Context, client dynamic.ResourceInterface, resource string, document metav1.Object, dryRun bool) (string, error) {
	place := object(kindOf(resource), document.GetName())
	if dryRun {
		return place, nil
	}
	// Its status may have been written since, which is no other object.
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(document.GetUID())}}
	return place, explain(client.Delete(ctx, document.GetName(), options), "delete", resource, document.GetName())
}

// object returns the name of an object for people.
func object(kind, name string) string { return fmt.Sprintf("%s/%s", kind, name) }
