package install

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install"
	"github.com/gatehouse-dev/gatehouse/manifests/crds"
)

// objectStore is what uninstall needs of an API server: get and delete of objects by
// their paths, and lists.
type objectStore struct {
	mu      sync.Mutex
	objects map[string]map[string]any
	deleted []string
	// onDelete is asked before an object is deleted. It keeps it with false.
	onDelete func(name string) bool
	// fault answers a request in place of the store, with a code that is not 0.
	fault func(r *http.Request) int
}

func (s *objectStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := func(code int, body any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(body) //nolint:errchkjson // the client tells
	}
	refuse := func(code int, reason string) {
		answer(code, map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason, "message": reason, "code": code})
	}
	if s.fault != nil {
		if code := s.fault(r); code != 0 {
			refuse(code, map[int]string{http.StatusForbidden: "Forbidden", http.StatusInternalServerError: "InternalError"}[code])
			return
		}
	}
	object, found := s.objects[r.URL.Path]
	switch {
	case !found && strings.HasSuffix(r.URL.Path, "s") && r.Method == http.MethodGet && !s.isObject(r.URL.Path):
		items := []any{}
		for _, name := range slices.Sorted(maps.Keys(s.objects)) {
			if path.Dir(name) != r.URL.Path {
				continue
			}
			labels, _ := s.objects[name]["metadata"].(map[string]any)["labels"].(map[string]any)
			if selector := r.URL.Query().Get("labelSelector"); selector == "" || labels[selector] != nil {
				items = append(items, s.objects[name])
			}
		}
		answer(http.StatusOK, map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}, "items": items})
	case !found:
		refuse(http.StatusNotFound, "NotFound")
	case r.Method == http.MethodDelete:
		s.deleted = append(s.deleted, path.Base(path.Dir(r.URL.Path))+"/"+path.Base(r.URL.Path))
		if s.onDelete == nil || s.onDelete(r.URL.Path) {
			delete(s.objects, r.URL.Path)
		}
		answer(http.StatusOK, object)
	default:
		answer(http.StatusOK, object)
	}
}

// removed are the objects that were deleted, in that order.
func (s *objectStore) removed() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.deleted)
}

// isObject reports whether a path names an object rather than a list.
func (s *objectStore) isObject(p string) bool {
	name := path.Base(p)
	return strings.HasPrefix(name, "gatehouse") || strings.Contains(name, ".")
}

const ourDeploymentPath = "/apis/apps/v1/namespaces/gatehouse-system/deployments/gatehouse"

// labelled is an object with a label.
func labelled(apiVersion, kind, name, label, value string) map[string]any {
	return map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{
		"name": name, "namespace": "gatehouse-system", "uid": "1", "labels": map[string]any{label: value},
	}}
}

// newObjectStore has an install.
func newObjectStore() *objectStore {
	registration := func(kind, webhook string) map[string]any {
		return map[string]any{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": map[string]any{"name": "gatehouse", "uid": "1"},
			"webhooks": []any{map[string]any{"name": webhook, "clientConfig": map[string]any{"service": map[string]any{"namespace": "gatehouse-system", "name": "gatehouse"}}}},
		}
	}
	return &objectStore{objects: map[string]map[string]any{
		clitest.MutatingConfigurationPath:        registration("MutatingWebhookConfiguration", "asked.mutate.gatehouse.dev"),
		clitest.ValidatingConfigurationPath:      registration("ValidatingWebhookConfiguration", "fail.validate.gatehouse.dev"),
		ourDeploymentPath:                        labelled("apps/v1", "Deployment", "gatehouse", "app.kubernetes.io/name", "gatehouse"),
		clitest.SecretPath:                       labelled("v1", "Secret", "gatehouse-ca", "gatehouse.dev/certificates", "gatehouse-ca"),
		clitest.LeasesPath + "/gatehouse-ca-x":   labelled("coordination.k8s.io/v1", "Lease", "gatehouse-ca-x", "gatehouse.dev/certificates", "gatehouse-ca"),
		clitest.LeasesPath + "/gatehouse-r-x":    labelled("coordination.k8s.io/v1", "Lease", "gatehouse-r-x", "gatehouse.dev/report", "gatehouse"),
		clitest.LeasesPath + "/somebody-else":    labelled("coordination.k8s.io/v1", "Lease", "somebody-else", "x", "gatehouse"),
		clitest.LeasesPath + "/gatehouse-status": labelled("coordination.k8s.io/v1", "Lease", "gatehouse-status", "x", "gatehouse"),
	}}
}

// uninstallFrom runs uninstall against the store.
func uninstallFrom(t *testing.T, store *objectStore, change func(*uninstallFlags)) (stdout, problem string, code int) {
	t.Helper()
	server := httptest.NewServer(store)
	t.Cleanup(server.Close)
	client, err := dynamic.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	f := &uninstallFlags{installFlags: installFlags{name: "gatehouse", namespace: "gatehouse-system", timeout: time.Minute, output: "text"}, yes: true}
	if change != nil {
		change(f)
	}
	var out, remarks bytes.Buffer
	err = f.run(t.Context(), client, server.URL, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &remarks})
	if err != nil {
		problem, code = err.Error(), cli.WorstCode(err)
	}
	return out.String(), problem, code
}

