package dex

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Tokens are what dex gives out for a grant.
type Tokens struct {
	ID      string `json:"id_token"`
	Refresh string `json:"refresh_token"`
}

// Password logs somebody in to a client by the password grant (RFC 6749, section 4.3).
func (s *Server) Password(ctx context.Context, client, email, password string) (Tokens, error) {
	return s.token(ctx, url.Values{
		"grant_type": {"password"}, "client_id": {client}, "username": {email}, "password": {password},
		"scope": {"openid profile email groups offline_access"},
	})
}

func (s *Server) token(ctx context.Context, form url.Values) (Tokens, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.issuer+"/token", strings.NewReader(form.Encode()))
	if err != nil {
		return Tokens{}, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	text, err := answer(s.client, request)
	if err != nil {
		return Tokens{}, fmt.Errorf("get tokens from dex: %w", err)
	}
	var tokens Tokens
	err = json.Unmarshal([]byte(text), &tokens)
	if err != nil {
		return Tokens{}, fmt.Errorf("get tokens from dex: %w", err)
	}
	return tokens, nil
}
