package session

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// What logs out gives back the refresh token, and says who it is as it did when it
// logged in.
func TestRevoke(t *testing.T) {
	t.Parallel()
	const secret = "hush: hush+" // not what a header takes as it is
	for _, c := range []struct {
		name, secret string
		metadata     map[string]any // beside the endpoint
		status       int
		form         url.Values // what is sent, beside the token
		header       bool       // client and secret are in the header
		says         string     // empty if it works
	}{
		{name: "public", status: 200, form: url.Values{"client_id": {testClient}}},
		{name: "with a secret", secret: secret, status: 200, header: true},
		{
			name: "forms alone", secret: secret, status: 200, metadata: map[string]any{"revocation_endpoint_auth_methods_supported": []string{"client_secret_post"}},
			form: url.Values{"client_id": {testClient}, "client_secret": {secret}},
		},
		{name: "refused", status: 400, form: url.Values{"client_id": {testClient}}, says: "responds with 400 Bad Request"},
		{name: "a redirection", status: 307, form: url.Values{"client_id": {testClient}}, says: "a redirect, which is not followed"},
		{name: "no endpoint", metadata: map[string]any{"revocation_endpoint": ""}, says: "the issuer has no revocation endpoint"},
		{name: "without TLS", metadata: map[string]any{"revocation_endpoint": "http://issuer.example/revoke"}, says: "requests without TLS are not sent"},
		{name: "not a URL", metadata: map[string]any{"revocation_endpoint": "https://issuer.example:x"}, says: "revocation_endpoint: is not a URL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			i := newIssuer(t)
			i.metadata = func(m map[string]any) {
				m["revocation_endpoint"] = i.URL + "/revoke"
				maps.Copy(m, c.metadata)
			}
			var sent []url.Values
			i.revoke = func(w http.ResponseWriter, r *http.Request) {
				_ = r.ParseForm()
				sent = append(sent, r.PostForm)
				id, password, ok := r.BasicAuth()
				if ok != c.header || ok && (id != testClient || password != url.QueryEscape(secret)) {
					t.Errorf("the header has %q, %q", id, password)
				}
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(c.status)
			}
			o, _ := i.login(t, nil, func(o *OIDC) { o.ClientSecret = c.secret })
			err := o.Revoke(t.Context(), &Credential{Token: "id-token", RefreshToken: "refresh-hush"})
			if (err == nil) != (c.says == "") || err != nil && (!strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hush")) {
				t.Errorf("got %v, want %q", err, c.says)
			}
			if c.status == 0 {
				if len(sent) > 0 {
					t.Errorf("sent %v", sent)
				}
				return
			}
			want := url.Values{"token": {"refresh-hush"}, "token_type_hint": {"refresh_token"}}
			maps.Copy(want, c.form)
			if len(sent) != 1 || sent[0].Encode() != want.Encode() {
				t.Errorf("sent %v, want %v", sent, want)
			}
		})
	}
	t.Run("nothing to give back", func(t *testing.T) {
		t.Parallel()
		i := newIssuer(t)
		o, _ := i.login(t, nil, nil)
		if err := o.Revoke(t.Context(), &Credential{Token: "id-token"}); err != nil || i.count("metadata") > 0 {
			t.Errorf("%v, and %d questions", err, i.count("metadata"))
		}
	})
}
