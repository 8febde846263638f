package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Only a file that was read in whole, or is gone, says by what is not in it that
// something was removed.
func TestUnread(t *testing.T) {
	const (
		object  = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NAME, namespace: z}\n"
		aliases = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: z}\nx: &x "
	)
	document := func(name string) string { return strings.ReplaceAll(object, "NAME", name) }
	for name, c := range map[string]struct {
		change func(t *testing.T, dir string)
		all    bool
		paths  []string
	}{
		"nothing is wrong":              {func(*testing.T, string) {}, false, nil},
		"a file is gone":                {func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "m/one.yaml"))) }, false, nil},
		"a file that cannot be decoded": {func(t *testing.T, dir string) { write(t, filepath.Join(dir, "m/one.yaml"), "{") }, false, []string{"m/one.yaml"}},
		"a file in UTF-16":              {func(t *testing.T, dir string) { write(t, filepath.Join(dir, "m/one.yaml"), "\xff\xfea\x00") }, false, []string{"m/one.yaml"}},
		"a document with an error":      {func(t *testing.T, dir string) { write(t, filepath.Join(dir, "z.yaml"), document("z")+"---\nkind: X\n") }, false, []string{"z.yaml"}},
		"a link to nowhere":             {func(t *testing.T, dir string) { relink(t, filepath.Join(dir, "m/one.yaml"), "nowhere") }, false, []string{"m/one.yaml"}},
		"a file that is none":           {func(t *testing.T, dir string) { relink(t, filepath.Join(dir, "m/one.yaml"), os.DevNull) }, false, []string{"m/one.yaml"}},
		"a directory that is a circle": {func(t *testing.T, dir string) {
			must(t, os.RemoveAll(filepath.Join(dir, "m")))
			link(t, ".", filepath.Join(dir, "m"))
		}, false, []string{"m"}},
		"a file that is too large": {func(t *testing.T, dir string) {
			must(t, os.Truncate(filepath.Join(dir, "m/one.yaml"), int64(small().fileBytes)+1))
		}, false, []string{"m/one.yaml"}},
		"files that are too large": {func(t *testing.T, dir string) {
			sparse(t, dir, "a.yaml", int64(small().fileBytes))
			sparse(t, dir, "b.yaml", int64(small().fileBytes))
		}, true, nil},
		"too many documents": {func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "b.yaml"), `{"apiVersion":"v1","kind":"List","items":[`+strings.Repeat("1,", small().documents)+"1]}")
		}, true, []string{"b.yaml", "m/one.yaml", "z.yaml"}},
		"aliases of more than there may": {func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "b.yaml"), aliases+strings.Repeat("x", 1<<20)+"\ny: ["+strings.Repeat("*x,", small().cost()>>20)+"]\n")
		}, true, []string{"b.yaml"}},
		"the directory is gone":  {func(t *testing.T, dir string) { must(t, os.RemoveAll(dir)) }, true, nil},
		"the directory is empty": {func(t *testing.T, dir string) { must(t, os.RemoveAll(dir)); must(t, os.Mkdir(dir, 0o700)) }, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := directory(t, map[string]string{"m/one.yaml": document("one"), "z.yaml": document("z"), "notes.yaml": "# none\n"})
			c.change(t, dir)
			got := readTree(dir, small())
			config, _ := got.decode()
			slices.Sort(config.Unread.Paths)
			if config.Unread.All != c.all || !c.all && !slices.Equal(config.Unread.Paths, c.paths) {
				t.Errorf("unread is %+v, want all %v and %q", config.Unread, c.all, c.paths)
			}
			for _, path := range append(c.paths, "m/one.yaml") {
				want := c.all || slices.Contains(c.paths, path) || slices.Contains(c.paths, "m")
				if config.Unread.MayHold(path) != want {
					t.Errorf("%q may hold more: %v, want %v", path, !want, want)
				}
			}
		})
	}
}

// Which files hold documents, and which hold none, is known.
func TestFilledAndEmptyFiles(t *testing.T) {
	const object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: z}\n"
	config, err := Load(directory(t, map[string]string{
		"full.yaml": object, "empty.yaml": "", "comments.yaml": "# " + object[:10] + "\n---\n", "list.yaml": "apiVersion: v1\nkind: List\nitems: []\n",
		"test.yaml": "apiVersion: gatehouse.dev/v1alpha1\nkind: Test\n", "empty.json": "",
	}))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"comments.yaml", "empty.json", "empty.yaml", "list.yaml", "test.yaml"}; !slices.Equal(config.Empty, want) {
		t.Errorf("empty are %q, want %q", config.Empty, want)
	}
	if !slices.Equal(config.Filled, []string{"full.yaml"}) || config.Documents != 1 {
		t.Errorf("%d documents, in %v", config.Documents, config.Filled)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func relink(t *testing.T, path, target string) {
	t.Helper()
	must(t, os.Remove(path))
	link(t, target, path)
}

// sparse makes a file that takes no room.
func sparse(t *testing.T, dir, name string, size int64) {
	t.Helper()
	write(t, filepath.Join(dir, name), "")
	must(t, os.Truncate(filepath.Join(dir, name), size))
}
