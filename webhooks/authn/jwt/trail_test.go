package jwt_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
)

// noon is when the tokens of these tests are looked at.
func noon() time.Time { return time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) }

// steps returns the trail of a token, a line a step, and the error of Verify.
func steps(ctx context.Context, t *testing.T, a *jwt.Authenticator, text string) (steps []string, err error) {
	t.Helper()
	token, err := jwt.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.Verify(ctx, token, noon(), func(step, found string) { steps = append(steps, step+": "+found) })
	return steps, err
}

// TestTrailWithoutTime: a rule that took too long is not said to be wrong.
func TestTrailWithoutTime(t *testing.T) {
	t.Parallel()
	config := plain()
	slow := `dyn(claims.groups).all(a, dyn(claims.groups).all(b, dyn(claims.groups).all(c, a + b + c != "")))`
	config.ClaimValidationRules = []apiserver.ClaimValidationRule{{Expression: slow}, {Expression: "claims.sub != ''"}}
	ctx, cancel := context.WithCancel(t.Context())
	trail, err := steps(ctx, t, compile(t, config, keysFunc(func(ctx context.Context, id string) ([]jwt.Key, error) {
		cancel()
		return issuerKeys().Find(ctx, id)
	})), issue(t, "ES256", claims(`,"groups":["`+strings.Repeat(`g","`, 100)+`g"]`)))
	if _, ok := errors.AsType[*jwt.Refusal](err); ok || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if got, want := trail[len(trail)-1], "claimValidationRules[0]: no time: "+slow; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestTrailDecidesNothing: with a trail the answer is the same, and what is told
// does not contradict it.
func TestTrailDecidesNothing(t *testing.T) {
	t.Parallel()
	var yes, no int
	for seed := range uint64(80) {
		r := rand.New(rand.NewPCG(seed, 11)) // #nosec G404 -- the same tokens at each run
		a, errs := jwt.Compile(randomConfig(r), issuerKeys())
		if len(errs) > 0 {
			continue
		}
		for range 20 {
			switch by, err := checkTrail(t, a, issue(t, "ES256", randomClaims(r))); {
			case err == nil:
				yes++
			case by:
				no++
			}
		}
	}
	if yes < 100 || no < 20 {
		t.Errorf("only %d tokens are taken, and %d refused by expressions", yes, no)
	}
}

// checkTrail verifies a token without a trail and with one, and fails the test
// where they differ, or what is told is no line or contradicts the answer. It
// returns the error of Verify, or of Parse, and whether it is about expressions in
// lists, which are told of one by one.
func checkTrail(t testing.TB, a *jwt.Authenticator, text string) (byExpression bool, err error) {
	t.Helper()
	token, err := jwt.Parse(text)
	if err != nil {
		return false, err
	}
	now := clock()
	proof, err := a.Verify(t.Context(), token, now, nil)
	var bad []string
	again, other := a.Verify(t.Context(), token, now, func(step, found string) {
		if len(found) > 6000 || strings.ContainsAny(found, "\n\r\x00\x1b") {
			t.Errorf("%s: too long for a line, or breaks it: %q", step, found)
		}
		_, extra, _ := strings.Cut(found, " = ")
		rule := strings.Contains(step, "ValidationRules[")
		if rule && !strings.HasPrefix(found, "true: ") || strings.HasPrefix(found, "error, from") || step == "extra" && strings.HasPrefix(extra, "error: ") {
			bad = append(bad, step+": "+found)
		}
	})
	if !reflect.DeepEqual(proof, again) || fmt.Sprint(err) != fmt.Sprint(other) {
		t.Errorf("%+v, %v without a trail, and %+v, %v with one", proof, err, again, other)
	}
	byExpression = err != nil && (strings.Contains(err.Error(), "validation expression") || strings.Contains(err.Error(), "the extra expression"))
	if err == nil && len(bad) > 0 || byExpression && len(bad) == 0 {
		t.Errorf("the answer is %v, and the trail has %q", err, bad)
	}
	return byExpression, err
}
