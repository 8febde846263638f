package offline

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
)

const (
	explainIssuer  = "https://issuer.example"
	explainIssuer2 = "https://other.example"
)

// explainNow is when all of these tests happen.
func explainNow() time.Time { return time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) }

// explainLoginKey is the key of login tokens of these tests.
func explainLoginKey() []byte { return bytes.Repeat([]byte("key!"), 8) }

// tokenWorld is a configuration and who issues tokens for it.
type tokenWorld struct {
	dir        string
	key, other *ecdsa.PrivateKey
}

func newTokenWorld(t *testing.T) *tokenWorld {
	t.Helper()
	w := &tokenWorld{dir: t.TempDir(), key: newSigningKey(t), other: newSigningKey(t)}
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: w.key.Public(), KeyID: "k1", Algorithm: "ES256", Use: "sig"}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(w.dir, os.DirFS("testdata/tokens")); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"token-ci.yaml": clitest.CIDocument,
		"issuer.jwks":   string(keys),
		"login.key":     base64.StdEncoding.EncodeToString(explainLoginKey()),
	} {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func newSigningKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// jwt signs the claims of jane with some of them changed.
func (w *tokenWorld) jwt(t *testing.T, key *ecdsa.PrivateKey, id string, change map[string]any) string {
	t.Helper()
	claims := map[string]any{
		"iss": explainIssuer, "aud": []string{"kubernetes"}, "sub": "4711", "name": "jane", "groups": []string{"dev", "deployers"},
		"team": "blue", "verified": true, "jti": "j-1",
		"iat": explainNow().Add(-time.Hour).Unix(), "exp": explainNow().Add(4 * time.Hour).Unix(),
	}
	maps.Copy(claims, change)
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", id))
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// staff is a directory in which everybody is there.
type staff struct{}

func (staff) Find(_ context.Context, name string) (*authn.Account, error) {
	return &authn.Account{Key: name, DN: "uid=" + name, User: authenticationv1.UserInfo{Username: name}}, nil
}

func (staff) Verify(context.Context, *authn.Account, string) error { return nil }

func (staff) Groups(context.Context, *authn.Account) ([]string, error) {
	return []string{"engineers"}, nil
}

// login issues a login token at noon.
func (*tokenWorld) login(t *testing.T) string {
	t.Helper()
	set, err := authn.Compile(authn.Spec{
		Directories: []authn.NamedDirectory{{Directory: staff{}, Config: &v1alpha1.Directory{Name: "staff"}}},
		Configuration: &authn.Configuration{AuthenticationConfiguration: v1alpha1.AuthenticationConfiguration{
			Login: &v1alpha1.LoginConfiguration{Keys: []v1alpha1.LoginKey{{Name: "a"}}},
		}},
		LoginKeys: []authn.LoginKey{{Name: "a", Secret: explainLoginKey()}},
		Random:    new(support.Counter), Now: explainNow,
	})
	if err != nil {
		t.Fatal(err)
	}
	d := set.Login(t.Context(), authn.LoginRequest{Directory: "staff", Username: "joe", Password: "secret"})
	if d.Token == "" {
		t.Fatalf("%+v", d)
	}
	return d.Token
}

// explained runs the command's own function over a token, which no output may
// repeat, and returns what it writes and its exit code.
func (w *tokenWorld) explained(t *testing.T, token, output string, change func(*explainTokenFlags)) (text string, code int) {
	t.Helper()
	f := explainTokenFlags{file: "-", now: explainNow, fetch: func(context.Context, authn.Issuer) (*jwt.KeySet, error) {
		t.Error("an issuer was asked")
		return nil, errors.New("not expected")
	}}
	if change != nil {
		change(&f)
	}
	var out, remarks bytes.Buffer
	err := f.explain(t.Context(), cli.Streams{In: strings.NewReader(token + "\n"), Out: &out, Err: &remarks}, w.dir, output)
	if exit, ok := errors.AsType[*cli.ExitError](err); ok && exit.Err == nil {
		code = exit.Code
	} else if err != nil {
		t.Fatal(err)
	}
	mustNotTell(t, out.String()+remarks.String(), token)
	return out.String(), code
}

// mustNotTell fails if a text holds what would help somebody who wants to be let
// in: the token, or a part of it that is hard to guess.
func mustNotTell(t *testing.T, text, token string) {
	t.Helper()
	secrets := []string{token}
	for _, part := range strings.FieldsFunc(token, func(r rune) bool { return r == '.' || r == '_' }) {
		for ; len(part) > 16; part = part[8:] {
			secrets = append(secrets, part[:16])
		}
	}
	for _, secret := range secrets {
		if strings.Contains(text, secret) {
			t.Errorf("%q, a part of the token, is in the output:\n%s", secret, text)
		}
	}
}

func TestExplainToken(t *testing.T) {
	w := newTokenWorld(t)
	ask := func(audiences ...string) func(*explainTokenFlags) {
		return func(f *explainTokenFlags) { f.audiences = audiences }
	}
	cases := map[string]struct {
		token  string
		change func(*explainTokenFlags)
		code   int
	}{
		"access-token":           {token: clitest.CIToken},
		"access-token-audience":  {token: clitest.CIToken, change: ask("vault"), code: cli.ExitUnknown},
		"login-token-audiences":  {token: w.login(t), change: ask("vault", "https://kubernetes.default.svc"), code: cli.ExitUnknown},
		"jwt-audience":           {token: w.jwt(t, w.key, "k1", nil), change: ask("vault"), code: cli.ExitUnknown},
		"access-token-malformed": {token: clitest.CIToken[:len(clitest.CIToken)-1] + "b", code: cli.ExitNo},
		"access-token-expired": {token: clitest.CIToken, code: cli.ExitNo, change: func(f *explainTokenFlags) {
			f.now = func() time.Time { return explainNow().Add(25 * time.Hour) }
		}},
		"access-token-other-secret": {token: otherAccessToken("ci"), code: cli.ExitNo},
		"access-token-unknown":      {token: otherAccessToken("gone"), code: cli.ExitUnknown},
		"login-token":               {token: w.login(t)},
		"jwt":                       {token: w.jwt(t, w.key, "k1", nil)},
		"jwt-expired":               {token: w.jwt(t, w.key, "k1", map[string]any{"exp": explainNow().Add(-time.Minute).Unix()}), code: cli.ExitNo},
		"jwt-other-audience":        {token: w.jwt(t, w.key, "k1", map[string]any{"aud": "vault"}), code: cli.ExitNo},
		"jwt-forged":                {token: w.jwt(t, w.other, "k1", nil), code: cli.ExitNo},
		"jwt-unknown-key":           {token: w.jwt(t, w.other, "k2", nil), code: cli.ExitNo},
		"jwt-rule":                  {token: w.jwt(t, w.key, "k1", map[string]any{"verified": false}), code: cli.ExitNo},
		"jwt-user-rule":             {token: w.jwt(t, w.key, "k1", map[string]any{"name": "root"}), code: cli.ExitNo},
		"jwt-guard":                 {token: w.jwt(t, w.key, "k1", map[string]any{"groups": []string{"dev", "system:masters"}}), code: cli.ExitNo},
		"jwt-revoked":               {token: w.jwt(t, w.key, "k1", map[string]any{"name": "eve"}), code: cli.ExitNo},
		"jwt-no-keys":               {token: w.jwt(t, w.key, "k1", map[string]any{"iss": explainIssuer2}), code: cli.ExitUnknown},
		"foreign-jwt":               {token: w.jwt(t, w.key, "k1", map[string]any{"iss": "https://kubernetes.default.svc"}), code: cli.ExitNo},
		"foreign":                   {token: "0123456789abcdef0123456789abcdef", code: cli.ExitNo},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			text, code := w.explained(t, c.token, "text", c.change)
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			golden(t, filepath.Join("testdata", "explaintoken", name+".txt"), strings.ReplaceAll(text, digestOf(c.token), "sha256:0123456789ab"))
			w.saysTheSameAsJSON(t, c.token, c.change, text)
		})
	}
	files, err := os.ReadDir("testdata/explaintoken")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if _, ok := cases[strings.TrimSuffix(f.Name(), ".txt")]; !ok {
			t.Errorf("testdata/explaintoken/%s belongs to no test: remove it", f.Name())
		}
	}
}

