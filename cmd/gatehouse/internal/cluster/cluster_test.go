package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/internal/clients"
	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
	"github.com/gatehouse-dev/gatehouse/test/support/logbuffer"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	configMaps = corev1.SchemeGroupVersion.WithKind("ConfigMap")
	limits     = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Limit"}
)

// The resources of the API server, and the paths of their lists.
var (
	namespaceResource = fakeapi.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("namespaces"), Kind: "Namespace"}
	configMapResource = fakeapi.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("configmaps"), Kind: "ConfigMap", Namespaced: true}
	limitResource     = fakeapi.Resource{GroupVersionResource: limits.GroupVersion().WithResource("limits"), Kind: "Limit"}
)

const (
	namespacesPath = "/api/v1/namespaces"
	configMapsPath = "/api/v1/configmaps"
	reviewsPath    = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
)

// newAPIServer returns an API server of namespaces and ConfigMaps that hold nothing.
func newAPIServer() *fakeapi.Server {
	a := fakeapi.New(namespaceResource, configMapResource)
	a.Intercept = review
	return a
}

// review allows alice of the staff everything.
func review(r *fakeapi.Request) (any, error) {
	if r.Resource != "subjectaccessreviews" {
		return nil, nil
	}
	var review authorizationv1.SubjectAccessReview
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(r.Body, nil, &review); err != nil {
		return nil, err
	}
	review.TypeMeta = metav1.TypeMeta{Kind: "SubjectAccessReview", APIVersion: "authorization.k8s.io/v1"}
	review.Status.Allowed = review.Spec.User == "alice" && slices.Contains(review.Spec.Groups, "staff")
	return review, nil
}

// forbid has the API server refuse requests of a verb for a resource, and restore has it refuse nothing.
func forbid(a *fakeapi.Server, verb, resource string) {
	a.Update(func() {
		a.Intercept = func(r *fakeapi.Request) (any, error) {
			if r.Verb == verb && r.Resource == resource {
				return nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, r.Name, fmt.Errorf("cannot %s resource %q", verb, resource))
			}
			return review(r)
		}
	})
}

func restore(a *fakeapi.Server) { a.Update(func() { a.Intercept = review }) }

// disconnect ends every call, and refuses connections.
func disconnect(a *fakeapi.Server) {
	a.Update(func() {
		a.Intercept = func(*fakeapi.Request) (any, error) { return nil, errors.New("connection refused") }
	})
}

// put creates or updates an object, which is metadata and more, as JSON.
func put(t testing.TB, a *fakeapi.Server, kind schema.GroupVersionKind, text string) {
	t.Helper()
	object := map[string]any{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind}
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	metadata, _ := object["metadata"].(map[string]any)
	metadata["managedFields"] = []any{map[string]any{"manager": "somebody", "operation": "Update"}}
	a.Put(object)
}

// began waits for the watch of a list.
func began(t testing.TB, a *fakeapi.Server, path string) {
	t.Helper()
	support.Eventually(t, "the watch", func() error {
		if a.Count("watch "+path) == 0 {
			return errors.New("it has not begun")
		}
		return nil
	})
}

func every(*fakeapi.Request) bool { return true }

// connected is a Cluster with an API server, and its log.
func connected(t testing.TB, a *fakeapi.Server) (*Cluster, *logbuffer.Buffer) {
	t.Helper()
	log := &logbuffer.Buffer{}
	c, err := New(a.Config(""), "v1.2.3", slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		c.group.Wait()
	})
	return c, log
}

// read waits until everything is read.
func read(t testing.TB, v *View) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), support.Deadline)
	defer cancel()
	if err := v.Wait(ctx); err != nil {
		t.Fatal(err)
	}
}

