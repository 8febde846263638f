package tokens

import (
	"errors"
	"os"
	"path/filepath"
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
	a := text(t, "a")
	typedList := "apiVersion: gatehouse.dev/v1alpha1\nkind: AccessTokenList\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(a), "\n", "\n  ") + "\n"
	for name, c := range map[string]struct {
		file, content string
		says          string // why it is not removed, "" if it is
	}{
		"alone":                          {"x.yaml", a, ""},
		"below the directory":            {"sub/deep/x.yaml", a, ""},
		"beside another document":        {"x.yaml", a + "---\n" + namespace, "x.yaml has other documents too (hint: "},
		"in a list":                      {"x.yaml", typedList, "x.yaml has other documents too"},
		"beside one that cannot be read": {"x.yaml", a + "---\nkind: [\n", "x.yaml has other documents too"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := Directory{Dir: t.TempDir()}
			file := filepath.Join(store.Dir, filepath.FromSlash(c.file))
			write(t, file, c.content)
			token := find(t, store, "a")
			for _, dryRun := range []bool{true, false} {
				_, err := store.Delete(t.Context(), &token, dryRun)
				if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
					t.Fatalf("dry run %v: got %v, want %q", dryRun, err, c.says)
				}
				if dryRun && read(t, file) != c.content {
					t.Fatal("the dry run changed the file")
				}
			}
			if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) != (c.says == "") || c.says != "" && read(t, file) != c.content {
				t.Errorf("the file: %v", err)
			}
			if _, err := store.Delete(t.Context(), &token, false); c.says == "" && !errors.Is(err, ErrNotFound) {
				t.Errorf("again: %v", err)
			}
		})
	}
}

// What a kubelet or git-sync writes would come back.
func TestDeleteLeavesLinksAlone(t *testing.T) {
	t.Parallel()
	elsewhere := t.TempDir()
	write(t, filepath.Join(elsewhere, "a.yaml"), text(t, "a"))
	store := Directory{Dir: t.TempDir()}
	if err := os.Symlink(filepath.Join(elsewhere, "a.yaml"), filepath.Join(store.Dir, "x.yaml")); err != nil {
		t.Fatal(err)
	}
	token := find(t, store, "a")
	if _, err := store.Delete(t.Context(), &token, false); err == nil || !strings.Contains(err.Error(), "x.yaml is a link") {
		t.Errorf("got %v", err)
	}
	if token = find(t, store, "a"); token.Name == "" {
		t.Error("it is gone")
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
