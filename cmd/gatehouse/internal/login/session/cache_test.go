//go:build unix

package session

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCacheKeepsAndForgets(t *testing.T) {
	t.Parallel()
	c := &Cache{Dir: filepath.Join(t.TempDir(), "a", "b", "gatehouse")}
	jane, eve := Identity{Method: "password", Server: "https://a.example", Username: "jane"}, Identity{Method: "password", Server: "https://a.example", Username: "eve"}
	if n, err := c.RemoveAll(); n != 0 || err != nil {
		t.Errorf("nothing is there: %d, %v", n, err)
	}
	want := &Credential{
		Token: "hush", ObtainedAt: noon, ExpiresAt: noon.Add(time.Hour), RefreshToken: "hush too", SessionEnds: noon.Add(2 * time.Hour),
		Subject: "4711", User: "jane", Source: "https://a.example",
	}
	for _, id := range []Identity{jane, eve} {
		if got, err := c.entry(id).read(); got != nil || err != nil {
			t.Fatalf("got %+v, %v", got, err)
		}
		if err := c.entry(id).write(want); err != nil {
			t.Fatal(err)
		}
	}
	got, err := c.entry(jane).read()
	if err != nil || *got != *want {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	entries, err := os.ReadDir(c.Dir)
	if err != nil || len(entries) != 2 {
		t.Fatalf("%v, %v", entries, err)
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || info.Mode() != 0o600 || len(entry.Name()) != 64+len(".json") || strings.Contains(entry.Name(), "jane") {
			t.Errorf("%s: %v, %v", entry.Name(), info.Mode(), err)
		}
	}
	if info, err := os.Stat(c.Dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	if n, err := c.Remove(jane); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if got, err := c.entry(jane).read(); got != nil || err != nil {
		t.Errorf("jane is still there: %+v, %v", got, err)
	}
	if got, err := c.entry(eve).read(); got == nil || err != nil {
		t.Errorf("eve has gone too: %v", err)
	}
}

// How somebody logs in makes no other login.
func TestIdentityOfALogin(t *testing.T) {
	t.Parallel()
	c := &Cache{}
	one := (&OIDC{Issuer: "a", Scopes: []string{"x", "y", "x"}, Device: true}).Identity()
	two := (&OIDC{Issuer: "a", Scopes: []string{"y", "x"}, Listen: "127.0.0.1:1"}).Identity()
	other := (&OIDC{Issuer: "a", Scopes: []string{"x y"}}).Identity()
	if c.entry(one) != c.entry(two) || c.entry(one) == c.entry(other) {
		t.Error("identities differ by how somebody logs in, or not by scopes")
	}
}

// Whatever is wrong with a file, nothing of it is shown, and nothing is asked of it.
func TestCacheThatOthersMayHaveTouched(t *testing.T) {
	t.Parallel()
	const secret = "hush-hush"
	id := Identity{Method: "oidc"}
	for _, c := range []struct {
		name string
		edit func(t *testing.T, dir, file string)
		says string // empty for a miss or a hit
		hit  bool
	}{
		{"as it was", func(*testing.T, string, string) {}, "", true},
		{"directory that others may look into", func(t *testing.T, dir, _ string) { chmod(t, dir, 0o755) }, "", true},
		{"directory that others may write", func(t *testing.T, dir, _ string) { chmod(t, dir, 0o777) }, "other users can write to this directory (mode 0777)", false},
		{"directory that the group may write", func(t *testing.T, dir, _ string) { chmod(t, dir, 0o770) }, "other users can write to this directory", false},
		{"directory that is a link", func(t *testing.T, dir, _ string) {
			if err := os.Rename(dir, dir+"2"); err != nil {
				t.Fatal(err)
			}
			link(t, dir+"2", dir)
		}, "is not a directory", false},
		{"directory that is a file", func(t *testing.T, dir, _ string) {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			write(t, dir, secret)
		}, "not a directory", false},
		{"file that others may read", func(t *testing.T, _, file string) { chmod(t, file, 0o644) }, "other users can access this login (mode 0644), so it is not used (hint: 'kubectl gatehouse logout' removes it; then log in again)", false},
		{"file that the group may read", func(t *testing.T, _, file string) { chmod(t, file, 0o640) }, "other users can access this login", false},
		{"file that others may write", func(t *testing.T, _, file string) { chmod(t, file, 0o602) }, "other users can access this login", false},
		{"file that is a link", func(t *testing.T, _, file string) {
			if err := os.Rename(file, file+"2"); err != nil {
				t.Fatal(err)
			}
			link(t, filepath.Base(file)+"2", file)
		}, "is not a regular file", false},
		{"file that is a directory", func(t *testing.T, _, file string) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(file, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "is not a regular file", false},
		{"cut off", func(t *testing.T, _, file string) { write(t, file, `{"version":1,"token":"`+secret) }, "", false},
		{"not JSON", func(t *testing.T, _, file string) { write(t, file, secret) }, "", false},
		{"empty", func(t *testing.T, _, file string) { write(t, file, "") }, "", false},
		{"another version", func(t *testing.T, _, file string) { write(t, file, `{"version":2,"token":"`+secret+`"}`) }, "", false},
		{"no token", func(t *testing.T, _, file string) { write(t, file, `{"version":1,"user":"jane"}`) }, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cache := &Cache{Dir: filepath.Join(t.TempDir(), "gatehouse"), Program: "kubectl gatehouse"}
			e := cache.entry(id)
			if err := e.write(&Credential{Token: secret}); err != nil {
				t.Fatal(err)
			}
			c.edit(t, cache.Dir, e.path())
			got, err := e.read()
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("%v shows a secret", err)
			}
			if (got != nil) != c.hit {
				t.Errorf("got %+v", got)
			}
			if c.says != "" {
				return
			}
			// A login replaces what is there, and repairs the directory.
			if err := e.write(&Credential{Token: "new"}); err != nil {
				t.Fatal(err)
			}
			if got, err := e.read(); err != nil || got == nil || got.Token != "new" {
				t.Errorf("got %+v, %v", got, err)
			}
			if info, err := os.Stat(cache.Dir); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("%v, %v", info.Mode(), err)
			}
		})
	}
}

// What is refused can be removed, and nothing else is.
func TestLogoutRemovesWhatIsRefused(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "outside.json")
	write(t, outside, "mine")
	cache := &Cache{Dir: filepath.Join(t.TempDir(), "gatehouse")}
	one, two := cache.entry(Identity{Method: "one"}), cache.entry(Identity{Method: "two"})
	for _, e := range []entry{one, two} {
		if err := e.write(&Credential{Token: "hush"}); err != nil {
			t.Fatal(err)
		}
	}
	chmod(t, one.path(), 0o644)
	if err := os.Remove(two.path()); err != nil {
		t.Fatal(err)
	}
	link(t, outside, two.path())
	write(t, one.path()+".ABC.tmp", "cut off")
	write(t, filepath.Join(cache.Dir, "notes.json"), "mine")
	unlock, err := one.lock(t.Context(), time.Second, func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if n, err := cache.RemoveAll(); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	var left []string
	entries, err := os.ReadDir(cache.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		left = append(left, entry.Name())
	}
	if got, want := strings.Join(left, " "), one.name+".lock notes.json"; got != want {
		t.Errorf("left: %s, want %s", got, want)
	}
	if data, err := os.ReadFile(outside); err != nil || string(data) != "mine" {
		t.Errorf("%q, %v", data, err)
	}
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
