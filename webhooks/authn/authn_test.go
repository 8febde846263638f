package authn_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/authentication"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// noon is the time of these tests.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func atNoon() time.Time { return noon }

// issue makes a token of the id and its document, for jane and one more hour.
func issue(id string, b byte, edit ...func(*v1alpha1.AccessTokenSpec)) (text string, token authn.Token) {
	text, hash := authn.NewToken(id, seed(b))
	token = authn.Token{Source: "tokens/" + id + ".yaml"}
	token.Name = id
	token.Spec = v1alpha1.AccessTokenSpec{
		SHA256: hash,
		User: authenticationv1.UserInfo{
			Username: "jane", UID: "4711", Groups: []string{"dev", "eng"},
			Extra: map[string]authenticationv1.ExtraValue{"example.org/team": {"blue", "green"}},
		},
		ExpiresAt: metav1.NewTime(noon.Add(time.Hour)),
	}
	for _, e := range edit {
		e(&token.Spec)
	}
	return text, token
}

func audiences(list ...string) func(*v1alpha1.AccessTokenSpec) {
	return func(s *v1alpha1.AccessTokenSpec) { s.Audiences = list }
}

func expires(at time.Time) func(*v1alpha1.AccessTokenSpec) {
	return func(s *v1alpha1.AccessTokenSpec) { s.ExpiresAt = metav1.NewTime(at) }
}

func compile(t testing.TB, tokens ...authn.Token) *authn.Set {
	t.Helper()
	set, err := authn.Compile(authn.Spec{Tokens: tokens, Now: atNoon})
	if err != nil {
		t.Fatalf("Compile: %v", err)
	}
	return set
}

func request(token string, auds ...string) authentication.Request {
	var req authentication.Request
	req.Spec.Token, req.Spec.Audiences = token, auds
	return req
}

// inputOf returns the Input of a token review.
func inputOf(r authentication.Request) authn.Input {
	return authn.Input{Token: r.Spec.Token, Audiences: r.Spec.Audiences}
}

const apiServer = "https://kubernetes.default.svc"

