package install

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support/terminal"
)

// TestUninstallAsks: somebody at a terminal sees what goes and where, and only a yes removes it.
func TestUninstallAsks(t *testing.T) {
	t.Parallel()
	for answer, removed := range map[string]int{"y": 2, "YES": 2, "n": 0, "": 0, "yup": 0} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			store := newObjectStore()
			server := httptest.NewServer(store)
			t.Cleanup(server.Close)
			kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
			text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"x","contexts":[{"name":"x","context":{"cluster":"x","user":"x"}}],
"clusters":[{"name":"x","cluster":{"server":%q}}],"users":[{"name":"x","user":{}}]}`, server.URL)
			if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			s := terminal.OnScreen(t, "", "uninstall", "--registrations-only", "--kubeconfig", kubeconfig)
			s.Shows(t, "would remove ValidatingWebhookConfiguration/gatehouse")
			s.Shows(t, "Remove these from the cluster of "+server.URL+"? [y/N] ")
			if _, err := s.Keyboard.WriteString(answer + "\n"); err != nil {
				t.Fatal(err)
			}
			err := <-s.Done
			if removed == 0 {
				s.Shows(t, "gatehouse: nothing was removed")
			}
			if got := len(store.removed()); got != removed || (err == nil) != (removed > 0) {
				t.Errorf("%q removes %d objects and ends with %v, want %d:\n%s", answer, got, err, removed, s)
			}
		})
	}
}