// digestOf is how a JWT is called that has no id which can be trusted. It is
// another one at each run, for so are the keys.
func digestOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return "sha256:" + hex.EncodeToString(sum[:6])
}

// golden compares a text with a file, which UPDATE_GOLDEN=1 writes.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got != readText(t, path) {
		t.Errorf("differs from %s (regenerate with UPDATE_GOLDEN=1 and read the difference):\n%s", path, got)
	}
}

// saysTheSameAsJSON fails if a program is told something else than a person.
func (w *tokenWorld) saysTheSameAsJSON(t *testing.T, token string, change func(*explainTokenFlags), text string) {
	t.Helper()
	raw, _ := w.explained(t, token, "json", change)
	var e explainedToken
	if err := yaml.UnmarshalStrict([]byte(raw), &e); err != nil {
		t.Fatal(err)
	}
	doubted := e.Outcome == authn.Unknown && e.Reason == authn.ReasonAudience // of the command's own: the server says yes
	if e.Steps == nil || e.Status.Authenticated != (e.Outcome == authn.Yes || doubted) || (e.Status.Error != "") != (e.Outcome == authn.Unknown && !doubted) {
		t.Errorf("got %+v", e)
	}
	for _, step := range e.Steps {
		if !strings.Contains(text, step.Name+" ") || !strings.Contains(text, cli.OneLine(step.Found)) {
			t.Errorf("step %+v is in JSON alone", step)
		}
	}
	for _, want := range append([]string{string(e.Backend), e.Source, e.TokenID, e.Hint, e.Status.User.Username, e.Status.User.UID}, e.Status.User.Groups...) {
		if !strings.Contains(text, want) {
			t.Errorf("%q is in JSON alone", want)
		}
	}
}

