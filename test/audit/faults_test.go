package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// between is a proxy between an audit and the API server, through which a test knows when a page of a list is asked for.
type between struct {
	// kubeconfig is that of the proxy.
	kubeconfig string

	mu sync.Mutex
	// page is called before the page with this number of a resource is asked for, pages counted from 1.
	page func(resource string, n int)
	// answered is called with the code of each answer about a resource. It may be nil.
	answered func(code int)
	pages    map[string]int
	codes    map[int]int
}

// newBetween starts a proxy that asks with these credentials.
func newBetween(t *testing.T, access *rest.Config) *between {
	t.Helper()
	b := &between{}
	b.expect(nil, nil)
	transport, err := rest.TransportFor(access)
	must(t, err)
	to, err := url.Parse(access.Host)
	must(t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport: transport,
		// A watch is answered bit by bit.
		FlushInterval: -1,
		ModifyResponse: func(r *http.Response) error {
			b.answer(r)
			return nil
		},
		// As the connection of an API server that is gone.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.request(r)
		proxy.ServeHTTP(w, r)
	}))
	server.Config.ErrorLog = nil
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL}
	config.AuthInfos["c"] = &clientcmdapi.AuthInfo{}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}
	config.CurrentContext = "c"
	b.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	must(t, clientcmd.WriteToFile(*config, b.kubeconfig))
	return b
}

// expect has functions called from now on, and counts anew.
func (b *between) expect(page func(resource string, n int), answered func(code int)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.page, b.answered, b.pages, b.codes = page, answered, map[string]int{}, map[int]int{}
}

// seen returns how often the API server has answered with a code.
func (b *between) seen(code int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.codes[code]
}

// isPage reports whether a request is for a page of a list.
func isPage(r *http.Request) bool { return r.URL.Query().Has("limit") && !r.URL.Query().Has("watch") }

func (b *between) request(r *http.Request) {
	if !isPage(r) {
		return
	}
	resource := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	b.mu.Lock()
	b.pages[resource]++
	n, page := b.pages[resource], b.page
	b.mu.Unlock()
	if page != nil {
		page(resource, n)
	}
}

func (b *between) answer(r *http.Response) {
	if !isPage(r.Request) {
		return
	}
	b.mu.Lock()
	b.codes[r.StatusCode]++
	answered := b.answered
	b.mu.Unlock()
	if answered != nil {
		answered(r.StatusCode)
	}
}

// compact makes etcd forget all revisions but the current one, with which the tokens of lists expire.
func (f *filler) compact(ctx context.Context) error {
	text, err := f.ask(ctx, "range", `{"key":"YQ=="}`)
	if err != nil {
		return err
	}
	var is struct{ Header struct{ Revision string } }
	if err := json.Unmarshal(text, &is); err != nil {
		return err
	}
	_, err = f.ask(ctx, "compaction", fmt.Sprintf(`{"revision":%q,"physical":true}`, is.Header.Revision))
	return err
}

// faulty is a cluster in which something happens between two pages.
type faulty struct {
	*cluster.Cluster
	*between
	filler *filler
	// auditor is the identity that audits.
	auditor *rest.Config
	// seat is the body of a request that does not end.
	seat *io.PipeWriter
}

const (
	auditor = "auditor"
	// judged is how many objects the policies refuse, of each of the two kinds.
	judged = 150
	// auditorRights are those of the audit.
	auditorRights = `
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: auditor}, rules: [
  {apiGroups: ["", example.com, gatehouse.dev], resources: [namespaces, configmaps, widgets, admissionpolicies, admissionpolicybindings, policyexceptions, sidecarprofiles], verbs: [get, list, watch]},
  {apiGroups: [""], resources: [configmaps], verbs: [create]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: auditor}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: auditor}, subjects: [{kind: User, name: auditor}]}
`
	widgets = `
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.example.com}, spec: {group: example.com, names: {kind: Widget, plural: widgets}, scope: Namespaced,
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}
`
	rejection = `
{apiVersion: flowcontrol.apiserver.k8s.io/v1, kind: PriorityLevelConfiguration, metadata: {name: nobody}, spec: {type: Limited, limited: {nominalConcurrencyShares: 0, lendablePercent: 0, borrowingLimitPercent: 0, limitResponse: {type: Reject}}}}
---
{apiVersion: flowcontrol.apiserver.k8s.io/v1, kind: FlowSchema, metadata: {name: nobody}, spec: {matchingPrecedence: 2, priorityLevelConfiguration: {name: nobody}, rules: [{subjects: [{kind: User, user: {name: auditor}}],
  resourceRules: [{verbs: ["*"], apiGroups: ["*"], resources: ["*"], clusterScope: true, namespaces: ["*"]}]}]}}
`
)

