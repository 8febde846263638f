package authn_test

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

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

// A hundred thousand tokens that have nothing in common fit into 80 MiB. It is not
// parallel: it looks at the whole heap.
func TestManyTokensAreSmall(t *testing.T) {
	const n, most = 100_000, 80 << 20
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
