package config_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

func TestFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.yaml": "a: 1", "sub/b.json": "{}", ".hidden.yaml": "c: 1", "kustomization.yaml": "d: 1", "notes.txt": "e",
		"login.yaml": "apiVersion: gatehouse.dev/v1alpha1\nkind: AuthenticationConfiguration\njwt: {issuers: [{keysFile: notes.txt}]}\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, found := config.Files(dir)
	if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, []string{"a.yaml", "login.yaml", "sub/b.json"}) || len(found) > 0 {
		t.Errorf("got %q, %v", got, found)
	}
	if _, found := config.Files(filepath.Join(dir, "none")); found.Err() == nil {
		t.Error("a directory that does not exist")
	}
}