// TestUninstallOrder: registrations go before the program, and the program before what it would make again.
func TestUninstallOrder(t *testing.T) {
	t.Parallel()
	store := newObjectStore()
	stdout, problem, code := uninstallFrom(t, store, nil)
	want := []string{
		"mutatingwebhookconfigurations/gatehouse", "validatingwebhookconfigurations/gatehouse", "deployments/gatehouse", "secrets/gatehouse-ca",
		"leases/gatehouse-ca-x", "leases/gatehouse-status", "leases/gatehouse-r-x",
	}
	if code != 0 || !slices.Equal(store.removed(), want) {
		t.Errorf("it ends with %d, %s, and has removed %q, want %q", code, problem, store.removed(), want)
	}
	const text = `removed MutatingWebhookConfiguration/gatehouse
removed ValidatingWebhookConfiguration/gatehouse
removed Deployment/gatehouse-system/gatehouse
removed Secret/gatehouse-system/gatehouse-ca
removed Lease/gatehouse-system/gatehouse-ca-x
removed Lease/gatehouse-system/gatehouse-status
removed Lease/gatehouse-system/gatehouse-r-x
kept the namespace, and the CustomResourceDefinitions with all of their objects (hint: --custom-resources removes these)
`
	if stdout != text {
		t.Errorf("it says\n%s", stdout)
	}
	stdout, problem, code = uninstallFrom(t, store, nil)
	if code != 0 || stdout != "nothing to remove: no install \"gatehouse\" in the namespace \"gatehouse-system\"\n" {
		t.Errorf("again, it ends with %d, %s, and says %q", code, problem, stdout)
	}
}

// TestUninstallAgainstWhoKeeps: a registration that is made anew after it was gone, before the program goes or while it
// does, is told, because it calls nobody.
func TestUninstallAgainstWhoKeeps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		// behind is the deletion behind which it is made anew.
		behind string
		// program reports whether the program is removed all the same.
		program bool
	}{
		"before the program goes": {behind: "validatingwebhookconfigurations", program: false},
		"while the program goes":  {behind: "deployments", program: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := newObjectStore()
			again := store.objects[clitest.MutatingConfigurationPath]
			store.onDelete = func(path string) bool {
				if strings.Contains(path, c.behind) {
					again["metadata"].(map[string]any)["uid"] = "another"
					store.objects[clitest.MutatingConfigurationPath] = again
				}
				return true
			}
			stdout, problem, code := uninstallFrom(t, store, nil)
			const want = "MutatingWebhookConfiguration/gatehouse may remain: it was created again, for example by a GitOps controller: stop that first"
			if code != 2 || !strings.Contains(problem, want) {
				t.Errorf("it ends with %d, %s %s, want %q", code, stdout, problem, want)
			}
			if gone := slices.Contains(store.removed(), "deployments/gatehouse"); gone != c.program {
				t.Errorf("the program is removed: %v, want %v", gone, c.program)
			}
		})
	}
}

// TestUninstallLeavesOthers: nothing of one install is of another, and so are the Leases that all installs of a namespace share.
func TestUninstallLeavesOthers(t *testing.T) {
	t.Parallel()
	store := newObjectStore()
	stdout, problem, code := uninstallFrom(t, store, func(f *uninstallFlags) { f.name = "gatehouse-other" })
	if code != 0 || len(store.removed()) > 0 || stdout != "nothing to remove: no install \"gatehouse-other\" in the namespace \"gatehouse-system\"\n" {
		t.Errorf("it ends with %d, %s, says %q and has removed %q", code, problem, stdout, store.removed())
	}
}

