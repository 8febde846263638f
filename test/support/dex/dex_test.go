package dex

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

func jane() User {
	return User{Email: "jane@example.org", Password: "jane's password", ID: "4711", Name: "Jane", Groups: []string{"dev", "eng"}}
}

// claims returns the claims of a token, unverified.
func claims(t *testing.T, token string) map[string]any {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("not a token: %q", token)
	}
	content, err := base64.RawURLEncoding.DecodeString(parts[1])
	must(t, err)
	var found map[string]any
	must(t, json.Unmarshal(content, &found))
	return found
}

// keys returns the ids of the keys that dex publishes.
func keys(t *testing.T, s *Server) []string {
	t.Helper()
	text, err := s.get(t.Context(), s.Issuer()+"/keys")
	must(t, err)
	var set struct{ Keys []struct{ Kid string } }
	must(t, json.Unmarshal([]byte(text), &set))
	var ids []string
	for _, key := range set.Keys {
		ids = append(ids, key.Kid)
	}
	return ids
}

func TestGrants(t *testing.T) {
	t.Parallel()
	s := New(t, Options{Users: []User{jane()}, IDTokenTTL: 5 * time.Minute})
	check := func(t *testing.T, token, client string) {
		t.Helper()
		found := claims(t, token)
		exp, ok := found["exp"].(float64)
		if left := time.Until(time.Unix(int64(exp), 0)); !ok || left > 5*time.Minute || left < 4*time.Minute {
			t.Errorf("the token ends in %s, want five minutes", left)
		}
		for claim, want := range map[string]any{
			"iss": s.Issuer(), "aud": client, "email": "jane@example.org", "name": "Jane", "groups": []any{"dev", "eng"},
		} {
			if fmt.Sprint(found[claim]) != fmt.Sprint(want) {
				t.Errorf("the claim %s is %v, want %v", claim, found[claim], want)
			}
		}
	}

	t.Run("password, then refresh token", func(t *testing.T) {
		t.Parallel()
		tokens, err := s.Password(t.Context(), OtherClient, "jane@example.org", "jane's password")
		must(t, err)
		check(t, tokens.ID, OtherClient)
		tokens, err = s.Renew(t.Context(), OtherClient, tokens.Refresh)
		must(t, err)
		check(t, tokens.ID, OtherClient)
		_, err = s.Password(t.Context(), Client, "jane@example.org", "wrong")
		if err == nil {
			t.Error("a wrong password is taken")
		}
	})

	t.Run("authorization code", func(t *testing.T) {
		t.Parallel()
		codes := make(chan string, 1)
		program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			codes <- r.FormValue("code")
			fmt.Fprint(w, "go back to the program") //nolint:errcheck // a browser that is gone fails the test
		}))
		defer program.Close()
		begin := s.Issuer() + "/auth?" + url.Values{
			"client_id": {Client}, "redirect_uri": {program.URL}, "response_type": {"code"}, "state": {"xyz"}, "scope": {"openid email profile groups"},
		}.Encode()
		_, err := s.Visit(t.Context(), begin, "jane@example.org", "wrong")
		if err == nil || len(codes) != 0 {
			t.Errorf("a wrong password: got %v", err)
		}
		page, err := s.Visit(t.Context(), begin, "jane@example.org", "jane's password")
		must(t, err)
		if page != "go back to the program" {
			t.Errorf("the browser shows %q", page)
		}
		tokens, err := s.token(t.Context(), url.Values{
			"grant_type": {"authorization_code"}, "client_id": {Client}, "code": {<-codes}, "redirect_uri": {program.URL},
		})
		must(t, err)
		check(t, tokens.ID, Client)
	})

	t.Run("device code", func(t *testing.T) {
		t.Parallel()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.Issuer()+"/device/code",
			strings.NewReader(url.Values{"client_id": {Client}, "scope": {"openid email profile groups"}}.Encode()))
		must(t, err)
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		text, err := answer(s.client, request)
		must(t, err)
		var device struct {
			Code string `json:"device_code"`
			URL  string `json:"verification_uri_complete"`
		}
		must(t, json.Unmarshal([]byte(text), &device))
		_, err = s.Visit(t.Context(), device.URL, "jane@example.org", "jane's password")
		must(t, err)
		tokens, err := s.token(t.Context(), url.Values{
			"grant_type": {"urn:ietf:params:oauth:grant-type:device_code"}, "client_id": {Client}, "device_code": {device.Code},
		})
		must(t, err)
		check(t, tokens.ID, Client)
	})
}

func TestStoppedAndStartedAgain(t *testing.T) {
	t.Parallel()
	s := New(t, Options{Users: []User{jane()}})
	before, issuer := keys(t, s), s.Issuer()
	if len(before) != 1 {
		t.Fatalf("got the keys %q, want one", before)
	}
	count, err := s.Requests(t.Context(), "/keys")
	must(t, err)
	if count != 1 {
		t.Errorf("got %d requests for keys, want 1", count)
	}

	must(t, s.Suspend())
	for err == nil { // what it was doing when the signal came, it may still do
		hanging, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		_, err = s.get(hanging, s.Issuer()+"/keys")
		cancel()
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a suspended dex: got %v, want no answer", err)
	}
	must(t, s.Resume())
	keys(t, s)

	s.Kill()
	_, err = s.get(t.Context(), s.Issuer()+"/keys")
	if err == nil {
		t.Error("a dex that is gone answers")
	}
	must(t, s.Start(t.Context()))
	after := keys(t, s)
	if s.Issuer() != issuer || len(after) != 1 || slices.Equal(before, after) {
		t.Errorf("got the keys %q again, want another", after)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
