package session

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/auth/login"
)

// Whoami asks the Gatehouse at the server, "https://host:port", what it says
// about a token that is shown to the audiences. Texts of the answer are as they
// came.
func Whoami(ctx context.Context, server string, roots *x509.CertPool, token string, audiences []string) (*login.Answer, error) {
	body, err := json.Marshal(login.Question{Audiences: audiences})
	if err != nil {
		return nil, err
	}
	status, text, err := post(ctx, newClient(roots), server+login.WhoamiPath, token, body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", server, err)
	}
	if status != http.StatusOK {
		return nil, failed(server, status, text)
	}
	var answer login.Answer
	if err := json.Unmarshal(text, &answer); err != nil || answer.Outcome == "" {
		return nil, fmt.Errorf("%s: the response is not from Gatehouse (hint: check the address of Gatehouse)", server)
	}
	return &answer, nil
}
