//go:build unix

package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/test/support/certstest"
)

// A file of somebody else is not believed, and not written over.
func TestDirStoreOfAnotherUser(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, AuthorityFile)
	certstest.Write(t, file, []byte("{}"))
	s := NewDirStore(dir)
	const other = 54321
	if s.user == 0 {
		if err := os.Chown(file, other, -1); err != nil {
			t.Fatal(err)
		}
	} else {
		s.user = other
	}
	record, err := s.Load(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "file "+file+": it belongs to user ") || !strings.Contains(err.Error(), "(hint: run this as user ") {
		t.Errorf("got %v", err)
	}
	if err := s.Save(t.Context(), record, bytesOf(map[string]string{rotation.KeyState: "1"})); err == nil {
		t.Error("written")
	}
}