func TestReview(t *testing.T) {
	plain, plainDoc := issue("plain", 1)
	bound, boundDoc := issue("bound", 2, audiences("vault", apiServer, "registry"))
	old, oldDoc := issue("old", 3, expires(noon.Add(-time.Second)))
	last, lastDoc := issue("last", 4, expires(noon))
	young, youngDoc := issue("young", 5, expires(noon.Add(time.Nanosecond)))
	oldBound, oldBoundDoc := issue("oldbound", 6, expires(noon), audiences("vault"))
	unknown, _ := issue("unknown", 7)
	otherSecret, _ := issue("plain", 8)
	set := compile(t, plainDoc, boundDoc, oldDoc, lastDoc, youngDoc, oldBoundDoc)

	jane := plainDoc.Spec.User
	yes := func(auds ...string) authenticationv1.TokenReviewStatus {
		return authenticationv1.TokenReviewStatus{Authenticated: true, User: jane, Audiences: auds}
	}
	no := authenticationv1.TokenReviewStatus{}
	notKnown := func(auds ...string) authenticationv1.TokenReviewStatus {
		return authenticationv1.TokenReviewStatus{Error: "unknown access token", Audiences: auds}
	}

	cases := []struct {
		name      string
		token     string
		audiences []string
		outcome   authn.Outcome
		reason    authn.Reason
		id        string
		status    authenticationv1.TokenReviewStatus
	}{
		{"known", plain, []string{apiServer}, authn.Yes, authn.ReasonOK, "plain", yes()},
		{"known, no audiences asked", plain, nil, authn.Yes, authn.ReasonOK, "plain", yes()},
		{"known, another audience asked: the caller must see that it did not come back", plain, []string{"vault"}, authn.Yes, authn.ReasonOK, "plain", yes()},

		{"bound, its audience", bound, []string{apiServer}, authn.Yes, authn.ReasonOK, "bound", yes(apiServer)},
		{"bound, several in the order of the request", bound, []string{"registry", "other", "vault"}, authn.Yes, authn.ReasonOK, "bound", yes("registry", "vault")},
		{"bound, the same asked twice", bound, []string{"vault", "vault", apiServer, "vault"}, authn.Yes, authn.ReasonOK, "bound", yes("vault", apiServer)},
		{"bound, another audience", bound, []string{"other"}, authn.No, authn.ReasonAudience, "bound", no},
		{"bound, empty audience", bound, []string{""}, authn.No, authn.ReasonAudience, "bound", no},
		{"bound, audience in another case", bound, []string{"Vault"}, authn.No, authn.ReasonAudience, "bound", no},
		{"bound, no audiences asked: nobody said that it is the API server's", bound, nil, authn.No, authn.ReasonAudience, "bound", no},

		{"expired a second ago", old, nil, authn.No, authn.ReasonExpired, "old", no},
		{"expires now", last, nil, authn.No, authn.ReasonExpired, "last", no},
		{"expires in a moment", young, nil, authn.Yes, authn.ReasonOK, "young", yes()},
		{"expired and for another audience", oldBound, []string{"other"}, authn.No, authn.ReasonExpired, "oldbound", no},

		{"unknown id", unknown, []string{apiServer}, authn.Unknown, authn.ReasonUnknownID, "unknown", notKnown(apiServer)},
		{"unknown id, no audiences asked", unknown, nil, authn.Unknown, authn.ReasonUnknownID, "unknown", notKnown()},
		{"unknown id, several audiences asked", unknown, []string{"a", "b"}, authn.Unknown, authn.ReasonUnknownID, "unknown", notKnown("a", "b")},
		{"known id with another secret", otherSecret, nil, authn.No, authn.ReasonWrongSecret, "plain", no},

		{"empty", "", nil, authn.No, authn.ReasonForeign, "", no},
		{"expired service account token", "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln", []string{apiServer}, authn.No, authn.ReasonForeign, "", no},
		{"password", "hunter2", nil, authn.No, authn.ReasonForeign, "", no},
		{"hash in place of the token", plainDoc.Spec.SHA256, nil, authn.No, authn.ReasonForeign, "", no},
		{"access token with Bearer kept", "Bearer " + plain, nil, authn.No, authn.ReasonForeign, "", no},
		{"access token with its line end", plain + "\n", nil, authn.No, authn.ReasonMalformed, "", no},
		{"access token mistyped", swap(plain, 20), nil, authn.No, authn.ReasonMalformed, "", no},
		{"access token cut off", plain[:40], nil, authn.No, authn.ReasonMalformed, "", no},
		{"two access tokens", plain + plain, nil, authn.No, authn.ReasonMalformed, "", no},
		{"16 KiB of another shape", strings.Repeat("a", 16<<10), nil, authn.No, authn.ReasonForeign, "", no},
		{"more than 16 KiB", strings.Repeat("a", 16<<10+1), nil, authn.No, authn.ReasonTooLarge, "", no},
		{"a megabyte of dots", strings.Repeat(".", 1<<20), nil, authn.No, authn.ReasonTooLarge, "", no},
		{"prefix and a megabyte", "gatehouse_" + strings.Repeat("a", 1<<20), nil, authn.No, authn.ReasonTooLarge, "", no},
	}
	var callers []caller
	for _, version := range []string{"v1", "v1beta1"} {
		callers = append(callers, newCaller(t, version, func() *authn.Set { return set }))
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := set.Decide(t.Context(), authn.Input{Token: c.token, Audiences: c.audiences})
			want := authn.Decision{Outcome: c.outcome, Reason: c.reason, TokenID: c.id, Status: c.status, Detail: d.Detail}
			if c.reason != authn.ReasonForeign && len(c.token) <= 16<<10 {
				want.Backend = authn.AccessTokens
			}
			if c.id != "" && c.outcome != authn.Unknown {
				want.Source = "access-tokens"
			}
			if c.outcome == authn.Yes {
				want.ExpiresAt = d.ExpiresAt
			}
			if size := fmt.Sprintf("%d bytes, at most 16384", len(c.token)); (d.Detail == size) != (c.reason == authn.ReasonTooLarge) {
				t.Errorf("detail %q", d.Detail)
			}
			if !reflect.DeepEqual(d, want) {
				t.Errorf("Decide:\n got %+v\nwant %+v", d, want)
			}
			if c.outcome == authn.Yes && !d.ExpiresAt.After(noon) {
				t.Errorf("it is good until %s", d.ExpiresAt)
			}

			resp := set.Decide(t.Context(), inputOf(request(c.token, c.audiences...))).Response()
			if !reflect.DeepEqual(resp.Status, c.status) {
				t.Errorf("Review:\n got %+v\nwant %+v", resp.Status, c.status)
			}
			annotations := map[string]string{}
			for key, value := range map[string]string{
				"reason": string(c.reason), "token-id": c.id, "backend": string(want.Backend), "source": want.Source,
				"user": c.status.User.Username, "detail": d.Detail,
			} {
				if value != "" {
					annotations["gatehouse.dev/"+key] = value
				}
			}
			if !reflect.DeepEqual(resp.Annotations, annotations) {
				t.Errorf("annotations:\n got %v\nwant %v", resp.Annotations, annotations)
			}
			if resp.Spec.Token != "" || resp.Spec.Audiences != nil {
				t.Error("the response repeats the request")
			}
			for _, caller := range callers {
				caller.checkUnderstood(t, c.token, c.audiences, &d)
			}
		})
	}
}

