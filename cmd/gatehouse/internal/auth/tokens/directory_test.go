package tokens

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

func newToken(id, user string) *v1alpha1.AccessToken {
	_, hash := authn.NewToken(id, [25]byte{})
	return &v1alpha1.AccessToken{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "AccessToken"},
		ObjectMeta: metav1.ObjectMeta{Name: id, CreationTimestamp: metav1.Unix(1_800_000_000, 0)},
		Spec: v1alpha1.AccessTokenSpec{
			SHA256: hash, User: authenticationv1.UserInfo{Username: user}, ExpiresAt: metav1.Unix(1_900_000_000, 0),
		},
	}
}

// text is a token as a document.
func text(t testing.TB, id string) string {
	t.Helper()
	data, err := yaml.Marshal(newToken(id, "jane"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func write(t testing.TB, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o640); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func ids(t testing.TB, store Store) []string {
	t.Helper()
	listing, err := store.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for i := range listing.Tokens {
		list = append(list, listing.Tokens[i].Name)
	}
	slices.Sort(list)
	return list
}

// find is a token as the store lists it.
func find(t testing.TB, store Store, id string) authn.Token {
	t.Helper()
	listing, err := store.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range listing.Tokens {
		if token.Name == id {
			return token
		}
	}
	t.Fatalf("%s is not listed: %v", id, listing.Found)
	return authn.Token{}
}

func TestCreateNeverOverwrites(t *testing.T) {
	t.Parallel()
	store := Directory{Dir: t.TempDir()}
	place, err := store.Create(t.Context(), newToken("ci", "jane"))
	if err != nil || place != filepath.Join(store.Dir, "token-ci.yaml") {
		t.Fatal(place, err)
	}
	before := read(t, place)
	if _, err := store.Create(t.Context(), newToken("ci", "eve")); !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), "token-ci.yaml already exists") {
		t.Errorf("got %v", err)
	}
	// A link that leads nowhere is a file that exists, and nothing is written through it.
	target := filepath.Join(t.TempDir(), "target")
	if err := os.Symlink(target, store.TokenFile("cd")); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Create(t.Context(), newToken("cd", "eve")); !errors.Is(err, ErrExists) {
		t.Errorf("through a link: %v", err)
	}
	if _, err := os.Lstat(target); err == nil {
		t.Error("the link was followed")
	}
	if read(t, place) != before {
		t.Error("the document was overwritten")
	}
}

func TestDelete(t *testing.T) {
	t.Parallel()
	const namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop} # kept\n"
	a, b, c := text(t, "a"), text(t, "b"), text(t, "c")
	typedList := "apiVersion: gatehouse.dev/v1alpha1\nkind: AccessTokenList\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(a), "\n", "\n  ") + "\n"
	asJSON, err := yaml.YAMLToJSON([]byte(a))
	if err != nil {
		t.Fatal(err)
	}
	crlf := func(text string) string { return strings.ReplaceAll(text, "\n", "\r\n") }
	for name, c := range map[string]struct {
		file, content string
		remove        []string
		want          string // what is left of the file, "" for no file
		err           error  // of the first
		says          string
	}{
		"alone":                             {"x.yaml", a, []string{"a"}, "", nil, ""},
		"alone, with comments":              {"x.yaml", "# of a robot\n---\n" + a + "---\n# nothing\n", []string{"a"}, "", nil, ""},
		"alone, in JSON":                    {"x.json", string(asJSON), []string{"a"}, "", nil, ""},
		"all of several":                    {"x.yaml", a + "---\n" + b, []string{"a", "b"}, "", nil, ""},
		"the first":                         {"x.yaml", a + "---\n" + namespace, []string{"a"}, "---\n" + namespace, nil, ""},
		"the first, behind a comment":       {"x.yaml", "# ours\n---\n" + a + "---\n" + namespace, []string{"a"}, "# ours\n---\n" + namespace, nil, ""},
		"in the middle":                     {"x.yaml", namespace + "--- # a\n" + a + "---\n# b\n" + b, []string{"a"}, namespace + "---\n# b\n" + b, nil, ""},
		"the last":                          {"x.yaml", namespace + "---\n" + a, []string{"a"}, namespace, nil, ""},
		"the last, without a line end":      {"x.yaml", namespace + "---\n" + strings.TrimSpace(a), []string{"a"}, namespace, nil, ""},
		"two of three":                      {"x.yaml", a + "---\n" + b + "---\n" + c, []string{"a", "c"}, "---\n" + b, nil, ""},
		"ended documents":                   {"x.yaml", namespace + "...\n---\n" + a + "...\n---\n" + b + "...\n", []string{"a"}, namespace + "...\n---\n" + b + "...\n", nil, ""},
		"a directive":                       {"x.yaml", "%YAML 1.1\n---\n" + a + "---\n" + namespace, []string{"a"}, "%YAML 1.1\n---\n" + namespace, nil, ""},
		"byte order mark":                   {"x.yaml", "\ufeff" + a + "---\n" + namespace, []string{"a"}, "\ufeff---\n" + namespace, nil, ""},
		"lines of Windows":                  {"x.yaml", crlf(namespace + "---\n" + a + "---\n" + b), []string{"a"}, crlf(namespace + "---\n" + b), nil, ""},
		"markers in a block scalar":         {"x.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: y}\ndata:\n  x: |\n    ---\n    kind: AccessToken\n---\n" + a, []string{"a"}, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: y}\ndata:\n  x: |\n    ---\n    kind: AccessToken\n", nil, ""},
		"a ConfigMap of the same name":      {"x.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: AccessToken}\n---\n" + a, []string{"a"}, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: AccessToken}\n", nil, ""},
		"in a list":                         {"x.yaml", typedList, []string{"a"}, typedList, ErrNotRemovable, "x.yaml: it is an item of a list (hint: edit or remove it there)"},
		"in a stream of JSON":               {"x.json", string(asJSON) + `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x"}}`, []string{"a"}, string(asJSON) + `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x"}}`, ErrNotRemovable, "other JSON values"},
		"one in a list and one beside it":   {"x.yaml", typedList + "---\n" + b, []string{"a", "b"}, typedList, ErrNotRemovable, "item of a list"},
		"with an anchor":                    {"x.yaml", strings.Replace(a, "username: jane", "username: &x jane", 1) + "---\n" + namespace, []string{"a"}, "---\n" + namespace, nil, ""},
		"below the directory":               {"sub/deep/x.yaml", a, []string{"a"}, "", nil, ""},
		"beside one that cannot be read":    {"x.yaml", a + "---\nkind: [\n", []string{"a"}, a + "---\nkind: [\n", ErrNotRemovable, "the file has errors"},
		"a token that is there twice":       {"x.yaml", a + "---\n" + a + "---\n" + namespace, []string{"a"}, "---\n" + namespace, nil, ""},
		"a token that is written otherwise": {"x.yaml", "---\n" + string(asJSON) + "\n---\n" + namespace, []string{"a"}, "---\n" + namespace, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := Directory{Dir: t.TempDir()}
			file := filepath.Join(store.Dir, filepath.FromSlash(c.file))
			write(t, file, c.content)
			var remove []authn.Token
			for _, id := range c.remove {
				remove = append(remove, find(t, store, id))
			}
			for _, dryRun := range []bool{true, false} {
				removals := store.Delete(t.Context(), remove, dryRun)
				if err := removals[0].Err; !errors.Is(err, c.err) || c.err != nil && !strings.Contains(err.Error(), c.says) {
					t.Fatalf("dry run %v: got %v, want %v: %s", dryRun, err, c.err, c.says)
				}
				if dryRun && read(t, file) != c.content {
					t.Fatal("the dry run changed the file")
				}
			}
			info, err := os.Stat(file)
			switch {
			case c.want == "" && err == nil:
				t.Errorf("left is %q", read(t, file))
			case c.want != "" && (err != nil || read(t, file) != c.want):
				t.Errorf("left is\n%s\nwant\n%s", read(t, file), c.want)
			case c.want != "" && info.Mode().Perm() != 0o640:
				t.Errorf("its mode is %v now", info.Mode())
			}
			if c.want != "" && c.err == nil && slices.Contains(ids(t, store), c.remove[0]) {
				t.Error("it is still listed")
			}
			entries, err := filepath.Glob(filepath.Join(filepath.Dir(file), ".*"))
			if err != nil || len(entries) > 0 {
				t.Errorf("left behind: %v, %v", entries, err)
			}
		})
	}
}