// What nobody names is not asked for, and what is not named any more is asked for
// no longer.
func TestOnlyWhatIsNamedIsWatched(t *testing.T) {
	t.Parallel()
	a := newAPIServer()
	put(t, a, configMaps, `{"metadata":{"name":"x","namespace":"one"}}`)
	put(t, a, configMaps, `{"metadata":{"name":"y","namespace":"one"}}`)
	put(t, a, configMaps, `{"metadata":{"name":"x","namespace":"two"}}`)
	c, _ := connected(t, a)
	first := c.view(WatchTargets{Targets: []Target{{configMaps, "one", "x"}}})
	read(t, first)
	if got := a.Count("list /api/v1/namespaces/one/configmaps?metadata.name=x"); got != 1 {
		t.Errorf("the one object was listed %d times", got)
	}
	if object, err := first.Get(configMaps, "one", "x"); err != nil || object == nil {
		t.Errorf("Get = %v, %v", object, err)
	}
	if _, err := first.Get(configMaps, "two", "x"); err == nil {
		t.Error("an object of another namespace is looked up")
	}
	if _, err := first.List(configMaps, "one", nil); err == nil {
		t.Error("a list of one object is taken for that of all")
	}

	second := c.view(WatchTargets{Targets: []Target{{configMaps, "", "x"}}})
	read(t, second)
	c.Keep(second)
	for _, namespace := range []string{"one", "two"} {
		if object, err := second.Get(configMaps, namespace, "x"); err != nil || object == nil {
			t.Errorf("Get = %v, %v", object, err)
		}
	}
	put(t, a, configMaps, `{"metadata":{"name":"x","namespace":"one"},"data":{"new":"true"}}`)
	support.Eventually(t, "the change", func() error {
		if data, _ := second.ConfigMapData("one", "x"); data["new"] != "true" {
			return fmt.Errorf("data is %v", data)
		}
		return nil
	})
	if object, err := first.Get(configMaps, "one", "x"); err != nil || object == nil {
		t.Errorf("a review in progress lost its param: %v, %v", object, err)
	}
	if len(c.followers()) != 1 {
		t.Errorf("%d followers run, want 1", len(c.followers()))
	}
	if third := c.view(WatchTargets{Targets: []Target{{configMaps, "", "x"}}}); third.all[0] != second.all[0] {
		t.Error("what was read for one configuration is read again for the next")
	}
	for _, r := range a.Requests(every) {
		if r.UserAgent != "gatehouse/v1.2.3" {
			t.Errorf("the API server's log names %q", r.UserAgent)
		}
		if r.Resource == "namespaces" {
			t.Errorf("%q was asked, and nobody needs namespaces", r.String())
		}
	}
}