// otherAccessToken is well-formed, and no document has its hash.
func otherAccessToken(id string) string {
	text, _ := authn.NewToken(id, [25]byte{1})
	return text
}

// The issuer of a token is asked if it is configured and has no keysFile, and
// nobody else is.
func TestExplainFetchesKeys(t *testing.T) {
	w := newTokenWorld(t)
	keys := []jwt.Key{{ID: "k0", Public: w.other.Public()}, {ID: "k1", Algorithm: "ES256", Public: w.key.Public()}}
	for name, c := range map[string]struct {
		issuer string
		err    error
		asked  bool
		code   int
		want   []string
	}{
		"an issuer without keys": {
			issuer: explainIssuer2, asked: true, code: cli.ExitYes,
			want: []string{`the issuer has 2 keys: "k0", "k1" (ES256)`, "verdict: yes", "username   other:4711"},
		},
		"an issuer that is down": {
			issuer: explainIssuer2, asked: true, err: errors.New("GET https://other.example: status 503: must be 200"), code: cli.ExitUnknown,
			want: []string{"GET https://other.example: status 503", "verdict: cannot decide: keys: ", "(hint: what the issuer answered is the first step; "},
		},
		"an issuer with a keysFile": {issuer: explainIssuer, want: []string{"the issuer was not asked: its keys are in a keysFile", "verdict: yes"}},
		"an issuer that nobody configured": {
			issuer: "https://evil.example", code: cli.ExitNo,
			want: []string{"no issuer was asked: the token's issuer is not configured", "verdict: no: foreign"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			asked := []string(nil)
			text, code := w.explained(t, w.jwt(t, w.key, "k1", map[string]any{"iss": c.issuer}), "text", func(f *explainTokenFlags) {
				f.fetchKeys = true
				f.fetch = func(_ context.Context, issuer authn.Issuer) (*jwt.KeySet, error) {
					asked = append(asked, issuer.Config.Issuer.URL)
					return jwt.NewKeySet(keys...), c.err
				}
			})
			if want := []string{c.issuer}; c.asked && !slices.Equal(asked, want) || !c.asked && asked != nil {
				t.Errorf("asked %q", asked)
			}
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("got\n%s\nwant %q", text, want)
				}
			}
		})
	}
	text, _ := w.explained(t, clitest.CIToken, "text", func(f *explainTokenFlags) { f.fetchKeys = true })
	if !strings.Contains(text, "no issuer was asked: the token is not a JWT") || !strings.Contains(text, "verdict: yes") {
		t.Errorf("an access token: got\n%s", text)
	}
}