// What a kubelet or git-sync writes would come back.
func TestDeleteLeavesLinksAlone(t *testing.T) {
	t.Parallel()
	elsewhere := t.TempDir()
	write(t, filepath.Join(elsewhere, "a.yaml"), text(t, "a"))
	for name, link := range map[string]struct{ target, at string }{
		"of a file":      {filepath.Join(elsewhere, "a.yaml"), "x.yaml"},
		"of a directory": {elsewhere, "sub"},
	} {
		store := Directory{Dir: t.TempDir()}
		if err := os.Symlink(link.target, filepath.Join(store.Dir, link.at)); err != nil {
			t.Fatal(err)
		}
		r := store.Delete(t.Context(), []authn.Token{find(t, store, "a")}, false)
		if !errors.Is(r[0].Err, ErrNotRemovable) || !strings.Contains(r[0].Err.Error(), "symbolic link") {
			t.Errorf("%s: %v", name, r[0].Err)
		}
		if !slices.Equal(ids(t, store), []string{"a"}) {
			t.Errorf("%s: it is gone", name)
		}
	}
	// The directory itself may be one.
	dir := filepath.Join(t.TempDir(), "current")
	if err := os.Symlink(elsewhere, dir); err != nil {
		t.Fatal(err)
	}
	store := Directory{Dir: dir}
	if r := store.Delete(t.Context(), []authn.Token{find(t, store, "a")}, false); r[0].Err != nil {
		t.Error(r[0].Err)
	}
}

