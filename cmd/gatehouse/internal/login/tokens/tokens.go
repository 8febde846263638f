// Package tokens stores access tokens and Grants: it writes their documents, lists and removes them, and records in a cluster when
// each token was last used. A Store is a directory or a cluster. A token is valid as long as its AccessToken document
// exists.
package tokens

import (
	"context"
	"errors"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// The errors of a Store that callers tell apart with errors.Is.
var (
	// ErrExists is a document of a name that is taken. What was there stays.
	ErrExists = errors.New("already exists")
	// ErrNotFound is a token that is not there any more.
	ErrNotFound = errors.New("does not exist")
	// ErrForbidden is a right in a cluster that is missing. The error around it says
	// which.
	ErrForbidden = errors.New("is forbidden")
	// ErrRefused is a document with errors that a cluster does not take.
	ErrRefused = errors.New("is refused")
)

// Store keeps the documents of access tokens. It is safe for concurrent use, by
// several processes too: of two that create the same name one fails, and none
// undoes what another did.
type Store interface {
	// Create keeps a new token, and says where: a file, or the name of an object.
	// The error of a name that is taken is ErrExists.
	Create(ctx context.Context, token *v1alpha1.AccessToken) (place string, err error)
	// List is everything that is there, in no particular order.
	List(ctx context.Context) (Listing, error)
	// Delete removes a token, as List has given it, and says where it was. A dry run
	// changes nothing.
	Delete(ctx context.Context, token *authn.Token, dryRun bool) (place string, err error)
	// Revoke keeps a revocation, and says where. The error of a name that is taken
	// is ErrExists. A dry run keeps nothing.
	Revoke(ctx context.Context, revocation *v1alpha1.TokenRevocation, dryRun bool) (place string, err error)
}

// Listing is what a Store holds.
type Listing struct {
	// Spec has the tokens and their revocations, and beside them the guard and the
	// other sources of identities, as far as the Store knows them. Nobody can be
	// asked by it.
	authn.Spec
	// Found is what is wrong where the tokens are kept. With an error in it, tokens
	// may be missing from the listing, and servers use what they had before.
	Found diagnostic.List
	// Unused says of tokens or Grants that are there, by name, why servers do not use them. Of a
	// directory it is empty: its documents are used all or not at all.
	Unused map[string]string
	// Pending has the names of those of which no server has reported yet whether it uses
	// them.
	Pending map[string]bool
}

// RevokedBy returns the revocation that ends the token, if there is one.
func (l *Listing) RevokedBy(token *v1alpha1.AccessToken) (authn.Revocation, bool) {
	for _, r := range l.Revocations {
		issued := token.CreationTimestamp.Time
		if r.Spec.User == token.Spec.User.Username && (issued.IsZero() || issued.Before(r.Spec.IssuedBefore.Time)) {
			return r, true
		}
	}
	return authn.Revocation{}, false
}
