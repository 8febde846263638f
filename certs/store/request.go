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

// RequestRotation stores a request for a new CA, and returns its ID: the rotation is over
// when the state is Stable and names it as Done. The replicas do the rest. In an emergency
// the current CA is removed as soon as possible.
//
// It returns an error if the stored state is damaged: replicas repair it.
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
	if err = store.Save(ctx, record, data); errors.Is(err, ErrConflict) {
		return fmt.Errorf("%s: %w", store, err)
	}
	return err
}

// MaxConflicts is how often a change is tried again at once after a conflict.
const MaxConflicts = 5