// The groups that a token does not hold are asked for if the operator wants that, and are shown with their origins.
func TestExplainGroupSources(t *testing.T) {
	w := newTokenWorld(t)
	service := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"groups":["sre"]}`)
	}))
	defer service.Close()
	file := filepath.Join(w.dir, "login.yaml")
	document, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sources, err := json.Marshal([]v1alpha1.GroupSource{{
		Name: "teams", GroupsPrefix: new("team:"), HTTP: &v1alpha1.HTTPGroups{URL: service.URL},
		CertificateAuthority: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: service.Certificate().Raw})),
	}})
	if err != nil {
		t.Fatal(err)
	}
	document = bytes.Replace(document, []byte("keysFile: issuer.jwks"), slices.Concat([]byte("keysFile: issuer.jwks, groupSources: "), sources), 1)
	if err := os.WriteFile(file, document, 0o600); err != nil {
		t.Fatal(err)
	}
	token := w.jwt(t, w.key, "k1", nil)
	text, code := w.explained(t, token, "text", nil)
	if want := "verdict: cannot decide: groups: groups of \"teams\": group sources are not asked here (hint: --ask-groups asks"; code != cli.ExitUnknown || !strings.Contains(text, want) {
		t.Errorf("exit code %d, got\n%s\nwant %q", code, text, want)
	}
	text, code = w.explained(t, token, "text", func(f *explainTokenFlags) { f.askGroups = true })
	for _, want := range []string{"groups of teams          1, of 20", "    group      dev, from the token\n", "    group      team:sre, from teams, "} {
		if code != 0 || !strings.Contains(text, want) {
			t.Errorf("exit code %d, got\n%s\nwant %q", code, text, want)
		}
	}
	if text, _ = w.explained(t, token, "json", func(f *explainTokenFlags) { f.askGroups = true }); !strings.Contains(text, `"groupOrigins"`) {
		t.Errorf("got %s", text)
	}
}

// A keysFile that cannot be used is an error of the configuration for every
// command: none of them lets anybody in, and none asks the issuer instead.
func TestBrokenKeysFile(t *testing.T) {
	const jwksSecret = "c2VjcmV0"
	w := newTokenWorld(t)
	if err := os.WriteFile(filepath.Join(w.dir, "issuer.jwks"), []byte(`{"keys":[{"kty":"oct","k":"`+jwksSecret+`"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	token := w.jwt(t, w.key, "k1", nil)
	review := `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","spec":{"token":"` + token + `"}}`
	for name, c := range map[string]struct {
		args  []string
		stdin string
		code  int
	}{
		"lint":                  {args: []string{"lint", "--config", w.dir}, code: cli.ExitNo},
		"review authenticate":   {args: []string{"review", "authenticate", "--config", w.dir}, stdin: review, code: cli.ExitUnknown},
		"explain":               {args: []string{"explain", "--config", w.dir, "--token-file", "-"}, stdin: token, code: cli.ExitUnknown},
		"explain, in JSON":      {args: []string{"explain", "--config", w.dir, "--token-file", "-", "-o", "json"}, stdin: token, code: cli.ExitUnknown},
		"explain with fetching": {args: []string{"explain", "--config", w.dir, "--token-file", "-", "--fetch-keys"}, stdin: token, code: cli.ExitUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			code, text := gatehouse(t, c.stdin, c.args...)
			if want := `AuthenticationConfiguration: jwt.issuers[0].keysFile: "issuer.jwks" is not a valid JSON Web Key Set: `; code != c.code || !strings.Contains(text, want) {
				t.Errorf("exit code %d, want %d, and %s in\n%s", code, c.code, want, text)
			}
			if strings.Contains(text, "verdict") || strings.Contains(text, jwksSecret) {
				t.Errorf("got\n%s", text)
			}
			mustNotTell(t, text, token)
		})
	}
}

func TestExplainTokenInput(t *testing.T) {
	w := newTokenWorld(t)
	token := w.jwt(t, w.key, "k1", nil)
	for name, c := range map[string]struct{ text, want string }{
		"nothing":                         {"", "--token-file: is empty"},
		"a header":                        {"Bearer " + token, "--token-file: must hold one token, without white space in it"},
		"two tokens":                      {token + "\n" + token, "must hold one token"},
		"what a credential plugin prints": {`{"status":{"token":"` + token + `"}}`, "holds JSON and not a token alone (hint: jq -r .status.token, for what a credential plugin prints)"},
		"a large file":                    {strings.Repeat("a", 1<<20+1), "is larger than 1 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := cli.ReadToken(strings.NewReader(c.text), "-")
			if got != "" || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %q, %v, want %q", got, err, c.want)
			}
			mustNotTell(t, err.Error(), token)
		})
	}
}

// A token where it does not belong is refused and not repeated, whichever way it
// got there.
func TestExplainRefusesTokensAsArguments(t *testing.T) {
	w := newTokenWorld(t)
	signed, login := w.jwt(t, w.key, "k1", nil), w.login(t)
	for name, args := range map[string][]string{
		"a JWT":                       {signed},
		"an access token":             {clitest.CIToken},
		"a login token":               {login},
		"with the scheme":             {"Bearer " + signed},
		"as the file":                 {"--token-file", signed},
		"as a file of manifests":      {"-f", login},
		"an opaque one beside a file": {"--token-file", "-", "0123456789abcdef0123456789abcdef"},
	} {
		t.Run(name, func(t *testing.T) {
			code, text := gatehouse(t, "", append([]string{"explain", "--config", w.dir}, args...)...)
			if code != cli.ExitUnknown || !strings.Contains(text, "there is what may be a token on the command line") {
				t.Errorf("exit code %d: %s", code, text)
			}
			mustNotTell(t, text, args[len(args)-1])
		})
	}
	for _, file := range []string{"token.txt", "gatehouse_token", "./" + signed[:10], "eyes.backup.tar", "/run/secrets/gatehouse_ci_token_of_the_pipeline_for_deployments"} {
		if cli.LooksLikeToken(file) {
			t.Errorf("%q is taken for a token", file)
		}
	}
}
