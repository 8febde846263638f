package support

import (
	"errors"
	"testing"
)

// What a test left behind takes a while to go, and the test's context is canceled before its cleanups run.
func TestEventuallyInCleanup(t *testing.T) {
	t.Parallel()
	t.Cleanup(func() {
		calls := 0
		Eventually(t, "the third call", func() error {
			calls++
			if calls < 3 {
				return errors.New("not yet")
			}
			return nil
		})
	})
}
