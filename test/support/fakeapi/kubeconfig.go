package fakeapi

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// Handler returns a handler that answers as the API server does.
func Handler(api http.RoundTripper) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		response, err := api.RoundTrip(r)
		if err != nil {
			panic(http.ErrAbortHandler) // an error of the connection
		}
		defer func() { _ = response.Body.Close() }()
		maps.Copy(w.Header(), response.Header)
		w.WriteHeader(response.StatusCode)
		_, _ = io.Copy(w, response.Body) // the client tells
	})
}

// Kubeconfig starts an API server that answers as api does, and returns the path of a kubeconfig for it.
func Kubeconfig(t *testing.T, api http.RoundTripper) string {
	t.Helper()
	server := httptest.NewServer(Handler(api))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"clusters":[{"name":"c","cluster":{"server":"` + server.URL + `"}}],"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