func TestDeleteOfWhatIsGone(t *testing.T) {
	t.Parallel()
	store := Directory{Dir: t.TempDir()}
	file := filepath.Join(store.Dir, "x.yaml")
	write(t, file, text(t, "a")+"---\n"+text(t, "b"))
	a, b := find(t, store, "a"), find(t, store, "b")
	// The file was changed under us: b is the first document now, and a is gone.
	write(t, file, text(t, "b")+"---\n"+text(t, "c"))
	r := store.Delete(t.Context(), []authn.Token{a, b}, false)
	if !errors.Is(r[0].Err, ErrNotFound) || r[1].Err != nil || read(t, file) != "---\n"+text(t, "c") {
		t.Errorf("%v\n%s", r, read(t, file))
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if r := store.Delete(t.Context(), []authn.Token{b}, false); !errors.Is(r[0].Err, ErrNotFound) {
		t.Error(r)
	}
}

// A change between reading and writing must not be lost.
func TestApplySeesChanges(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]string{"rewriting": "---\n" + text(t, "b"), "removing": ""} {
		store := Directory{Dir: t.TempDir()}
		file := filepath.Join(store.Dir, "x.yaml")
		content := text(t, "a")
		if after != "" {
			content += after
		}
		write(t, file, content)
		e, err := store.open(file, []*Removal{{ID: "a"}})
		if err != nil {
			t.Fatal(err)
		}
		write(t, file, content+"---\n"+text(t, "c"))
		if err := os.Chtimes(file, time.Time{}, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if err := e.apply(); !errors.Is(err, ErrChanged) {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(read(t, file), "name: c") {
			t.Errorf("%s: the change is lost", name)
		}
		entries, err := os.ReadDir(store.Dir)
		if err != nil || len(entries) != 1 {
			t.Errorf("%s: left behind: %v, %v", name, entries, err)
		}
	}
}

func TestDirectoryThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		// Root may write anywhere, so the directory is one that nobody can write to.
		store := Directory{Dir: "/proc/self"}
		if _, err := store.Create(t.Context(), newToken("ci", "jane")); err == nil || errors.Is(err, ErrExists) {
			t.Errorf("got %v", err)
		}
		return
	}
	store := Directory{Dir: t.TempDir()}
	write(t, filepath.Join(store.Dir, "x.yaml"), text(t, "a")+"---\n"+text(t, "b"))
	a := find(t, store, "a")
	if err := os.Chmod(store.Dir, 0o500); err != nil { // #nosec G302 -- a directory
		t.Fatal(err)
	}
	if _, err := store.Create(t.Context(), newToken("ci", "jane")); !errors.Is(err, os.ErrPermission) {
		t.Errorf("create: %v", err)
	}
	if r := store.Delete(t.Context(), []authn.Token{a}, false); !errors.Is(r[0].Err, os.ErrPermission) {
		t.Errorf("delete: %v", r[0].Err)
	}
	if err := os.Chmod(store.Dir, 0o700); err != nil { // #nosec G302 -- a directory
		t.Fatal(err)
	}
	if got := ids(t, store); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("got %v", got)
	}
}

