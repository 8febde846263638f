package authn_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// corp is a directory in memory. Names are found without case, as directories do.
type corp struct {
	accounts map[string]*authn.Account // by lower-case name
	groups   []string
	broken   error
	// cut is what Verify ends with, whatever the password.
	cut   error
	asked []string
}

func newCorp() *corp {
	jane := &authn.Account{
		Key: "uid=jane,dc=example", DN: "uid=jane,dc=example",
		User: authenticationv1.UserInfo{Username: "jane", UID: "4711", Extra: map[string]authenticationv1.ExtraValue{"example.org/room": {"7"}}},
	}
	return &corp{accounts: map[string]*authn.Account{"jane": jane}, groups: []string{"dev", "eng"}}
}

func (c *corp) Find(_ context.Context, name string) (*authn.Account, error) {
	if c.broken != nil {
		return nil, c.broken
	}
	if account := c.accounts[strings.TrimSpace(strings.ToLower(name))]; account != nil {
		return account, nil
	}
	return nil, authn.ErrNoAccount
}

func (c *corp) Verify(_ context.Context, account *authn.Account, password string) error {
	who := "nobody"
	if account != nil {
		who = account.DN
	}
	c.asked = append(c.asked, who)
	if c.cut != nil {
		return c.cut
	}
	if account == nil || password != "Secret1!" {
		return fmt.Errorf("%w: code 49", authn.ErrWrongPassword)
	}
	return nil
}

func (c *corp) Groups(context.Context, *authn.Account) ([]string, error) {
	return c.groups, c.broken
}

// gate is a Set with a directory and all that can be changed about it.
type gate struct {
	corp *corp
	now  time.Time
	spec authn.Spec
}

func newGate() *gate {
	g := &gate{corp: newCorp(), now: noon}
	g.spec = authn.Spec{
		Directories: []authn.NamedDirectory{{Field: "directories[0]", Config: &v1alpha1.Directory{Name: "corp", UsernamePrefix: "corp:", GroupsPrefix: "g:"}, Directory: g.corp}},
		Configuration: &authn.Configuration{Source: "auth.yaml", AuthenticationConfiguration: v1alpha1.AuthenticationConfiguration{
			Login: &v1alpha1.LoginConfiguration{Keys: []v1alpha1.LoginKey{{Name: "first", File: "first.key"}}},
		}},
		LoginKeys: []authn.LoginKey{{Name: "first", Secret: bytes.Repeat([]byte{1}, 32)}},
		Random:    rand.NewChaCha8([32]byte{}),
		Now:       func() time.Time { return g.now },
	}
	return g
}

