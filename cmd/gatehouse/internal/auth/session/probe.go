package session

import (
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/auth/login"
)

// checkIsGatehouse asks the server for what only a Gatehouse answers so, which costs it
// next to nothing. The certificate proves who it is; this proves that it is not
// another server of the same owner, which would log a password that it does not
// understand. A redirection is an answer, and the wrong one.
func checkIsGatehouse(ctx context.Context, client *http.Client, server string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server+login.Path, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	asking := *client
	asking.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	status, header, answer, err := send(&asking, req)
	if err != nil {
		return fmt.Errorf("%s: %w", server, err)
	}
	media, _, mediaErr := mime.ParseMediaType(header.Get("Content-Type"))
	var f login.Failure
	if status != http.StatusMethodNotAllowed || header.Get("Allow") != http.MethodPost ||
		mediaErr != nil || media != "application/json" || json.Unmarshal(answer, &f) != nil || f.Reason != login.ReasonMethod {
		return fmt.Errorf("%s: is not a Gatehouse with logins, so no password was sent: it responds with %d %s (hint: check the address of Gatehouse)",
			server, status, http.StatusText(status))
	}
	return nil
}