func newFaulty(t *testing.T) *faulty {
	t.Helper()
	// Pages come from etcd, so that a compaction matters as it does for an API server that was restarted.
	c := cluster.New(t, cluster.Options{APIServerFlags: []string{"--feature-gates=ListFromCacheSnapshot=false"}})
	access, err := c.ConfigFor(auditor, "system:authenticated")
	must(t, err)
	s := &faulty{Cluster: c, auditor: access, between: newBetween(t, access), filler: newFiller(c)}
	must(t, c.CreateNamespace(t.Context(), "shop", nil))
	apply(t, s.Cluster, auditorRights+"---"+widgets)
	var batch []string
	for i := range judged {
		batch = append(batch, fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: object-%03d, namespace: shop}}`, i),
			fmt.Sprintf(`{apiVersion: example.com/v1, kind: Widget, metadata: {name: object-%03d, namespace: shop}}`, i))
	}
	support.Eventually(t, "the objects are there", func() error {
		text, err := kubectl(t, s.Cluster, strings.Join(batch, "\n---\n"), "apply", "--server-side", "-f", "-")
		if err != nil {
			err = fmt.Errorf("%w: %.500s", err, text)
		}
		return err
	})
	return s
}

// eventually waits until the answer to the auditor's list of widgets is as wanted.
func (s *faulty) eventually(ctx context.Context, is func(*http.Response) bool) error {
	transport, err := rest.TransportFor(s.auditor)
	if err != nil {
		return err
	}
	return support.Poll(ctx, func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.auditor.Host+"/apis/example.com/v1/widgets", http.NoBody)
		if err != nil {
			return err
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if !is(response) {
			err = fmt.Errorf("widgets are answered with %s", response.Status)
		}
		return err
	})
}

func code(code int) func(*http.Response) bool {
	return func(r *http.Response) bool { return r.StatusCode == code }
}

// occupy makes a request of the auditor's that does not end before s.seat is closed: a priority level without shares serves one
// request at a time.
func (s *faulty) occupy(ctx context.Context) error {
	transport, err := rest.TransportFor(s.auditor)
	if err != nil {
		return err
	}
	var body *io.PipeReader
	body, s.seat = io.Pipe()
	begun := make(chan error, 2)
	// The API server asks for the body once the request is admitted.
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got100Continue: func() { begun <- nil }})
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.auditor.Host+"/api/v1/namespaces/shop/configmaps", body)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Expect", "100-continue")
	go func() {
		response, err := transport.RoundTrip(request)
		if err == nil {
			_ = response.Body.Close()
			err = fmt.Errorf("the request that does not end is answered with %s", response.Status)
		}
		begun <- err
	}()
	return <-begun
}

// kubectl is for goroutines that are not the test's own.
func (s *faulty) kubectl(ctx context.Context, manifest string, args ...string) error {
	command := s.Kubectl(ctx, args...)
	command.Stdin = strings.NewReader(manifest)
	if text, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w: %.500s", args, err, text)
	}
	return nil
}

// TestFaults: something happens between the first page of a list and the second. Each object is judged once, or the report
// says of which kind not all were.
func TestFaults(t *testing.T) {
	s := newFaulty(t)
	const config = "testdata/faults"
	for _, c := range []struct {
		name string
		// of is the resource whose second page waits for the fault.
		of    string
		fault func(ctx context.Context) error
		// answers is an answer that has to be seen, and answered sees all.
		answers  int
		answered func(code int) error
		// unjudged is what is said of widgets, which are not judged completely then.
		unjudged string
	}{
		{
			name: "the token expires", of: "configmaps", answers: http.StatusGone,
			fault: func(ctx context.Context) error {
				err := s.CreateNamespace(ctx, "later", nil)
				return errors.Join(err, s.filler.compact(ctx))
			},
		},
		{
			name: "the API server has too many requests", of: "widgets", answers: http.StatusTooManyRequests,
			fault: func(ctx context.Context) error {
				const level = "X-Kubernetes-Pf-Prioritylevel-Uid"
				before := ""
				if err := errors.Join(s.eventually(ctx, func(r *http.Response) bool {
					before = r.Header.Get(level)
					return before != ""
				}), s.kubectl(ctx, rejection, "apply", "-f", "-"), s.eventually(ctx, func(r *http.Response) bool {
					return r.Header.Get(level) != before
				})); err != nil {
					return err
				}
				return errors.Join(s.occupy(ctx), s.eventually(ctx, code(http.StatusTooManyRequests)))
			},
			answered: func(code int) error {
				if code != http.StatusTooManyRequests {
					return nil
				}
				return s.seat.Close()
			},
		},
		{
			name: "the API server restarts", of: "configmaps",
			fault: func(ctx context.Context) error { return errors.Join(s.APIServer().Kill(), s.APIServer().Start(ctx)) },
		},
		{
			name: "objects grow to 1.4 MB", of: "widgets",
			fault: func(ctx context.Context) error {
				for i := range 4 {
					object := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"object-%03d","namespace":"shop"},"text":%q}`, 40+20*i, strings.Repeat("x", 1_400_000))
					if err := s.kubectl(ctx, object, "replace", "-f", "-"); err != nil {
						return err
					}
				}
				return nil
			},
		},
		{
			name: "the namespace is being deleted", of: "widgets",
			fault: func(ctx context.Context) error {
				return s.Client().CoreV1().Namespaces().Delete(ctx, "shop", metav1.DeleteOptions{})
			},
		},
		{
			name: "the right is revoked", of: "widgets", unjudged: "missing right: list widgets.example.com",
			fault: func(ctx context.Context) error {
				return errors.Join(s.kubectl(ctx, "", "delete", "clusterrolebinding", auditor), s.eventually(ctx, code(http.StatusForbidden)))
			},
		},
		{
			name: "the definition is deleted", of: "widgets", unjudged: "its definition was deleted",
			fault: func(ctx context.Context) error {
				return errors.Join(s.kubectl(ctx, "", "delete", "crd", "widgets.example.com"), s.eventually(ctx, code(http.StatusNotFound)))
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			apply(t, s.Cluster, auditorRights)
			ctx := context.WithoutCancel(t.Context())
			var happened atomic.Bool
			s.expect(func(resource string, n int) {
				if resource == c.of && n == 2 && !happened.Swap(true) {
					if err := c.fault(ctx); err != nil {
						t.Error(err)
					}
				}
			}, func(code int) {
				if c.answered == nil {
					return
				}
				if err := c.answered(code); err != nil {
					t.Error(err)
				}
			})
			exit, out, messages := program(t, "audit", "--kubeconfig", s.kubeconfig, "--config", config, "-o", "ndjson")
			if !happened.Load() || c.answers != 0 && s.seen(c.answers) == 0 {
				t.Fatalf("nothing happened to a second page of %s: happened %v, %d answers %d", c.of, happened.Load(), s.seen(c.answers), c.answers)
			}
			counts, unjudged := map[string]int{}, ""
			for line := range strings.Lines(out) {
				var r struct {
					Status, Kind, Name string
					Report             *struct{ Unjudged []string }
				}
				must(t, json.Unmarshal([]byte(line), &r))
				if r.Report != nil {
					unjudged = strings.Join(r.Report.Unjudged, "\n")
					continue
				}
				if r.Status == "fail" {
					counts[r.Kind+"/"+r.Name]++
				}
			}
			for i := range judged {
				name := fmt.Sprintf("object-%03d", i)
				if n := counts["ConfigMap/"+name]; n != 1 {
					t.Errorf("the ConfigMap %s is judged %d times", name, n)
				}
				if n := counts["Widget.example.com/"+name] + counts["Widget/"+name]; n > 1 || n == 0 && c.unjudged == "" {
					t.Errorf("the Widget %s is judged %d times", name, n)
				}
			}
			want := 1
			if c.unjudged != "" {
				want = 2
			}
			if exit != want || !strings.Contains(unjudged, c.unjudged) || c.unjudged == "" && unjudged != "" {
				t.Errorf("exit code %d, unjudged %q, want %d and %q\n%s", exit, unjudged, want, c.unjudged, messages)
			}
		})
	}
}
