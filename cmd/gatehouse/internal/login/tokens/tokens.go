// Package tokens keeps access tokens: it writes their documents, lists them,
// removes them, and notes in a cluster when they were last used.
//
// A token is an AccessToken document, and what removes it revokes it. Where the
// documents are is behind Store: in a directory, or in a cluster.
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
	// ErrNotFound is a token that is not there.
	ErrNotFound = errors.New("does not exist")
	// ErrNotRemovable is a token that is there and has to be removed by hand. The
	// error around it says where, and why.
	ErrNotRemovable = errors.New("must be removed by hand")
	// ErrChanged is a document that somebody else changed at the same moment.
	// Trying again may help.
	ErrChanged = errors.New("was changed at the same time")
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
	// Delete removes tokens, as List has given them, and says of each what became
	// of it, in their order. The errors of single ones are ErrNotFound,
	// ErrNotRemovable and ErrChanged. A dry run changes nothing; of files it has
	// the same result.
	Delete(ctx context.Context, tokens []authn.Token, dryRun bool) []Removal
	// Revoke keeps a revocation, and says where. The error of a name that is taken
	// is ErrExists. A dry run keeps nothing.
	Revoke(ctx context.Context, revocation *v1alpha1.TokenRevocation, dryRun bool) (place string, err error)
}

// Removal is what became of a token that was to be removed.
type Removal struct {
	ID string
	// Place is where it was: a file, or the name of an object.
	Place string
	// Err is nil if it is removed.
	Err error
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
	// Unused says of tokens that are there, by id, why servers do not use them. Of a
	// directory it is empty: its documents are used all or not at all.
	Unused map[string]string
	// Pending has the ids of tokens of which no server has reported yet whether it uses
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
