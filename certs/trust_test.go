package certs

import (
	"errors"
	"testing"
)

func TestDistrustError(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		webhooks []string
		want     string
	}{
		{[]string{"a"}, `X gatehouse, webhook "a": no`},
		{[]string{"a", "b"}, `X gatehouse, webhooks "a" and "b": no`},
		{[]string{"a", "b", "c"}, `X gatehouse, webhooks "a", "b" and "c": no`},
		{[]string{"a", "b", "c", "d", "e"}, `X gatehouse, webhooks "a", "b", "c" and 2 more: no`},
	} {
		if got := (&DistrustError{Registration: "X gatehouse", Webhooks: c.webhooks, Err: errors.New("no")}).Error(); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}
