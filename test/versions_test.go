package test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The document names the releases that the tests run on: those of test/controlplane, of which 'make test' takes the newest.
func TestSupportedVersions(t *testing.T) {
	page, err := os.ReadFile("../docs/kubernetes-versions.md")
	if err != nil {
		t.Fatal(err)
	}
	directories, err := filepath.Glob("controlplane/1.*")
	if err != nil {
		t.Fatal(err)
	}
	for i, directory := range directories {
		directories[i] = filepath.Base(directory)
	}
	slices.Sort(directories) // as long as all minor versions have two digits, and one release each
	row := "| release that the tests run on | " + strings.Join(directories, " | ") + " |"
	if !strings.Contains(string(page), "\n"+row+"\n") {
		t.Errorf("docs/kubernetes-versions.md has no row %q", row)
	}
	usual, err := os.ReadFile("controlplane/VERSION")
	if err != nil {
		t.Fatal(err)
	}
	if newest := directories[len(directories)-1]; strings.TrimSpace(string(usual)) != newest {
		t.Errorf("controlplane/VERSION is %q, want the newest, %q", usual, newest)
	}
}
