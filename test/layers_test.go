package test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// layerList are the directories of the program from the bottom up: a package imports packages of
// its own layer and of layers below. A directory that ends in "/" is what is below it alone. The
// longest one that holds a package is its layer.
func layerList() []string {
	const in = "cmd/gatehouse/internal/"
	return []string{
		"internal",
		"manifests",
		"webhooks/", // what endpoints are made of
		"webhooks/review",
		"webhooks/authz",
		"webhooks/authn",
		"webhooks/sidecar",
		"webhooks/policy",
		"webhooks/mutation",
		"webhooks",
		"webhooks/config/rbac",
		"webhooks/config",
		"webhooks/config/resolve",
		"certs",
		in + "server/telemetry",
		in + "cluster/leader",
		in + "cluster/paging",
		in + "cluster/install",
		in + "login/httpsclient",
		in + "login/issuers",
		in + "login/ldap",
		in + "history/record",
		in + "history/auditlog",
		in + "cluster",
		in + "server/certmetrics",
		in + "cluster/events",
		in + "cluster/admission",
		in + "cluster/status",
		in + "login",
		in + "offline",
		in + "history/audit",
		in + "server/debug",
		in + "cluster/replicas",
		in + "server",
		in + "cluster/configuration",
		in + "history/replay",
		in + "app",
		in + "cli",
		"cmd/gatehouse",
	}
}

// layerOf returns the number of the layer of a directory, -1 if it has none.
func layerOf(list []string, dir string) int {
	found, size := -1, -1
	for i, layer := range list {
		below := strings.HasSuffix(layer, "/")
		holds := !below && isBelow(dir, layer) || below && strings.HasPrefix(dir, layer)
		if holds && len(layer) > size {
			found, size = i, len(layer)
		}
	}
	return found
}

// TestLayers holds that no import points upwards.
func TestLayers(t *testing.T) {
	t.Parallel()
	list := layerList()
	used := make([]bool, len(list))
	err := filepath.WalkDir("..", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		file := filepath.ToSlash(strings.TrimPrefix(name, ".."+string(filepath.Separator)))
		if entry.IsDir() {
			if file == "test" || file == "build" {
				return fs.SkipDir
			}
			return skip(name, entry)
		}
		if path.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		from := layerOf(list, path.Dir(file))
		if from < 0 {
			t.Errorf("%s has no layer (hint: give its directory a place in layerList)", file)
			return nil
		}
		used[from] = true
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		imports, err := importsOf(parsed)
		if err != nil {
			return err
		}
		for _, i := range imports {
			dir, ours := strings.CutPrefix(i.path, module+"/")
			if to := layerOf(list, dir); ours && to > from {
				t.Errorf("%s imports %s, which is above it: %q is below %q", file, dir, list[from], list[to])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, one := range used {
		if !one {
			t.Errorf("no package is in the layer %q: was a directory renamed?", list[i])
		}
	}
}

func TestLayerOf(t *testing.T) {
	t.Parallel()
	list := []string{"webhooks/", "webhooks/policy", "webhooks"}
	for dir, want := range map[string]int{"webhooks": 2, "webhooks/json": 0, "webhooks/policy": 1, "webhooks/policy/expression": 1, "webhookstore": -1, "cmd": -1} {
		if got := layerOf(list, dir); got != want {
			t.Errorf("layer of %q is %d, want %d", dir, got, want)
		}
	}
}