func TestEmptySpecAuthenticatesNobody(t *testing.T) {
	set, err := authn.Compile(authn.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	if w := set.Warnings(); len(w) != 0 {
		t.Errorf("warnings: %v", w)
	}
	for token, want := range map[string]authn.Outcome{"": authn.No, "foreign": authn.No, goldenToken: authn.Unknown} {
		if got := set.Decide(t.Context(), authn.Input{Token: token}).Outcome; got != want {
			t.Errorf("%q: got %s, want %s", token, got, want)
		}
	}
}

// An attacker who can send reviews himself may claim an outcome in the status.
func TestReviewIgnoresStatusOfTheRequest(t *testing.T) {
	set := compile(t)
	req := request("foreign")
	req.Annotations = map[string]string{"gatehouse.dev/reason": "ok", "other": "x"}
	req.Status = authenticationv1.TokenReviewStatus{
		Authenticated: true, User: authenticationv1.UserInfo{Username: "admin", Groups: []string{"system:masters"}},
	}
	resp := set.Decide(t.Context(), inputOf(req)).Response()
	if !reflect.DeepEqual(resp.Status, authenticationv1.TokenReviewStatus{}) {
		t.Errorf("status: %+v", resp.Status)
	}
	if want := map[string]string{"gatehouse.dev/reason": "foreign"}; !reflect.DeepEqual(resp.Annotations, want) {
		t.Errorf("annotations: %v", resp.Annotations)
	}
}

// What is true of a Set is decided at Compile: neither the Spec nor a response
// with its annotations changes it later.
func TestSetIsImmutable(t *testing.T) {
	text, token := issue("ci", 1, audiences("a", "b", "c"))
	tokens := []authn.Token{token}
	set, err := authn.Compile(authn.Spec{Tokens: tokens, Now: atNoon})
	if err != nil {
		t.Fatal(err)
	}
	tokens[0].Spec.User.Groups[0] = "system:masters"
	tokens[0].Spec.User.Extra["example.org/team"][0] = "red"
	tokens[0].Spec.User.Extra["more"] = nil
	tokens[0].Spec.Audiences[0] = "z"
	tokens[0].Spec.User.Username = "eve"
	tokens[0].Name = "other"

	_, pristine := issue("ci", 1, audiences("a", "b", "c"))
	want := authenticationv1.TokenReviewStatus{Authenticated: true, User: pristine.Spec.User, Audiences: []string{"a", "c"}}
	first := set.Decide(t.Context(), inputOf(request(text, "a", "c"))).Response()
	if !reflect.DeepEqual(first.Status, want) {
		t.Errorf("after the Spec was changed: %+v", first.Status)
	}
	first.Annotations["mine"] = "x"
	one := set.Decide(t.Context(), inputOf(request(text, "a"))).Response()
	_ = append(one.Status.Audiences, "grown")
	again := set.Decide(t.Context(), inputOf(request(text, "a", "b", "c"))).Response()
	if want.Audiences = []string{"a", "b", "c"}; !reflect.DeepEqual(again.Status, want) {
		t.Errorf("after an answer was appended to: %+v", again.Status)
	}
	if _, leaked := again.Annotations["mine"]; leaked {
		t.Error("annotations are shared between responses")
	}
}

func TestConcurrentReviews(t *testing.T) {
	text, token := issue("ci", 1, audiences("a", "b"))
	set := compile(t, token)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 200 {
				resp := set.Decide(t.Context(), inputOf(request(text, "b", "a"))).Response()
				resp.Annotations["own"] = "x"
				if !resp.Status.Authenticated || len(resp.Status.User.Groups) != 2 {
					t.Errorf("got %+v", resp.Status)
				}
				if set.Decide(t.Context(), authn.Input{Token: goldenToken}).Status.Authenticated {
					t.Error("a token of another secret was accepted")
				}
			}
		})
	}
	group.Wait()
}