// Many who issue and revoke at the same time, in one file too, lose nothing and
// bring nothing back.
func TestConcurrentChanges(t *testing.T) {
	t.Parallel()
	store := Directory{Dir: t.TempDir()}
	var many []string
	const n = 12
	for i := range n {
		many = append(many, text(t, fmt.Sprintf("many-%02d", i)))
	}
	write(t, filepath.Join(store.Dir, "many.yaml"), strings.Join(many, "---\n"))
	listing, err := store.List(t.Context())
	if err != nil || len(listing.Tokens) != n {
		t.Fatal(err, listing.Found)
	}
	var group sync.WaitGroup
	var lock sync.Mutex
	created := map[string]int{}
	for i := range n {
		group.Go(func() {
			if r := store.Delete(t.Context(), listing.Tokens[i:i+1], false); i%2 == 0 && r[0].Err != nil {
				t.Errorf("delete: %v", r[0].Err)
			}
		})
		group.Go(func() {
			id := fmt.Sprintf("new-%d", i/2) // two of each
			switch _, err := store.Create(t.Context(), newToken(id, "jane")); {
			case err == nil:
				lock.Lock()
				created[id]++
				lock.Unlock()
			case !errors.Is(err, ErrExists):
				t.Errorf("create: %v", err)
			}
		})
		group.Go(func() {
			if _, err := store.List(t.Context()); err != nil {
				t.Errorf("list: %v", err)
			}
		})
	}
	group.Wait()
	var want []string
	for i := range n / 2 {
		id := fmt.Sprintf("new-%d", i)
		want = append(want, id)
		if created[id] != 1 {
			t.Errorf("%s was created %d times", id, created[id])
		}
	}
	if got := ids(t, store); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestRevokedBy(t *testing.T) {
	t.Parallel()
	at := func(second int64) metav1.Time { return metav1.Unix(second, 0) }
	listing := Listing{Spec: authn.Spec{Revocations: []authn.Revocation{
		{Source: "a.yaml", TokenRevocation: v1alpha1.TokenRevocation{Spec: v1alpha1.TokenRevocationSpec{User: "jane", IssuedBefore: at(100)}}},
	}}}
	for name, c := range map[string]struct {
		user   string
		issued metav1.Time
		want   bool
	}{
		"before":     {"jane", at(99), true},
		"at":         {"jane", at(100), false},
		"after":      {"jane", at(101), false},
		"not told":   {"jane", metav1.Time{}, true},
		"other user": {"Jane", at(99), false},
	} {
		token := newToken("ci", c.user)
		token.CreationTimestamp = c.issued
		if _, got := listing.RevokedBy(token); got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// FuzzDelete takes a token out of any file: what is left says to a server what it
// said without the token, or nothing is done.
func FuzzDelete(f *testing.F) {
	a := text(f, "a")
	for _, seed := range []string{"---\nkind: x\n", "\ufeff# x\n...\n", "--- {a: b}\n", "%YAML 1.1\n---\n", "--- |\n ---\n x\n", "{\"a\": 1}\n", "a: &a b\nc: *a\n"} {
		f.Add(seed, "---\nb: c\n")
	}
	f.Fuzz(func(t *testing.T, before, behind string) {
		store := Directory{Dir: t.TempDir()}
		file := filepath.Join(store.Dir, "x.yaml")
		write(t, file, before+"---\n"+a+behind)
		documents, found := config.Documents(file)
		token := authn.Token{Source: "x.yaml"}
		token.Name = "a"
		err := store.Delete(t.Context(), []authn.Token{token}, false)[0].Err
		if err != nil {
			if read(t, file) != before+"---\n"+a+behind {
				t.Fatalf("changed, and %v", err)
			}
			return
		}
		if found.Err() != nil {
			t.Fatalf("changed with errors in it: %v", found)
		}
		var want, got []any
		for _, d := range documents {
			if tokenID(d.Value) != "a" {
				want = append(want, d.Value)
			}
		}
		if _, err := os.Stat(file); err == nil {
			left, found := config.Documents(file)
			if found.Err() != nil {
				t.Fatalf("broken: %v\n%q", found, read(t, file))
			}
			for _, d := range left {
				got = append(got, d.Value)
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}
