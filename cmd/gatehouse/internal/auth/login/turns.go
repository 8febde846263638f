package login

import "context"

// turns bounds how many calls are under way at one time. Familiar clients have
// as many turns again that are theirs alone. It is safe for concurrent use.
type turns struct {
	all, familiar chan struct{}
}

func newTurns(n int) *turns {
	return &turns{all: make(chan struct{}, n), familiar: make(chan struct{}, n)}
}

// enter waits for a turn, turnTime at most, and returns how to leave, or nil if
// there was none.
func (t *turns) enter(ctx context.Context, familiar bool) (leave func()) {
	select {
	case t.all <- struct{}{}:
		return func() { <-t.all }
	default:
	}
	var own chan struct{} // nobody enters by a nil channel
	if familiar {
		own = t.familiar
	}
	ctx, cancel := context.WithTimeout(ctx, turnTime)
	defer cancel()
	select {
	case own <- struct{}{}:
		return func() { <-t.familiar }
	case t.all <- struct{}{}:
		return func() { <-t.all }
	case <-ctx.Done():
		return nil
	}
}