// No answer of any kind may hold a secret: what is answered is logged.
func TestNoSecretLeavesTheSet(t *testing.T) {
	text, token := issue("ci", 1)
	wrong, _ := issue("ci", 2)
	unknown, _ := issue("other", 3)
	set := compile(t, token)
	for _, sent := range []string{text, wrong, unknown, swap(text, 30), text + "x", "hunter2hunter2"} {
		resp := set.Decide(t.Context(), inputOf(request(sent))).Response()
		data, err := resp.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		secret := sent[max(0, len(sent)-40):]
		if strings.Contains(string(data), secret) {
			t.Errorf("the answer to %q repeats it", sent)
		}
	}
}

// FuzzReview holds, for any token and audience, that nobody is authenticated
// but by the one known token, and that the status has one of the three forms.
func FuzzReview(f *testing.F) {
	text, token := issue("ci", 1)
	bound, boundToken := issue("bound", 2, audiences("a", "b"))
	set := compile(f, token, boundToken)
	f.Add(text, "a")
	f.Add(bound, "b")
	f.Add(goldenToken, "")
	f.Add("eyJhbGciOiJub25lIn0.e30.", "a")
	f.Add(text[:len(text)-1], "\xff")
	f.Fuzz(func(t *testing.T, token, audience string) {
		d := set.Decide(context.Background(), authn.Input{Token: token, Audiences: []string{audience}})
		want := token == text || token == bound && (audience == "a" || audience == "b")
		if got := d.Outcome == authn.Yes; got != want || d.Status.Authenticated != want {
			t.Errorf("outcome %s, authenticated %v, want %v", d.Outcome, d.Status.Authenticated, want)
		}
		if (d.Outcome == authn.Unknown) != (d.Status.Error != "") {
			t.Errorf("outcome %s with error %q", d.Outcome, d.Status.Error)
		}
		if d.Outcome != authn.Yes && !reflect.DeepEqual(d.Status.User, authenticationv1.UserInfo{}) {
			t.Errorf("outcome %s with user %+v", d.Outcome, d.Status.User)
		}
		if id, err := authn.ParseToken(token); err == nil && d.TokenID != id {
			t.Errorf("token id %q, want %q", d.TokenID, id)
		} else if err != nil && d.TokenID != "" {
			t.Errorf("token id %q of a malformed token", d.TokenID)
		}
	})
}