func (g *gate) set(t *testing.T) *authn.Set {
	t.Helper()
	set, err := authn.Compile(g.spec)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func (g *gate) login(t *testing.T, name, password string) authn.LoginDecision {
	t.Helper()
	return g.set(t).Login(t.Context(), authn.LoginRequest{Username: name, Password: password})
}

func (g *gate) token(t *testing.T) string {
	t.Helper()
	d := g.login(t, "jane", "Secret1!")
	if d.Outcome != authn.Yes {
		t.Fatalf("%+v", d)
	}
	return d.Token
}

func TestLogin(t *testing.T) {
	t.Parallel()
	g := newGate()
	// As it is typed; the name that counts is the directory's.
	d := g.login(t, " JANE ", "Secret1!")
	want := authenticationv1.UserInfo{
		Username: "corp:jane", UID: "4711", Groups: []string{"g:dev", "g:eng"},
		Extra: map[string]authenticationv1.ExtraValue{"example.org/room": {"7"}},
	}
	if d.Outcome != authn.Yes || d.Directory != "corp" || !reflect.DeepEqual(d.User, want) ||
		!d.ExpiresAt.Equal(noon.Add(15*time.Minute)) || !d.SessionEnds.Equal(noon.Add(10*time.Hour)) {
		t.Fatalf("%+v", d)
	}
	// Another replica, of the same configuration.
	got := newGate().set(t).Decide(t.Context(), authn.Input{Token: d.Token})
	if got.Outcome != authn.Yes || got.Source != "corp" || got.Backend != authn.LoginTokens || got.TokenID != d.TokenID ||
		!reflect.DeepEqual(got.Status.User, want) || !got.ExpiresAt.Equal(d.ExpiresAt) {
		t.Errorf("%+v", got)
	}
	if strings.Contains(d.Token, "Secret1!") || strings.Contains(fmt.Sprintf("%+v", d), "Secret1!") {
		t.Error("the password is in the answer")
	}
}

func TestLoginRefused(t *testing.T) {
	t.Parallel()
	outage := errors.New("ldaps://one.example: connection refused")
	for name, test := range map[string]struct {
		name, password, directory string
		prepare                   func(*gate)
		outcome                   authn.Outcome
		reason                    authn.Reason
		// failed says that a directory may have seen a wrong guess.
		failed bool
	}{
		"wrong password":         {name: "jane", password: "x", outcome: authn.No, reason: authn.ReasonCredentials},
		"no such user":           {name: "joe", password: "Secret1!", outcome: authn.No, reason: authn.ReasonCredentials},
		"no name":                {password: "Secret1!", outcome: authn.No, reason: authn.ReasonInput},
		"a name of spaces":       {name: "  ", password: "Secret1!", outcome: authn.No, reason: authn.ReasonInput},
		"a name with NUL":        {name: "jane\x00", password: "Secret1!", outcome: authn.No, reason: authn.ReasonInput},
		"a long name":            {name: strings.Repeat("j", 257), password: "Secret1!", outcome: authn.No, reason: authn.ReasonInput},
		"a name that is no text": {name: "jane\xff", password: "Secret1!", outcome: authn.No, reason: authn.ReasonInput},
		"no password":            {name: "jane", outcome: authn.No, reason: authn.ReasonInput},
		"a password of NULs":     {name: "jane", password: "\x00\x00", outcome: authn.No, reason: authn.ReasonInput},
		"a long password":        {name: "jane", password: strings.Repeat("x", 257), outcome: authn.No, reason: authn.ReasonInput},
		"another directory":      {name: "jane", password: "Secret1!", directory: "corpo", outcome: authn.No, reason: authn.ReasonInput},
		"directory down": {
			name: "jane", password: "Secret1!", prepare: func(g *gate) { g.corp.broken = outage },
			outcome: authn.Unknown, reason: authn.ReasonDirectory,
		},
		"hung up before the password was sent": {
			name: "jane", password: "Secret1!", prepare: func(g *gate) { g.corp.cut = context.Canceled },
			outcome: authn.Unknown, reason: authn.ReasonDirectory,
		},
		"hung up when the password was sent": {
			name: "jane", password: "Secret1!", prepare: func(g *gate) { g.corp.cut = fmt.Errorf("%w: %w", authn.ErrPasswordSent, context.Canceled) },
			outcome: authn.Unknown, reason: authn.ReasonDirectory, failed: true,
		},
		"a reserved group": {
			name: "jane", password: "Secret1!", prepare: func(g *gate) {
				g.corp.groups = []string{"system:masters"}
				g.spec.Directories[0].Config.GroupsPrefix = ""
			},
			outcome: authn.No, reason: authn.ReasonGuard,
		},
		"an empty user name": {
			name: "jane", password: "Secret1!", prepare: func(g *gate) { g.corp.accounts["jane"].User.Username = "" },
			outcome: authn.No, reason: authn.ReasonGuard,
		},
		"too many groups": {
			name: "jane", password: "Secret1!", prepare: func(g *gate) {
				for i := range 1000 {
					g.corp.groups = append(g.corp.groups, fmt.Sprintf("a-group-with-a-name-%d", i))
				}
			},
			outcome: authn.No, reason: authn.ReasonTooLarge,
		},
		"no directory at all": {
			name: "jane", password: "Secret1!", prepare: func(g *gate) { g.spec = authn.Spec{} },
			outcome: authn.No, reason: authn.ReasonInput,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGate()
			if test.prepare != nil {
				test.prepare(g)
			}
			d := g.set(t).Login(t.Context(), authn.LoginRequest{Username: test.name, Password: test.password, Directory: test.directory})
			if d.Outcome != test.outcome || d.Reason != test.reason || d.Token != "" || d.Message == "" {
				t.Errorf("%+v", d)
			}
			failed := test.failed || test.reason == authn.ReasonCredentials
			if d.Failed != failed {
				t.Errorf("counts as a failed guess: %t", d.Failed)
			}
			if strings.Contains(d.Message, "one.example") {
				t.Errorf("the message names a server: %q", d.Message)
			}
		})
	}
}

