package authn_test

import (
	"fmt"
	"reflect"
	"runtime"
	"strconv"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// Tokens share what they have in common, and must not take from each other what
// they have not.
func TestTokensProveTheirOwnIdentity(t *testing.T) {
	t.Parallel()
	type user = authenticationv1.UserInfo
	type extra = map[string]authenticationv1.ExtraValue
	users := []user{
		{Username: "a"},
		{Username: "a", UID: "b"},
		{Username: "ab"},
		{Username: "a", Groups: []string{"b"}},
		{Username: "a", Groups: []string{"b", "c"}},
		{Username: "a", Groups: []string{"c", "b"}},
		{Username: "a", Groups: []string{"bc"}},
		{Username: "a", Groups: []string{"b", "example.org/c"}},
		{Username: "a", Groups: []string{"b"}, Extra: extra{"example.org/c": nil}},
		{Username: "a", Extra: extra{"example.org/b": {"c", "d"}}},
		{Username: "a", Extra: extra{"example.org/b": {"c"}, "example.org/d": {""}}},
		{Username: "a", Extra: extra{"example.org/b": {"c"}, "example.org/d": nil}},
		{Username: "a"},
	}
	texts := make([]string, len(users))
	tokens := make([]authn.Token, len(users))
	for i := range users {
		texts[i], tokens[i] = issue("t"+strconv.Itoa(i), byte(i), func(s *v1alpha1.AccessTokenSpec) { s.User = users[i] })
	}
	set := compile(t, tokens...)
	for i := range users {
		got := set.Decide(t.Context(), authn.Input{Token: texts[i]})
		if !reflect.DeepEqual(got.Status.User, users[i]) {
			t.Errorf("token %d: got %+v, want %+v", i, got.Status.User, users[i])
		}
		// What a caller does to its extra is no other's.
		if got.Status.User.Extra != nil {
			got.Status.User.Extra["example.org/mine"] = nil
		}
	}
	for i := range users {
		if got := set.Decide(t.Context(), authn.Input{Token: texts[i]}).Status.User; !reflect.DeepEqual(got, users[i]) {
			t.Errorf("token %d, again: got %+v, want %+v", i, got, users[i])
		}
	}
}

func TestAccessTokenTellsItsTimes(t *testing.T) {
	t.Parallel()
	text, token := issue("ci", 1)
	token.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour).In(time.FixedZone("", 3600)))
	d := compile(t, token).Decide(t.Context(), authn.Input{Token: text})
	if !d.IssuedAt.Equal(noon.Add(-time.Hour)) || !d.ExpiresAt.Equal(noon.Add(time.Hour)) {
		t.Errorf("issued %v, expires %v", d.IssuedAt, d.ExpiresAt)
	}
	text, token = issue("cd", 1)
	if d := compile(t, token).Decide(t.Context(), authn.Input{Token: text}); !d.IssuedAt.IsZero() {
		t.Errorf("a token that does not say when it was issued: %v", d.IssuedAt)
	}
}

// A hundred thousand tokens that have nothing in common fit into 48 MiB, of the
// 64 MiB that a server may take more for them. It is not parallel: it looks at the
// whole heap.
func TestManyTokensAreSmall(t *testing.T) {
	const n, most = 100_000, 48 << 20
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	text, set := "", (*authn.Set)(nil)
	func() {
		tokens := make([]authn.Token, n)
		for i := range tokens {
			text, tokens[i] = issue(fmt.Sprintf("token-%06d", i), byte(i), func(s *v1alpha1.AccessTokenSpec) {
				s.User = authenticationv1.UserInfo{
					Username: fmt.Sprintf("robot-%d@example.org", i), UID: strconv.Itoa(i),
					Groups: []string{"dev", fmt.Sprintf("team-%d", i%500), fmt.Sprintf("own-%d", i)},
					Extra:  map[string]authenticationv1.ExtraValue{"example.org/number": {strconv.Itoa(i)}},
				}
			})
		}
		set = compile(t, tokens...)
	}()
	if more := heap() - before; more > most {
		t.Errorf("%d tokens take %d KiB", n, more>>10)
	}
	if d := set.Decide(t.Context(), authn.Input{Token: text}); d.Outcome != authn.Yes || d.Status.User.UID != strconv.Itoa(n-1) {
		t.Errorf("the last one: %+v", d)
	}
}
