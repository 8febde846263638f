package tokens

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// TestClusterList reads in pages, tokens that are not used too, and deletes what was listed and nothing else.
func TestClusterList(t *testing.T) {
	t.Parallel()
	token := func(id, status string) string {
		return fmt.Sprintf(`{"apiVersion":"gatehouse.dev/v1alpha1","kind":"AccessToken","metadata":{"name":%q,"uid":"uid-%s","generation":1,"creationTimestamp":"2026-11-20T12:00:00Z"},`+
			`"spec":{"sha256":"%064d","user":{"username":"jane"},"expiresAt":"2999-01-01T00:00:00Z"},"status":%s}`, id, id, 1, status)
	}
	const refused = `{"conditions":[{"type":"Compiled","status":"False","observedGeneration":1,"reason":"Invalid","message":"is reserved","lastTransitionTime":"2026-11-20T12:00:00Z"}]}`
	compiled := strings.NewReplacer("False", "True", "Invalid", "Compiled").Replace(refused)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		body, _ := io.ReadAll(r.Body)
		switch {
		case r.Method == http.MethodDelete && !strings.Contains(string(body), `"uid":"uid-a"`):
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409,"message":"UID in precondition"}`)
		case r.Method == http.MethodDelete && strings.Contains(string(body), `"dryRun":["All"]`):
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
		case r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"not found"}`)
		case strings.HasSuffix(r.URL.Path, "/tokenrevocations"):
			_, _ = io.WriteString(w, `{"apiVersion":"gatehouse.dev/v1alpha1","kind":"TokenRevocationList","items":[`+
				`{"apiVersion":"gatehouse.dev/v1alpha1","kind":"TokenRevocation","metadata":{"name":"r"},"spec":{"user":"bob","issuedBefore":"2026-01-01T00:00:00Z"}},`+
				`{"apiVersion":"gatehouse.dev/v1alpha1","kind":"TokenRevocation","metadata":{"name":"s"},"spec":{"user":"bob","issuedBefore":"2026-01-01T00:00:00Z","newer":1}}]}`)
		case r.URL.Query().Get("continue") == "":
			_, _ = io.WriteString(w, `{"apiVersion":"gatehouse.dev/v1alpha1","kind":"AccessTokenList","metadata":{"continue":"more"},"items":[`+token("a", `{"lastUsed":"2026-11-20T13:00:00Z"}`)+`]}`)
		default:
			_, _ = io.WriteString(w, `{"apiVersion":"gatehouse.dev/v1alpha1","kind":"AccessTokenList","items":[`+strings.Join([]string{
				token("b", refused), strings.Replace(token("c", `{}`), `"spec":{`, `"spec":{"newer":1,`, 1), token("good", compiled),
				strings.Replace(token("m", strings.Replace(compiled, `"observedGeneration":1`, `"observedGeneration":0`, 1)), `"username":"jane"`, `"username":"jane","groups":["system:masters"]`, 1),
				strings.Replace(token("n", refused), `"username":"jane"`, `"username":"jane","groups":["system:masters"]`, 1),
			}, ",")+`]}`)
		}
	}))
	t.Cleanup(server.Close)
	client, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	c := NewCluster(client)
	listing, err := c.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(listing.Tokens) != 6 || listing.Tokens[2].Name != "c" || listing.Tokens[2].UID != "uid-c" {
		t.Errorf("tokens: %+v", listing.Tokens)
	}
	if len(listing.Unused) != 3 || listing.Unused["b"] != "is reserved" || !strings.Contains(listing.Unused["c"], "newer") {
		t.Errorf("unused: %q", listing.Unused)
	}
	if why, pending := listing.Pending["a"]; len(listing.Pending) != 2 || !pending || why != "" || !strings.Contains(listing.Pending["m"], `"system:masters" is reserved`) {
		t.Errorf("pending: %q", listing.Pending)
	}
	if len(listing.Revocations) != 1 || listing.Revocations[0].Name != "r" || listing.Found.Err() == nil || !strings.Contains(listing.Found.Error(), "TokenRevocation/s") {
		t.Errorf("revocations: %+v, found %v", listing.Revocations, listing.Found)
	}
	used, err := c.Used(t.Context())
	if err != nil || len(used) != 1 || used["a"].Hour() != 13 {
		t.Errorf("used: %v %v", used, err)
	}
	for _, dry := range []bool{true, false} {
		removals := c.Delete(t.Context(), []authn.Token{listing.Tokens[0], listing.Tokens[1]}, dry)
		if dry != (removals[0].Err == nil) || !dry && !errors.Is(removals[0].Err, ErrNotFound) || !errors.Is(removals[1].Err, ErrChanged) {
			t.Errorf("dry run %v: %+v", dry, removals)
		}
	}
}
