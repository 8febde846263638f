package configuration

import (
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/telemetry"
	"github.com/gatehouse-dev/gatehouse/test/support/logbuffer"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// directoryServer is the configuration of a server from a directory, and perhaps from
// custom resources.
type directoryServer struct {
	*Reconciler
	log logbuffer.Buffer
	// tokens are the texts of the access tokens one and two.
	tokens map[string]string
}

// serveDirectory starts with a directory of two access tokens and two policies, each
// in a file of its own.
func serveDirectory(t *testing.T, resources CustomResources) *directoryServer {
	t.Helper()
	s := &directoryServer{Reconciler: &Reconciler{Dir: filepath.Join(t.TempDir(), "config")}, tokens: map[string]string{}}
	for i, id := range []string{"one", "two"} {
		text, hash := authn.NewToken(id, [25]byte{byte(i)})
		s.tokens[id] = text
		s.write(t, "tokens/"+id+".yaml", fmt.Sprintf(`
apiVersion: gatehouse.dev/v1alpha1
kind: AccessToken
metadata: {name: %s, creationTimestamp: %q}
spec: {sha256: %s, user: {username: %s}, expiresAt: %q}
`, id, time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), hash, id, time.Now().Add(time.Hour).UTC().Format(time.RFC3339)))
	}
	for _, name := range []string{"red", "blue"} {
		s.write(t, name+".yaml", policyDocument(name))
	}
	log := slog.New(slog.NewJSONHandler(&s.log, nil))
	metrics := telemetry.New(log, "v")
	providers := NewIdentityProviders(log, metrics, 2)
	t.Cleanup(providers.Close)
	current := &Active{Dir: s.Dir, Log: log, Metrics: metrics, Seed: maphash.MakeSeed()}
	s.Reconciler = &Reconciler{Dir: s.Dir, Current: current, Providers: providers, Resources: resources}
	loaded, found := s.Read()
	if err := s.Start(t.Context(), loaded, found); err != nil {
		t.Fatal(err)
	}
	return s
}

func policyDocument(name string) string {
	return `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: ` + name + `}
spec:
  validationActions: [Deny]
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: "true"}]
`
}

func (s *directoryServer) write(t *testing.T, name, content string) {
	t.Helper()
	file := filepath.Join(s.Dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// change has the directory changed and read, as one that is watched.
func (s *directoryServer) change(t *testing.T, change func()) {
	t.Helper()
	change()
	read, found := s.Read()
	s.reconcileDocuments(t.Context(), read, found.Err())
}

// wants compares which access tokens are good, and how many policies there are.
func (s *directoryServer) wants(t *testing.T, tokens string, policies int) {
	t.Helper()
	var good []string
	for _, id := range []string{"one", "two"} {
		if s.Current.Snapshot.Load().Authn.Decide(context.Background(), authn.Input{Token: s.tokens[id]}).Outcome == authn.Yes {
			good = append(good, id)
		}
	}
	if got := strings.Join(good, " "); got != tokens {
		t.Errorf("good are %q, want %q", got, tokens)
	}
	if s.Current.policies != policies {
		t.Errorf("%d policies are in use, want %d", s.Current.policies, policies)
	}
}

// metric compares a gauge.
func (s *directoryServer) metric(t *testing.T, name string, value int) {
	t.Helper()
	families, err := s.Current.Metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == name })
	if i < 0 {
		t.Fatalf("there is no metric %s", name)
	}
	if got := families[i].GetMetric()[0].GetGauge().GetValue(); got != float64(value) {
		t.Errorf("%s is %v, want %d", name, got, value)
	}
}