// Neither words nor work tell which names there are.
func TestLoginTellsNobodyWhichNamesThereAre(t *testing.T) {
	t.Parallel()
	g := newGate()
	there, nobody := g.login(t, "jane", "x"), g.login(t, "joe", "x")
	there.Detail, nobody.Detail = "", "" // for the operator
	if !reflect.DeepEqual(there, nobody) {
		t.Errorf("%+v\n%+v", there, nobody)
	}
	if want := []string{"uid=jane,dc=example", "nobody"}; !reflect.DeepEqual(g.corp.asked, want) {
		t.Errorf("passwords were checked of %q", g.corp.asked)
	}
}

// DirectoryName names the directory that Login asks.
func TestDirectoryName(t *testing.T) {
	t.Parallel()
	g := newGate()
	for requested, want := range map[string]string{"": "corp", "corp": "corp", "corpo": ""} {
		if got := g.set(t).DirectoryName(requested); got != want {
			t.Errorf("%q is %q, want %q", requested, got, want)
		}
	}
	g.spec = authn.Spec{}
	if got := g.set(t).DirectoryName(""); got != "" {
		t.Errorf("without directories, it is %q", got)
	}
}

func TestRenew(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		later   time.Duration
		prepare func(*gate)
		outcome authn.Outcome
		reason  authn.Reason
	}{
		"young":               {later: time.Minute, outcome: authn.Yes, reason: authn.ReasonOK},
		"expired":             {later: 2 * time.Hour, outcome: authn.Yes, reason: authn.ReasonOK},
		"the session's end":   {later: 10 * time.Hour, outcome: authn.No, reason: authn.ReasonSession},
		"the user is gone":    {later: time.Hour, prepare: func(g *gate) { delete(g.corp.accounts, "jane") }, outcome: authn.No, reason: authn.ReasonCredentials},
		"another is jane now": {later: time.Hour, prepare: func(g *gate) { g.corp.accounts["jane"].Key = "uid=jane,ou=new,dc=example" }, outcome: authn.No, reason: authn.ReasonCredentials},
		"another of her name": {later: time.Hour, prepare: func(g *gate) { g.corp.accounts["jane"].User.UID = "9999" }, outcome: authn.No, reason: authn.ReasonCredentials},
		"sessions are shorter now": {later: time.Hour, prepare: func(g *gate) {
			g.spec.Configuration.Login.SessionTTL = &metav1.Duration{Duration: time.Hour}
		}, outcome: authn.No, reason: authn.ReasonSession},
		"directory down":    {later: time.Hour, prepare: func(g *gate) { g.corp.broken = errors.New("down") }, outcome: authn.Unknown, reason: authn.ReasonDirectory},
		"directory renamed": {later: time.Hour, prepare: func(g *gate) { g.spec.Directories[0].Config.Name = "other" }, outcome: authn.Unknown, reason: authn.ReasonSourceGone},
		"revoked": {later: time.Hour, prepare: func(g *gate) {
			g.spec.Revocations = []authn.Revocation{revoke("corp:jane", noon.Add(time.Minute))}
		}, outcome: authn.No, reason: authn.ReasonRevoked},
		"revoked before": {later: time.Hour, prepare: func(g *gate) {
			g.spec.Revocations = []authn.Revocation{revoke("corp:jane", noon)}
		}, outcome: authn.Yes, reason: authn.ReasonOK},
		"key gone": {later: time.Minute, prepare: func(g *gate) {
			g.spec.LoginKeys[0].Name = "second"
			g.spec.Configuration.Login.Keys[0].Name = "second"
		}, outcome: authn.Unknown, reason: authn.ReasonUnknownKey},
		"a reserved group by now": {later: time.Hour, prepare: func(g *gate) {
			g.spec.Directories[0].Config.GroupsPrefix = ""
			g.corp.groups = []string{"system:nodes"}
		}, outcome: authn.No, reason: authn.ReasonGuard},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGate()
			token := g.token(t)
			g.now = noon.Add(test.later)
			g.corp.groups = []string{"ops"}
			if test.prepare != nil {
				test.prepare(g)
			}
			d := g.set(t).Login(t.Context(), authn.LoginRequest{Token: token})
			if d.Outcome != test.outcome || d.Reason != test.reason || (d.Token != "") != (test.outcome == authn.Yes) {
				t.Fatalf("%+v", d)
			}
			if d.Outcome != authn.Yes {
				return
			}
			if got := d.User.Groups; !reflect.DeepEqual(got, []string{"g:ops"}) {
				t.Errorf("groups %q are those of the first login", got)
			}
			if !d.SessionEnds.Equal(noon.Add(10 * time.Hour)) {
				t.Errorf("the session ends at %s: a renewal makes it longer", d.SessionEnds)
			}
			if got := g.set(t).Decide(t.Context(), authn.Input{Token: d.Token}); got.Outcome != authn.Yes {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestRenewedTokensEndWithTheSession(t *testing.T) {
	t.Parallel()
	g := newGate()
	token := g.token(t)
	g.now = noon.Add(10*time.Hour - time.Minute)
	d := g.set(t).Login(t.Context(), authn.LoginRequest{Token: token})
	if d.Outcome != authn.Yes || !d.ExpiresAt.Equal(noon.Add(10*time.Hour)) {
		t.Fatalf("%+v", d)
	}
	g.now = noon.Add(10 * time.Hour)
	if got := g.set(t).Decide(t.Context(), authn.Input{Token: d.Token}); got.Outcome != authn.No || got.Reason != authn.ReasonExpired {
		t.Errorf("%+v", got)
	}
}

// A replica that had not loaded a revocation may have renewed a token after it.
func TestRevocationEndsWhatWasRenewedAfterIt(t *testing.T) {
	t.Parallel()
	g := newGate()
	token := g.token(t)
	g.now = noon.Add(time.Hour)
	late := g.set(t).Login(t.Context(), authn.LoginRequest{Token: token}).Token
	g.spec.Revocations = []authn.Revocation{revoke("corp:jane", noon.Add(30*time.Minute))}
	if got := g.set(t).Decide(t.Context(), authn.Input{Token: late}); got.Outcome != authn.No || got.Reason != authn.ReasonRevoked {
		t.Errorf("%+v", got)
	}
	// With the password she is in again.
	if got := g.set(t).Decide(t.Context(), authn.Input{Token: g.token(t)}); got.Outcome != authn.Yes {
		t.Errorf("%+v", got)
	}
}

func TestLoginTokens(t *testing.T) {
	t.Parallel()
	g := newGate()
	g.spec.Configuration.Login.Audiences = []string{"vault"}
	good := g.token(t)
	dot := strings.LastIndexByte(good, '.')
	payload := good[len("gatehouse-login_first_"):dot]
	claims, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		t.Fatal(err)
	}
	forged := base64.RawURLEncoding.EncodeToString(bytes.Replace(claims, []byte("corp:jane"), []byte("corp:root"), 1))
	for name, test := range map[string]struct {
		token   string
		auds    []string
		later   time.Duration
		outcome authn.Outcome
		reason  authn.Reason
	}{
		"good":                     {token: good, auds: []string{"vault", "x"}, outcome: authn.Yes, reason: authn.ReasonOK},
		"another audience":         {token: good, auds: []string{"x"}, outcome: authn.No, reason: authn.ReasonAudience},
		"no audience":              {token: good, outcome: authn.No, reason: authn.ReasonAudience},
		"expired":                  {token: good, auds: []string{"vault"}, later: 15 * time.Minute, outcome: authn.No, reason: authn.ReasonExpired},
		"other claims":             {token: "gatehouse-login_first_" + forged + good[dot:], outcome: authn.No, reason: authn.ReasonSignature},
		"other mac":                {token: good[:dot+1] + strings.Repeat("A", 43), outcome: authn.No, reason: authn.ReasonSignature},
		"no mac":                   {token: good[:dot+1], outcome: authn.No, reason: authn.ReasonSignature},
		"cut off before the mac":   {token: good[:dot], outcome: authn.No, reason: authn.ReasonMalformed},
		"longer mac":               {token: good + "AAAA", outcome: authn.No, reason: authn.ReasonSignature},
		"mac with a newline":       {token: good + "\n", outcome: authn.No, reason: authn.ReasonSignature},
		"padded mac":               {token: good + "=", outcome: authn.No, reason: authn.ReasonSignature},
		"other key":                {token: strings.Replace(good, "_first_", "_second_", 1), outcome: authn.Unknown, reason: authn.ReasonUnknownKey},
		"key that is no name":      {token: strings.Replace(good, "_first_", "_FIRST_", 1), outcome: authn.No, reason: authn.ReasonMalformed},
		"prefix alone":             {token: "gatehouse-login_", outcome: authn.No, reason: authn.ReasonMalformed},
		"too long":                 {token: "gatehouse-login_first_" + strings.Repeat("A", 16<<10), outcome: authn.No, reason: authn.ReasonTooLarge},
		"an access token's prefix": {token: strings.Replace(good, "gatehouse-login_", "gatehouse_", 1), outcome: authn.No, reason: authn.ReasonMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGate()
			g.now = noon.Add(test.later)
			got := g.set(t).Decide(t.Context(), authn.Input{Token: test.token, Audiences: test.auds})
			if got.Outcome != test.outcome || got.Reason != test.reason {
				t.Errorf("%+v", got)
			}
			if shown := fmt.Sprintf("%+v", got); strings.Contains(shown, good[dot:]) {
				t.Errorf("the signature is in the decision: %s", shown)
			}
		})
	}
}