func TestKindsThatCannotBeParams(t *testing.T) {
	t.Parallel()
	a := newAPIServer()
	a.Serve(limitResource)
	c, _ := connected(t, a)
	for _, test := range []struct {
		name   string
		target Target
		want   string
	}{
		{"no such kind in the version", Target{Kind: schema.GroupVersionKind{Version: "v1", Kind: "Limit"}}, "the cluster serves v1 without that kind"},
		{"no such version", Target{Kind: schema.GroupVersionKind{Group: "example.com", Version: "v2", Kind: "Limit"}}, "the cluster does not serve example.com/v2"},
		{"no version", Target{Kind: schema.GroupVersionKind{Kind: "Limit"}}, "group or version is not a valid name"},
		{"path for a version", Target{Kind: schema.GroupVersionKind{Group: "example.com", Version: "../../api/v1", Kind: "ConfigMap"}}, "group or version is not a valid name"},
		{"nothing at all", Target{}, "group or version is not a valid name"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			v := c.view(WatchTargets{Targets: []Target{test.target}})
			read(t, v)
			_, err := v.Get(test.target.Kind, test.target.Namespace, "x")
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestNamespacesAreVital(t *testing.T) {
	t.Parallel()
	a := newAPIServer()
	forbid(a, "list", "namespaces")
	c, _ := connected(t, a)
	v := c.view(WatchTargets{Namespaces: true})
	c.begin = time.Now().Add(-time.Hour)
	support.Eventually(t, "the reason", func() error {
		err := c.Ready()
		if err == nil || !strings.Contains(err.Error(), "the ClusterRole gatehouse-context must allow get, list and watch of namespaces") {
			return fmt.Errorf("Ready = %w", err)
		}
		return nil
	})
	if _, known := v.Namespace("one"); known {
		t.Error("a namespace is known")
	}
	restore(a)
	read(t, v)
	if err := c.Ready(); err != nil {
		t.Error(err)
	}
}

// An object whose event is on the way is found, and one that does not exist is
// not asked for at every review.
func TestObjectsThatAreNew(t *testing.T) {
	t.Parallel()
	a := newAPIServer()
	c, _ := connected(t, a)
	v := c.view(WatchTargets{Namespaces: true, Targets: []Target{{Kind: configMaps}}})
	read(t, v)
	began(t, a, namespacesPath)
	began(t, a, configMapsPath)
	a.Update(func() { a.Silent = true })
	put(t, a, namespaceKind, `{"metadata":{"name":"new","labels":{"env":"prod"}}}`)
	put(t, a, configMaps, `{"metadata":{"name":"x","namespace":"new"}}`)
	// No event comes, and an answer that takes longer than askTime counts for none.
	support.Eventually(t, "a new namespace", func() error {
		if n, known := v.Namespace("new"); !known || n.Labels["env"] != "prod" || n.ManagedFields != nil {
			return fmt.Errorf("Namespace = %v, %v", n, known)
		}
		return nil
	})
	support.Eventually(t, "a new object", func() error {
		if object, err := v.Get(configMaps, "new", "x"); err != nil || object == nil || object.GetManagedFields() != nil {
			return fmt.Errorf("Get = %v, %w", object, err)
		}
		return nil
	})
	begin := time.Now()
	for range 100 {
		if object, err := v.Get(configMaps, "new", "none"); err != nil || object != nil {
			t.Errorf("Get = %v, %v", object, err)
		}
	}
	most := 1 + int(time.Since(begin)/absentTTL)
	if got := a.Count("get /api/v1/namespaces/new/configmaps/none"); got < 1 || got > most {
		t.Errorf("an object that does not exist was asked for %d times by 100 reviews, want 1 to %d", got, most)
	}
}

func TestAPIServerHangs(t *testing.T) {
	t.Parallel()
	a := newAPIServer()
	c, _ := connected(t, a)
	v := c.view(WatchTargets{Namespaces: true})
	read(t, v)
	a.Update(func() { a.Delay = time.Hour })
	begin := time.Now()
	for range 50 {
		if _, known := v.Namespace("new"); known {
			t.Fatal("a namespace is known that nobody told of")
		}
	}
	if took := time.Since(begin); took > 10*liveTimeout {
		t.Errorf("50 reviews waited %s for an API server that hangs", took)
	}
}

func TestFloodOfUnknownNames(t *testing.T) {
	t.Parallel()
	a := newAPIServer()
	c, _ := connected(t, a)
	v := c.view(WatchTargets{Targets: []Target{{Kind: configMaps}}})
	read(t, v)
	began(t, a, configMapsPath)
	begin := time.Now()
	for i := range 1000 {
		if _, err := v.Get(configMaps, "one", fmt.Sprint("x", i)); err != nil {
			t.Fatal(err)
		}
	}
	most := liveGetsPerSecond * (2 + int(time.Since(begin)/time.Second))
	got := len(a.Requests(func(r *fakeapi.Request) bool { return r.Verb == "get" && r.Resource == "configmaps" }))
	if got > most {
		t.Errorf("%d calls for 1000 names, want at most %d", got, most)
	}
}

// Whoever sends names of namespaces that do not exist uses up what his own address may ask for: a namespace that was just
// created is found for everybody else, and what is asked for and remembered is bounded.
func TestFloodOfInventedNamespaces(t *testing.T) {
	t.Parallel()
	a := newAPIServer()
	c, _ := connected(t, a)
	v := c.view(WatchTargets{Namespaces: true})
	read(t, v)
	began(t, a, namespacesPath)
	a.Update(func() { a.Silent = true })
	var accounts clients.Table
	stranger, other := accounts.Open(netip.MustParsePrefix("192.0.2.1/32"), ""), accounts.Open(netip.MustParsePrefix("192.0.2.2/32"), "")
	certified := accounts.Open(netip.Prefix{}, "CN=kube-apiserver")
	isAbsent := func(i int) string { return fmt.Sprint("absent-", i) }
	flood := func(from, to int) {
		for i := from; i < to; i++ {
			c.ReadNamespace(isAbsent(i), stranger)
		}
	}
	begin := time.Now()
	flood(0, 1000)
	for i, client := range []*clients.Client{other, certified, other} {
		name := fmt.Sprint("new-", i)
		put(t, a, namespaceKind, fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
		c.ReadNamespace(name, client)
		if a.Count("get "+namespacesPath+"/"+name) != 1 {
			t.Errorf("%s was not asked for", name)
		}
		support.Eventually(t, name, func() error { // an answer that takes longer than askTime counts for none
			c.ReadNamespace(name, client)
			if n, known := v.Namespace(name); !known || n.Name != name {
				return fmt.Errorf("Namespace = %v, %v", n, known)
			}
			return nil
		})
		flood(1000*(i+1), 1000*(i+2))
	}
	const clientGetsPerSecond = 5
	most := clientGetsPerSecond * (3 + int(time.Since(begin)/time.Second))
	got := len(a.Requests(func(r *fakeapi.Request) bool { return r.Verb == "get" && strings.HasPrefix(r.Name, "absent-") }))
	if got == 0 || got > most {
		t.Errorf("%d calls for 4000 names, want 1 to %d", got, most)
	}
	if n := len(c.liveGetter.known.Keys()); n > most {
		t.Errorf("%d names are remembered, want at most %d", n, most)
	}

	// What is not there has no params.
	params := c.view(WatchTargets{Namespaces: true, Targets: []Target{{Kind: configMaps}}})
	read(t, params)
	for i := range 100 {
		if object, err := params.Get(configMaps, isAbsent(i), "x"); err != nil || object != nil {
			t.Errorf("Get = %v, %v", object, err)
		}
		if n := a.Count("get /api/v1/namespaces/" + isAbsent(i) + "/configmaps/x"); n > 0 {
			t.Errorf("a param in the namespace %s was asked for", isAbsent(i))
		}
	}
}

// Anybody who reaches the server can send names that no object can have.
func TestNamesThatNothingCanHave(t *testing.T) {
	t.Parallel()
	a := newAPIServer()
	c, _ := connected(t, a)
	v := c.view(WatchTargets{Namespaces: true, Targets: []Target{{Kind: configMaps}}})
	read(t, v)
	for _, name := range []string{".", "..", "../x", "a/b", "a%2fb", "a?b=c", "ä", "a\x00b", "a b", strings.Repeat("x", 1<<20)} {
		if n, known := v.Namespace(name); known {
			t.Errorf("Namespace(%.20q) = %v", name, n)
		}
		if object, err := v.Get(configMaps, name, "x"); err != nil || object != nil {
			t.Errorf("Get(%.20q) = %v, %v", name, object, err)
		}
	}
	if n := len(v.liveGetter.known.Keys()); n != 0 {
		t.Errorf("%d such names are remembered", n)
	}
	if asked := a.Requests(func(r *fakeapi.Request) bool { return r.Verb == "get" && r.Name != "" }); len(asked) > 0 {
		t.Errorf("it was asked for %v", asked)
	}
}

func TestAuthorizer(t *testing.T) {
	t.Parallel()
	a := newAPIServer()
	c, log := connected(t, a)
	var p policy.Spec
	c.Provide(&p, &mutation.Spec{}, &sidecar.Spec{})
	getLive := func(ctx context.Context, name string) (authorizer.Decision, error) {
		decision, _, err := p.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
			User: &user.DefaultInfo{Name: name, Groups: []string{"staff"}}, Verb: "delete", Resource: "pods", ResourceRequest: true,
		})
		return decision, err
	}
	for name, want := range map[string]authorizer.Decision{"alice": authorizer.DecisionAllow, "bob": authorizer.DecisionNoOpinion} {
		if got, err := getLive(t.Context(), name); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", name, got, err, want)
		}
	}
	if _, err := getLive(t.Context(), "alice"); err != nil || a.Count("create "+reviewsPath) != 2 {
		t.Errorf("%v, and %d reviews for two users", err, a.Count("create "+reviewsPath))
	}

	forbid(a, "create", "subjectaccessreviews")
	for range 3 {
		decision, err := getLive(t.Context(), "carol")
		if decision == authorizer.DecisionAllow || err == nil || !strings.Contains(err.Error(), "cannot check authorization with the API server") ||
			!strings.Contains(err.Error(), "system:auth-delegator") {
			t.Errorf("without the right: %v, %v", decision, err)
		}
	}
	if n := strings.Count(log.String(), "the authorizer of policies"); n != 1 {
		t.Errorf("it is logged %d times:\n%s", n, log)
	}
	disconnect(a)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if decision, err := getLive(ctx, "dan"); decision == authorizer.DecisionAllow || err == nil {
		t.Errorf("without an API server: %v, %v", decision, err)
	}
	for result, want := range map[string]float64{"allowed": 2, "denied": 1, "error": 4} {
		if got := value(t, c, "gatehouse_cluster_access_checks_total", result); got != want {
			t.Errorf("%v checks were %s, want %v", got, result, want)
		}
	}
}

// value is the sum of a metric's samples that have a label of that value.
func value(t *testing.T, c *Cluster, name, label string) float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, pair := range metric.GetLabel() {
				if family.GetName() == name && pair.GetValue() == label {
					sum += metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}