// A mistake in one file, however large, ends no access token of another one; nor does
// what cannot be read end those that may be in it.
func TestWhatIsNotReadIsNotWithdrawn(t *testing.T) {
	t.Parallel()
	manyDocuments := `{"apiVersion":"v1","kind":"List","items":[` + strings.Repeat("1,", 150_000) + "1]}"
	manyAliases := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: z}\nx: &x " + strings.Repeat("x", 1<<20) + "\ny: [" + strings.Repeat("*x,", 256) + "]\n"
	revocation := "apiVersion: gatehouse.dev/v1alpha1\nkind: TokenRevocation\nmetadata: {name: a}\nspec: {user: one, issuedBefore: \"" + time.Now().UTC().Format(time.RFC3339) + "\"}\n"
	in := func(s *directoryServer, name string) string { return filepath.Join(s.Dir, name) }
	for name, test := range map[string]struct {
		change func(*testing.T, *directoryServer)
		want   string
	}{
		"a token's file is deleted": {func(_ *testing.T, s *directoryServer) { _ = os.Remove(in(s, "tokens/one.yaml")) }, "two"},
		"that, and another is broken": {func(t *testing.T, s *directoryServer) {
			_ = os.Remove(in(s, "tokens/one.yaml"))
			s.write(t, "red.yaml", "{")
		}, "two"},
		"too many documents":           {func(t *testing.T, s *directoryServer) { s.write(t, "many.yaml", manyDocuments) }, "one two"},
		"aliases of more than 256 MiB": {func(t *testing.T, s *directoryServer) { s.write(t, "many.yaml", manyAliases) }, "one two"},
		"UTF-16 with a mark":           {func(t *testing.T, s *directoryServer) { s.write(t, "tokens/one.yaml", "\xff\xfea\x00:\x00") }, "one two"},
		"UTF-16 without":               {func(t *testing.T, s *directoryServer) { s.write(t, "tokens/one.yaml", "a\x00:\x00 \x001\x00") }, "one two"},
		"half of a document": {func(t *testing.T, s *directoryServer) {
			s.write(t, "tokens/one.yaml", "apiVersion: gatehouse.dev/v1alpha1\nkind: Acc")
		}, "one two"},
		"a link to nowhere": {func(_ *testing.T, s *directoryServer) {
			_ = os.Remove(in(s, "tokens/one.yaml"))
			_ = os.Symlink("..data/one.yaml", in(s, "tokens/one.yaml"))
		}, "one two"},
		"a directory that is a circle": {func(_ *testing.T, s *directoryServer) {
			_ = os.RemoveAll(in(s, "tokens"))
			_ = os.Symlink(".", in(s, "tokens"))
		}, "one two"},
		"the directory is empty": {func(_ *testing.T, s *directoryServer) { _ = os.RemoveAll(s.Dir); _ = os.Mkdir(s.Dir, 0o700) }, "one two"},
		"the directory is gone":  {func(_ *testing.T, s *directoryServer) { _ = os.RemoveAll(s.Dir) }, "one two"},
		"a limit, behind a revocation": {func(t *testing.T, s *directoryServer) {
			s.write(t, "a.yaml", revocation)
			s.write(t, "many.yaml", manyAliases)
		}, "two"},
		"a policy that does not compile": {func(t *testing.T, s *directoryServer) {
			_ = os.Remove(in(s, "tokens/one.yaml"))
			s.write(t, "red.yaml", strings.Replace(policyDocument("red"), `"true"`, `"true +"`, 1))
		}, "two"},
	} {
		for kind, resources := range map[string]func() CustomResources{"": func() CustomResources { return nil }, ", beside custom resources": func() CustomResources {
			h := &handed{changed: make(chan struct{}, 1)}
			h.hand()
			return h
		}} {
			t.Run(name+kind, func(t *testing.T) {
				t.Parallel()
				s := serveDirectory(t, resources())
				s.wants(t, "one two", 2)
				s.change(t, func() { test.change(t, s) })
				s.wants(t, test.want, 2)
			})
		}
	}
}

// A directory that had documents and has none any more is a mistake, beside custom
// resources too; one that never had any is none.
func TestDirectoryThatLosesItsDocuments(t *testing.T) {
	t.Parallel()
	resources := &handed{changed: make(chan struct{}, 1)}
	resources.hand(customPolicy(t, 1, "green", "true"))
	s := serveDirectory(t, resources)
	for name, change := range map[string]func(){
		"empty": func() { _ = os.RemoveAll(s.Dir); _ = os.Mkdir(s.Dir, 0o700) },
		"files without documents": func() {
			for _, file := range []string{"red.yaml", "blue.yaml", "tokens/one.yaml", "tokens/two.yaml"} {
				s.write(t, file, "# soon\n")
			}
		},
	} {
		_ = s.log.Take()
		s.change(t, change)
		s.wants(t, "one two", 3)
		s.metric(t, "gatehouse_config_last_load_successful", 0)
		if log := s.log.Take(); !strings.Contains(log, "the directory has lost all its documents") || !strings.Contains(log, "start without --config") {
			t.Errorf("%s: the log has %s", name, log)
		}
	}
	// Documents that come back count, and what is deleted then is deleted.
	s.change(t, func() { s.write(t, "red.yaml", policyDocument("red")) })
	s.metric(t, "gatehouse_config_last_load_successful", 1)

	empty := t.TempDir()
	loaded, found := config.InspectBeside(empty)
	again := &Reconciler{Dir: empty, Current: s.Current, Providers: s.Providers, Resources: resources}
	_ = s.log.Take()
	if err := again.Start(t.Context(), loaded, found); err != nil {
		t.Fatalf("no start with an empty directory beside custom resources: %v", err)
	}
	if log := s.log.Take(); !strings.Contains(log, "only custom resources are active") {
		t.Errorf("a start with an empty directory logs %s", log)
	}
}