// A key is taken out of use in two steps, and nobody is logged out by the first.
func TestLoginKeyRotation(t *testing.T) {
	t.Parallel()
	g := newGate()
	before := g.token(t)
	use := func(names ...string) {
		g.spec.LoginKeys, g.spec.Configuration.Login.Keys = nil, nil
		for _, name := range names {
			g.spec.LoginKeys = append(g.spec.LoginKeys, authn.LoginKey{Name: name, Secret: bytes.Repeat([]byte{byte(len(name))}, 32)})
			g.spec.Configuration.Login.Keys = append(g.spec.Configuration.Login.Keys, v1alpha1.LoginKey{Name: name, File: name})
		}
	}
	use("second", "first")
	g.spec.LoginKeys[1].Secret = bytes.Repeat([]byte{1}, 32)
	after := g.token(t)
	if !strings.HasPrefix(after, "gatehouse-login_second_") {
		t.Errorf("the first key of the list does not sign: %.30s", after)
	}
	for _, token := range []string{before, after} {
		if got := g.set(t).Decide(t.Context(), authn.Input{Token: token}); got.Outcome != authn.Yes {
			t.Errorf("%+v", got)
		}
	}
	use("second")
	if got := g.set(t).Decide(t.Context(), authn.Input{Token: before}); got.Outcome == authn.Yes {
		t.Error("a key that is gone still counts")
	}
	if got := g.set(t).Decide(t.Context(), authn.Input{Token: after}); got.Outcome != authn.Yes {
		t.Errorf("%+v", got)
	}
}

func revoke(user string, before time.Time) authn.Revocation {
	r := authn.Revocation{Source: "revocations.yaml"}
	r.Name = "r"
	r.Spec.User, r.Spec.IssuedBefore = user, metav1.NewTime(before)
	return r
}

func FuzzLoginToken(f *testing.F) {
	g := newGate()
	set, err := authn.Compile(g.spec)
	if err != nil {
		f.Fatal(err)
	}
	good := set.Login(f.Context(), authn.LoginRequest{Username: "jane", Password: "Secret1!"}).Token
	f.Add(good)
	f.Add("gatehouse-login_first_.")
	f.Add("gatehouse-login_first_e30.")
	f.Fuzz(func(t *testing.T, text string) {
		token := "gatehouse-login_" + strings.TrimPrefix(text, "gatehouse-login_")
		if d := set.Decide(t.Context(), authn.Input{Token: token}); d.Outcome == authn.Yes && token != good {
			t.Errorf("%q is taken for a token", token)
		}
		if d := set.Login(t.Context(), authn.LoginRequest{Token: token}); d.Outcome == authn.Yes && token != good {
			t.Errorf("%q is renewed", token)
		}
	})
}
