package tokens

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
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
	const namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"
	a, b := text(t, "a"), text(t, "b")
	typedList := "apiVersion: gatehouse.dev/v1alpha1\nkind: AccessTokenList\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(a), "\n", "\n  ") + "\n"
	asJSON, err := yaml.YAMLToJSON([]byte(a))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		file, content string
		remove        []string
		says          string // why it is not removable, "" if the file is removed
	}{
		"alone":                          {"x.yaml", a, []string{"a"}, ""},
		"alone, with comments":           {"x.yaml", "# of a robot\n---\n" + a + "---\n# nothing\n", []string{"a"}, ""},
		"alone, in JSON":                 {"x.json", string(asJSON), []string{"a"}, ""},
		"all of several":                 {"x.yaml", a + "---\n" + b, []string{"a", "b"}, ""},
		"a token that is there twice":    {"x.yaml", a + "---\n" + a, []string{"a"}, ""},
		"below the directory":            {"sub/deep/x.yaml", a, []string{"a"}, ""},
		"beside another document":        {"x.yaml", a + "---\n" + namespace, []string{"a"}, "x.yaml: the file has other documents too (hint: edit or remove it there)"},
		"beside another token":           {"x.yaml", a + "---\n" + b, []string{"a"}, "the file has other documents too"},
		"in a list":                      {"x.yaml", typedList, []string{"a"}, "x.yaml: it is an item of a list (hint: edit or remove it there)"},
		"one in a list and one beside":   {"x.yaml", typedList + "---\n" + b, []string{"a", "b"}, "item of a list"},
		"beside one that cannot be read": {"x.yaml", a + "---\nkind: [\n", []string{"a"}, "the file has errors"},
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
				err := store.Delete(t.Context(), remove, dryRun)[0].Err
				if c.says == "" && err != nil || c.says != "" && (!errors.Is(err, ErrNotRemovable) || !strings.Contains(err.Error(), c.says)) {
					t.Fatalf("dry run %v: got %v, want %q", dryRun, err, c.says)
				}
				if dryRun && read(t, file) != c.content {
					t.Fatal("the dry run changed the file")
				}
			}
			if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) != (c.says == "") || c.says != "" && read(t, file) != c.content {
				t.Errorf("the file: %v", err)
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
	// The file was changed since it was listed: a is gone.
	write(t, file, text(t, "b"))
	if r := store.Delete(t.Context(), []authn.Token{a, b}, false); !errors.Is(r[0].Err, ErrNotFound) || r[1].Err != nil {
		t.Error(r)
	}
	if r := store.Delete(t.Context(), []authn.Token{b}, false); !errors.Is(r[0].Err, ErrNotFound) {
		t.Error(r)
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