// A file that is there and has no document any more is not deleted: somebody is told
// until it is mended, and may have it refused.
func TestEmptiedFile(t *testing.T) {
	t.Parallel()
	const (
		gauge = "gatehouse_config_emptied_files"
		told  = `"source":"red.yaml","object":"","field":"","finding":"has lost all its documents"`
	)
	for name, emptied := range map[string]string{
		"0 bytes": "", "comments": "# soon\n---\n", "tests alone": "apiVersion: gatehouse.dev/v1alpha1\nkind: Test\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveDirectory(t, nil)
			s.metric(t, gauge, 0)
			for i, other := range []string{"1", "2"} { // It is told of as long as it lasts, whatever else changes.
				s.change(t, func() { s.write(t, "red.yaml", emptied); s.write(t, "blue.yaml", policyDocument("blue"+other)) })
				s.wants(t, "one two", 1)
				s.metric(t, gauge, 1)
				log := s.log.Take()
				if !strings.Contains(log, told) || i == 0 && !strings.Contains(log, `"level":"WARN","msg":"files have lost all their documents`) {
					t.Errorf("change %s is logged as %s", other, log)
				}
			}
			s.change(t, func() { s.write(t, "red.yaml", policyDocument("red")) })
			s.wants(t, "one two", 2)
			s.metric(t, gauge, 0)

			s.RefuseEmptied = true
			s.change(t, func() {
				s.write(t, "red.yaml", emptied)
				s.write(t, "tokens/one.yaml", emptied)
				_ = os.Remove(filepath.Join(s.Dir, "tokens/two.yaml"))
			})
			s.wants(t, "one", 2) // What is deleted ends at once all the same.
			s.metric(t, "gatehouse_config_last_load_successful", 0)
			if log := s.log.Take(); !strings.Contains(log, told) || !strings.Contains(log, "to remove them, delete the file") {
				t.Errorf("what is refused is logged as %s", log)
			}
			s.change(t, func() {
				_ = os.Remove(filepath.Join(s.Dir, "red.yaml"))
				_ = os.Remove(filepath.Join(s.Dir, "tokens/one.yaml"))
			})
			s.wants(t, "", 1)
			s.metric(t, "gatehouse_config_last_load_successful", 1)
			s.metric(t, gauge, 0)
		})
	}
	t.Run("from the start", func(t *testing.T) {
		t.Parallel()
		s := serveDirectory(t, nil)
		s.change(t, func() { s.write(t, "new.yaml", "") })
		s.metric(t, gauge, 0)
	})
}

// A Grant that is removed, or gives less, ends although another document is invalid; one that gives more stays as it was.
func TestGrantsAreWithdrawn(t *testing.T) {
	t.Parallel()
	s := serveDirectory(t, nil)
	grant := func(name, groups string) string {
		return "apiVersion: gatehouse.dev/v1alpha1\nkind: Grant\nmetadata: {name: " + name + "}\nspec: {subject: {user: one}, groups: [" + groups + "], expiresAt: \"2999-01-01T00:00:00Z\"}\n"
	}
	wants := func(groups ...string) {
		t.Helper()
		if got := s.Current.Snapshot.Load().Authn.Decide(t.Context(), authn.Input{Token: s.tokens["one"]}).Status.User.Groups; !slices.Equal(got, groups) {
			t.Errorf("the groups are %q, want %q", got, groups)
		}
	}
	s.change(t, func() {
		for name, groups := range map[string]string{"gone": "a", "less": "b, c", "more": "d", "same": "e"} {
			s.write(t, name+".yaml", grant(name, groups))
		}
	})
	wants("a", "b", "c", "d", "e")
	s.change(t, func() {
		s.write(t, "red.yaml", policyDocument("Red"))
		if err := os.Remove(filepath.Join(s.Dir, "gone.yaml")); err != nil {
			t.Fatal(err)
		}
		s.write(t, "less.yaml", grant("less", "b"))
		s.write(t, "more.yaml", grant("more", "d, f"))
	})
	wants("d", "e")
	s.change(t, func() { s.write(t, "red.yaml", policyDocument("red")) })
	wants("b", "d", "f", "e")
	// What cannot be read removes nothing.
	s.change(t, func() { s.write(t, "same.yaml", "a: [") })
	wants("b", "d", "f", "e")
}