// TestUninstallTrouble: messages name what must be deleted first, and the rest is deleted.
func TestUninstallTrouble(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change  func(*objectStore)
		flags   func(*uninstallFlags)
		code    int
		deleted int
		want    []string
	}{
		"pods do not end": {
			change: func(s *objectStore) {
				s.objects[ourDeploymentPath]["metadata"].(map[string]any)["finalizers"] = []any{"foregroundDeletion"}
				s.onDelete = func(name string) bool { return name != ourDeploymentPath }
			},
			flags: func(f *uninstallFlags) { f.timeout = 2 * time.Second }, // for all that comes before it, too
			code:  cli.ExitUnknown, deleted: 3,
			want: []string{"has not ended: gave up after --timeout 2s", `finalizers ["foregroundDeletion"]`, "Secret/gatehouse-system/gatehouse-ca may remain: Deployment/gatehouse-system/gatehouse must be deleted first"},
		},
		"an API server that falters": {
			change: func(s *objectStore) {
				gets := 0
				s.fault = func(r *http.Request) int {
					if gets++; r.Method == http.MethodGet && len(s.deleted) == 2 && gets%2 == 0 {
						return http.StatusInternalServerError
					}
					return 0
				}
			},
			deleted: 2, code: cli.ExitYes,
			flags: func(f *uninstallFlags) { f.registrationsOnly = true },
		},
		"a registration that cannot be looked at": {
			change: func(s *objectStore) {
				s.fault = func(r *http.Request) int {
					if r.URL.Path == clitest.ValidatingConfigurationPath {
						return http.StatusForbidden
					}
					return 0
				}
			},
			code: cli.ExitUnknown, deleted: 1,
			want: []string{"kubectl delete validatingwebhookconfiguration gatehouse", "ValidatingWebhookConfiguration/gatehouse must be deleted first"},
		},
		"leases that cannot be listed": {
			change: func(s *objectStore) {
				s.fault = func(r *http.Request) int {
					if r.URL.Path == clitest.LeasesPath && r.Method == http.MethodGet {
						return http.StatusForbidden
					}
					return 0
				}
			},
			code: cli.ExitUnknown, deleted: 5,
			want: []string{"kubectl -n gatehouse-system delete leases -l gatehouse.dev/certificates=gatehouse-ca", "kubectl -n gatehouse-system delete leases -l gatehouse.dev/report=gatehouse"},
		},
		"a Secret that somebody made": {
			change: func(s *objectStore) { delete(s.objects[clitest.SecretPath]["metadata"].(map[string]any), "labels") },
			code:   cli.ExitNo, deleted: 6,
			want: []string{`lacks the label "gatehouse.dev/certificates"`, "kubectl -n gatehouse-system delete secret gatehouse-ca"},
		},
		"a Deployment of that name that is none of ours": {
			change: func(s *objectStore) { delete(s.objects[ourDeploymentPath]["metadata"].(map[string]any), "labels") },
			code:   cli.ExitNo, deleted: 6,
			want: []string{`lacks the label "app.kubernetes.io/name=gatehouse"`},
		},
		"a registration without webhooks": {
			change: func(s *objectStore) { delete(s.objects[clitest.MutatingConfigurationPath], "webhooks") },
			code:   cli.ExitUnknown, deleted: 1,
			want: []string{"it has no webhooks", "MutatingWebhookConfiguration/gatehouse must be deleted first"},
		},
		"a registration that is no registration": {
			change: func(s *objectStore) { s.objects[clitest.MutatingConfigurationPath]["webhooks"] = "x" },
			code:   cli.ExitUnknown, deleted: 1,
			want: []string{"it cannot be read", "must be deleted first"},
		},
		"one webhook of somebody else": {
			change: func(s *objectStore) {
				s.objects[clitest.MutatingConfigurationPath]["webhooks"] = append(s.objects[clitest.MutatingConfigurationPath]["webhooks"].([]any), map[string]any{
					"name": "evil\n\x1b[31m.example.org", "clientConfig": map[string]any{"url": "https://example.org"},
				})
			},
			code: cli.ExitUnknown, deleted: 1,
			want: []string{`the name of its webhook "evil\n\x1b[31m.example.org" does not end in gatehouse.dev`, "MutatingWebhookConfiguration/gatehouse must be deleted first"},
		},
		"a registration by URL": {
			change: func(s *objectStore) {
				s.objects[clitest.MutatingConfigurationPath]["webhooks"] = []any{map[string]any{"name": "a.gatehouse.dev", "clientConfig": map[string]any{"url": "https://192.0.2.1:9443/mutate"}}}
			},
			code: cli.ExitYes, deleted: 7,
		},
		"a dry run": {
			flags: func(f *uninstallFlags) { f.dryRun, f.yes = cli.DryRunClient, false },
		},
		"nobody to ask": {
			flags: func(f *uninstallFlags) { f.yes = false },
			code:  cli.ExitUnknown, want: []string{"nothing was removed: it needs a confirmation", "--yes"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := newObjectStore()
			if c.change != nil {
				c.change(store)
			}
			_, problem, code := uninstallFrom(t, store, c.flags)
			if code != c.code || len(store.removed()) != c.deleted {
				t.Errorf("it ends with %d and has removed %q, want %d and %d objects", code, store.removed(), c.code, c.deleted)
			}
			for _, want := range c.want {
				if !strings.Contains(problem, want) {
					t.Errorf("it does not say %q:\n%s", want, problem)
				}
			}
			if strings.ContainsAny(problem, "\x1b") {
				t.Errorf("it says what a terminal would obey: %q", problem)
			}
		})
	}
}

// TestUninstallKnowsDefinitions: the definitions that there are, and no others.
func TestUninstallKnowsDefinitions(t *testing.T) {
	t.Parallel()
	all, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range all {
		names = append(names, strings.TrimSuffix(o.GetName(), ".gatehouse.dev"))
	}
	slices.Sort(names)
	if got := install.CustomResources(); !slices.Equal(got, names) {
		t.Errorf("uninstall knows %q, there are %q", got, names)
	}
}
