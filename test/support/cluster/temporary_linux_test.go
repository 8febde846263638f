package cluster

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTemporaryDirectoriesAreSweptOnceTheirOwnerIsGone(t *testing.T) {
	parent := t.TempDir()
	t.Setenv("TMPDIR", parent)
	owned, err := newTemporary()
	if err != nil {
		t.Fatal(err)
	}
	abandoned, err := newTemporary()
	if err != nil {
		t.Fatal(err)
	}
	err = abandoned.lock.Close() // what the kernel does when the owner ends
	if err != nil {
		t.Fatal(err)
	}
	unfinished := filepath.Join(parent, "gatehouse-cluster-unfinished")
	err = os.Mkdir(unfinished, 0o700)
	if err != nil {
		t.Fatal(err)
	}

	sweep(parent)
	for path, want := range map[string]bool{owned.path: true, abandoned.path: false, unfinished: true} {
		_, err := os.Stat(path)
		if (err == nil) != want {
			t.Errorf("%s: got %v, want that it is there: %t", path, err, want)
		}
	}
	err = owned.remove()
	if err != nil {
		t.Error(err)
	}
}
