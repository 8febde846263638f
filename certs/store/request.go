package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

// RequestRotation asks whoever serves with the CA in a store for a new one, and
// returns the ID of the request: the rotation is done when the state names it as
// Done and is Stable. Nothing happens until a replica sees it. With emergency,
// what is trusted now is forgotten as soon as that can be done at all.
//
// What is stored must be whole: healing it is the replicas' work.
func RequestRotation(ctx context.Context, store Store, emergency bool, now time.Time) (id string, err error) {
	random := make([]byte, 8)
	_, _ = rand.Read(random) // it never fails
	id = hex.EncodeToString(random)
	for range MaxConflicts {
		if err = writeRequest(ctx, store, &rotation.Request{ID: id, At: now.UTC(), Emergency: emergency}, now); !errors.Is(err, ErrConflict) {
			break
		}
	}
	if err != nil {
		return "", err
	}
	return id, nil
}

func writeRequest(ctx context.Context, store Store, r *rotation.Request, now time.Time) error {
	record, err := store.Load(ctx)
	if err != nil {
		return err
	}
	state, err := rotation.Decode(record.Data)
	if err != nil {
		return fmt.Errorf("%s: %w", store, err)
	}
	next := *state
	next.Request = r
	next.Generation++
	data, err := rotation.Encode(&next, now)
	if err != nil {
		return err
	}
	if err := store.Save(ctx, record, data); errors.Is(err, ErrConflict) {
		return fmt.Errorf("%s: %w", store, err)
	} else if err != nil {
		return err
	}
	return nil
}

// MaxConflicts is how often a change is tried again at once when others are
// faster. After that it is tried at the next look.
const MaxConflicts = 5
