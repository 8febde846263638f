package cluster

import (
	"context"
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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/gatehouse-dev/gatehouse/test/support/logbuffer"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	configMaps = corev1.SchemeGroupVersion.WithKind("ConfigMap")
	limits     = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Limit"}
)

// connected is a Cluster with an API server, and its log.
func connected(t testing.TB, a *apiServer) (*Cluster, *logbuffer.Buffer) {
	t.Helper()
	log := &logbuffer.Buffer{}
	c, err := New(a.config(), "v1.2.3", slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		c.group.Wait()
	})
	return c, log
}

// eventually waits for what comes about by itself.
func eventually(t testing.TB, what string, condition func() error) {
	t.Helper()
	end := time.Now().Add(30 * time.Second)
	for {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(2 * time.Millisecond) // polls
	}
}

func says(t testing.TB, log *logbuffer.Buffer, texts ...string) {
	t.Helper()
	eventually(t, "the log", func() error {
		for _, text := range texts {
			if !strings.Contains(log.String(), text) {
				return fmt.Errorf("it does not say %q:\n%s", text, log)
			}
		}
		return nil
	})
}

// read waits until everything is read.
func read(t testing.TB, v *View) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := v.Wait(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestNamespaces(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t)
	a.put(t, namespacesPath, `{"metadata":{"name":"shop","labels":{"env":"prod"},"annotations":{"owner":"ann"}},"spec":{"finalizers":["kubernetes"]},"status":{"phase":"Active"}}`)
	c, _ := connected(t, a)
	v := c.view(WatchTargets{Namespaces: true})
	read(t, v)

	shop, known := v.Namespace("shop")
	if !known || shop.Labels["env"] != "prod" || shop.Annotations["owner"] != "ann" || shop.Status.Phase != corev1.NamespaceActive ||
		!slices.Equal(shop.Spec.Finalizers, []corev1.FinalizerName{corev1.FinalizerKubernetes}) {
		t.Errorf("Namespace = %+v, %v", shop, known)
	}
	if shop.ManagedFields != nil {
		t.Errorf("managed fields are kept: %v", shop.ManagedFields)
	}
	a.put(t, namespacesPath, `{"metadata":{"name":"shop","labels":{"env":"test"}}}`)
	eventually(t, "a changed label", func() error {
		if n, _ := v.Namespace("shop"); n.Labels["env"] != "test" || n.ManagedFields != nil {
			return fmt.Errorf("got %v", n.ObjectMeta)
		}
		return nil
	})
	a.drop(namespacesPath, "shop")
	eventually(t, "a namespace that is deleted", func() error {
		if _, known := v.Namespace("shop"); known {
			return errors.New("it is known")
		}
		return nil
	})
	if _, known := c.view(WatchTargets{}).Namespace("shop"); known {
		t.Error("a view that does not need namespaces knows one")
	}
}

func TestParams(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t)
	for _, text := range []string{
		`{"metadata":{"name":"b","namespace":"one","labels":{"is":"limit"}},"data":{"most":"2"}}`,
		`{"metadata":{"name":"c","namespace":"one"}}`,
		`{"metadata":{"name":"a","namespace":"one","labels":{"is":"limit"}},"data":{"most":"1"}}`,
		`{"metadata":{"name":"a","namespace":"two","labels":{"is":"limit"}}}`,
	} {
		a.put(t, configMapsPath, text)
	}
	c, _ := connected(t, a)
	v := c.view(WatchTargets{Targets: []Target{{Kind: configMaps}}})
	read(t, v)

	if namespaced, err := v.Namespaced(configMaps); err != nil || !namespaced {
		t.Errorf("Namespaced = %v, %v", namespaced, err)
	}
	object, err := v.Get(configMaps, "one", "b")
	if err != nil || object == nil || object.GetLabels()["is"] != "limit" || object.GetManagedFields() != nil {
		t.Errorf("Get = %v, %v", object, err)
	}
	if object, err := v.Get(configMaps, "two", "b"); err != nil || object != nil {
		t.Errorf("Get of what is not there = %v, %v", object, err)
	}
	for _, test := range []struct {
		namespace, selector, want string
	}{
		{"one", "", "one/a one/b one/c"},
		{"one", "is=limit", "one/a one/b"},
		{"two", "is=limit", "two/a"},
		{"two", "is=other", ""},
		{"three", "", ""},
	} {
		var selector labels.Selector
		if test.selector != "" {
			selector, _ = labels.Parse(test.selector)
		}
		list, err := v.List(configMaps, test.namespace, selector)
		if got := names(list); err != nil || got != test.want {
			t.Errorf("List(%q, %q) = %q, %v, want %q", test.namespace, test.selector, got, err, test.want)
		}
	}
	if data, known := v.ConfigMapData("one", "a"); !known || data["most"] != "1" {
		t.Errorf("ConfigMapData = %v, %v", data, known)
	}
	if data, known := v.ConfigMapData("three", "a"); known {
		t.Errorf("ConfigMapData of what is not there = %v", data)
	}
	if _, err := v.Get(limits, "", "x"); err == nil || !strings.Contains(err.Error(), "no binding names it") {
		t.Errorf("Get of what nobody needs = %v", err)
	}
}

func names(list []*unstructured.Unstructured) string {
	keys := make([]string, len(list))
	for i, object := range list {
		keys[i] = key(object.GetNamespace(), object.GetName())
	}
	return strings.Join(keys, " ")
}

// What nobody names is not asked for, and what is not named any more is asked for
// no longer.
func TestOnlyWhatIsNamedIsWatched(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t)
	a.put(t, configMapsPath, `{"metadata":{"name":"x","namespace":"one"}}`)
	a.put(t, configMapsPath, `{"metadata":{"name":"y","namespace":"one"}}`)
	a.put(t, configMapsPath, `{"metadata":{"name":"x","namespace":"two"}}`)
	c, _ := connected(t, a)
	first := c.view(WatchTargets{Targets: []Target{{configMaps, "one", "x"}}})
	read(t, first)
	if got := a.count("list /api/v1/namespaces/one/configmaps?metadata.name=x"); got != 1 {
		t.Errorf("the one object was listed %d times: %q", got, a.questions())
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
	a.put(t, configMapsPath, `{"metadata":{"name":"x","namespace":"one"},"data":{"new":"true"}}`)
	eventually(t, "the change", func() error {
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
	a.set(func() {
		if len(a.agents) != 1 || !a.agents["gatehouse/v1.2.3"] {
			t.Errorf("the API server's log names %v", a.agents)
		}
	})
	for _, what := range a.questions() {
		if strings.Contains(what, "/namespaces?") || strings.HasSuffix(what, "/namespaces") {
			t.Errorf("%q was asked, and nobody needs namespaces", what)
		}
	}
}

func TestKindComesAndGoes(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t)
	c, log := connected(t, a)
	v := c.view(WatchTargets{Targets: []Target{{Kind: limits}}})
	read(t, v) // that it is not there is an answer
	for _, getLive := range []func() error{
		func() error { _, err := v.Namespaced(limits); return err },
		func() error { _, err := v.Get(limits, "", "x"); return err },
		func() error { _, err := v.List(limits, "", nil); return err },
	} {
		const want = "failed to find resource referenced by paramKind: 'example.com/v1, Kind=Limit': the cluster does not serve example.com/v1"
		if err := getLive(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	says(t, log, "level=WARN", "cannot read from the cluster", "kind=Limit.v1.example.com", "the failurePolicy of the policies decides")

	a.set(func() { a.kinds[limitsPath] = served{"Limit", "limits", false} })
	a.put(t, limitsPath, `{"metadata":{"name":"x"},"spec":{"most":1}}`)
	eventually(t, "the object of a kind that is new", func() error {
		object, err := v.Get(limits, "", "x")
		if err == nil && object == nil {
			err = errors.New("it is not there")
		}
		return err
	})
	if namespaced, err := v.Namespaced(limits); err != nil || namespaced {
		t.Errorf("Namespaced = %v, %v", namespaced, err)
	}

	a.set(func() { delete(a.kinds, limitsPath) })
	eventually(t, "the kind is gone", func() error {
		_, err := v.Get(limits, "", "x")
		if err == nil {
			return errors.New("its object is still there")
		}
		return nil
	})
}

func TestKindsThatCannotBeParams(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t)
	a.set(func() { a.kinds[limitsPath] = served{"Limit", "limits", false} })
	c, _ := connected(t, a)
	for _, test := range []struct {
		name   string
		target Target
		want   string
	}{
		{"no such kind in the version", Target{Kind: schema.GroupVersionKind{Version: "v1", Kind: "Limit"}}, "the cluster serves v1 without that kind"},
		{"no such version", Target{Kind: schema.GroupVersionKind{Group: "example.com", Version: "v2", Kind: "Limit"}}, "the cluster does not serve example.com/v2"},
		{"no version", Target{Kind: schema.GroupVersionKind{Kind: "Limit"}}, "it is not a kind"},
		{"path for a version", Target{Kind: schema.GroupVersionKind{Group: "example.com", Version: "../../api/v1", Kind: "ConfigMap"}}, "it is not a kind"},
		{"nothing at all", Target{}, "it is not a kind"},
		{"namespace of a kind that is in none", Target{Kind: limits, Namespace: "one"}, "objects of the kind are in no namespace"},
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

func TestMissingRight(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t)
	a.put(t, configMapsPath, `{"metadata":{"name":"x","namespace":"one"}}`)
	a.set(func() { a.forbidden["list configmaps"] = true })
	c, log := connected(t, a)
	v := c.view(WatchTargets{Namespaces: true, Targets: []Target{{configMaps, "one", "x"}}})
	hint := `a Role in namespace "one" must allow get, list and watch of configmaps`
	eventually(t, "the error", func() error {
		_, err := v.Get(configMaps, "one", "x")
		if err == nil || !strings.Contains(err.Error(), `cannot list resource "configmaps"`) || !strings.Contains(err.Error(), hint) {
			return fmt.Errorf("it is %w", err)
		}
		return nil
	})
	says(t, log, "level=ERROR", `cannot list resource`, "verb=list", `a Role in namespace \"one\" must allow get, list and watch of configmaps`)
	err := c.Ready()
	if err == nil || !strings.Contains(err.Error(), `ConfigMap.v1 "x" in namespace "one"`) || !strings.Contains(err.Error(), hint) {
		t.Errorf("Ready = %v", err)
	}
	c.begin = time.Now().Add(-readyTimeout - time.Second)
	eventually(t, "params do not keep it from being ready for ever", c.Ready)
	says(t, log, "ready, without everything that policies and profiles look up")
	if n := strings.Count(log.String(), "level=ERROR msg=\"cannot read"); n != 1 {
		t.Errorf("the missing right is logged %d times, want once:\n%s", n, log)
	}

	a.set(func() { delete(a.forbidden, "list configmaps") })
	read(t, v)
	if object, err := v.Get(configMaps, "one", "x"); err != nil || object == nil {
		t.Errorf("Get = %v, %v", object, err)
	}
	says(t, log, "reading from the cluster again")
	if got := value(t, c, "gatehouse_cluster_watch_errors_total", "forbidden"); got < 1 {
		t.Errorf("%v errors are counted", got)
	}
}

func TestNamespacesAreVital(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t)
	a.set(func() { a.forbidden["list namespaces"] = true })
	c, _ := connected(t, a)
	v := c.view(WatchTargets{Namespaces: true})
	c.begin = time.Now().Add(-time.Hour)
	eventually(t, "the reason", func() error {
		err := c.Ready()
		if err == nil || !strings.Contains(err.Error(), "a ClusterRole must allow get, list and watch of namespaces") {
			return fmt.Errorf("Ready = %w", err)
		}
		return nil
	})
	if _, known := v.Namespace("one"); known {
		t.Error("a namespace is known")
	}
	a.set(func() { delete(a.forbidden, "list namespaces") })
	read(t, v)
	if err := c.Ready(); err != nil {
		t.Error(err)
	}
}

func TestAPIServerIsAway(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t)
	a.put(t, namespacesPath, `{"metadata":{"name":"one","labels":{"env":"prod"}}}`)
	a.put(t, configMapsPath, `{"metadata":{"name":"x","namespace":"one"},"data":{"a":"1"}}`)
	c, log := connected(t, a)
	v := c.view(WatchTargets{Namespaces: true, Targets: []Target{{Kind: configMaps}}})
	read(t, v)
	if err := c.Ready(); err != nil {
		t.Fatal(err)
	}

	a.stop()
	says(t, log, "level=WARN", "kind=Namespace.v1", "kind=ConfigMap.v1", "what was read before is in use")
	if n, known := v.Namespace("one"); !known || n.Labels["env"] != "prod" {
		t.Errorf("Namespace = %v, %v", n, known)
	}
	if _, known := v.Namespace("two"); known {
		t.Error("an unknown namespace is known")
	}
	if data, known := v.ConfigMapData("one", "x"); !known || data["a"] != "1" {
		t.Errorf("ConfigMapData = %v, %v", data, known)
	}
	if object, err := v.Get(configMaps, "one", "y"); err != nil || object != nil {
		t.Errorf("what was not there is an error now: %v, %v", object, err)
	}
	if err := c.Ready(); err != nil {
		t.Errorf("not ready any more: %v", err)
	}

	a.put(t, configMapsPath, `{"metadata":{"name":"x","namespace":"one"},"data":{"a":"2"}}`)
	a.drop(namespacesPath, "one")
	a.start(t)
	eventually(t, "what happened meanwhile", func() error {
		_, known := v.Namespace("one")
		if data, _ := v.ConfigMapData("one", "x"); data["a"] != "2" || known {
			return fmt.Errorf("data is %v, the namespace is known: %v", data, known)
		}
		return nil
	})
	says(t, log, "reading from the cluster again")
}

// An object whose event is on the way is found, and one that does not exist is
// not asked for at every review.
func TestObjectsThatAreNew(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t)
	c, _ := connected(t, a)
	v := c.view(WatchTargets{Namespaces: true, Targets: []Target{{Kind: configMaps}}})
	read(t, v)
	eventually(t, "the watches", func() error {
		if a.count("watch "+namespacesPath) == 0 || a.count("watch "+configMapsPath) == 0 {
			return errors.New("they have not begun")
		}
		return nil
	})
	a.set(func() { a.late = true })
	a.put(t, namespacesPath, `{"metadata":{"name":"new","labels":{"env":"prod"}}}`)
	a.put(t, configMapsPath, `{"metadata":{"name":"x","namespace":"new"}}`)
	// No event comes, and an answer that takes longer than askTime counts for none.
	eventually(t, "a new namespace", func() error {
		if n, known := v.Namespace("new"); !known || n.Labels["env"] != "prod" || n.ManagedFields != nil {
			return fmt.Errorf("Namespace = %v, %v", n, known)
		}
		return nil
	})
	eventually(t, "a new object", func() error {
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
	if got := a.count("get /api/v1/namespaces/new/configmaps/none"); got < 1 || got > most {
		t.Errorf("an object that does not exist was asked for %d times by 100 reviews, want 1 to %d", got, most)
	}
}

func TestAPIServerHangs(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t)
	c, _ := connected(t, a)
	v := c.view(WatchTargets{Namespaces: true})
	read(t, v)
	a.set(func() { a.hung = true })
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
	a := newAPIServer(t)
	c, _ := connected(t, a)
	v := c.view(WatchTargets{Targets: []Target{{Kind: configMaps}}})
	read(t, v)
	eventually(t, "the watch", func() error {
		if a.count("watch "+configMapsPath) == 0 {
			return errors.New("it has not begun")
		}
		return nil
	})
	begin := time.Now()
	for i := range 1000 {
		if _, err := v.Get(configMaps, "one", fmt.Sprint("x", i)); err != nil {
			t.Fatal(err)
		}
	}
	most := liveGetsPerSecond * (2 + int(time.Since(begin)/time.Second))
	got := 0
	for i := range 1000 {
		got += a.count(fmt.Sprint("get /api/v1/namespaces/one/configmaps/x", i))
	}
	if got > most {
		t.Errorf("%d calls for 1000 names, want at most %d", got, most)
	}
}

// Whoever sends names of namespaces that do not exist uses up what his own address may ask for: a namespace that was just
// created is found for everybody else, and what is asked for and remembered is bounded.
func TestFloodOfInventedNamespaces(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t)
	c, _ := connected(t, a)
	v := c.view(WatchTargets{Namespaces: true})
	read(t, v)
	eventually(t, "the watch", func() error {
		if a.count("watch "+namespacesPath) == 0 {
			return errors.New("it has not begun")
		}
		return nil
	})
	a.set(func() { a.late = true }) // no events come
	stranger, other, third := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.2/32"), netip.MustParsePrefix("192.0.2.3/32")
	isAbsent := func(i int) string { return fmt.Sprint("absent-", i) }
	flood := func(from, to int) {
		for i := from; i < to; i++ {
			c.ReadNamespace(isAbsent(i), stranger, false)
		}
	}
	begin := time.Now()
	flood(0, 1000)
	for i, caller := range []struct {
		client    netip.Prefix
		certified bool
	}{{other, false}, {third, true}, {other, false}} {
		name := fmt.Sprint("new-", i)
		a.put(t, namespacesPath, fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
		c.ReadNamespace(name, caller.client, caller.certified)
		if a.count("get "+namespacesPath+"/"+name) != 1 {
			t.Errorf("%s was not asked for", name)
		}
		eventually(t, name, func() error { // an answer that takes longer than askTime counts for none
			c.ReadNamespace(name, caller.client, caller.certified)
			if n, known := v.Namespace(name); !known || n.Name != name {
				return fmt.Errorf("Namespace = %v, %v", n, known)
			}
			return nil
		})
		flood(1000*(i+1), 1000*(i+2))
	}
	most := clientGetsPerSecond * (3 + int(time.Since(begin)/time.Second))
	got := 0
	for i := range 4000 {
		got += a.count("get " + namespacesPath + "/" + isAbsent(i))
	}
	if got == 0 || got > most {
		t.Errorf("%d calls for 4000 names, want 1 to %d", got, most)
	}
	if n := len(c.liveGetter.absent.Keys()); n > most {
		t.Errorf("%d names are remembered, want at most %d", n, most)
	}

	// What is not there has no params.
	params := c.view(WatchTargets{Namespaces: true, Targets: []Target{{Kind: configMaps}}})
	read(t, params)
	for i := range 100 {
		if object, err := params.Get(configMaps, isAbsent(i), "x"); err != nil || object != nil {
			t.Errorf("Get = %v, %v", object, err)
		}
		if n := a.count("get /api/v1/namespaces/" + isAbsent(i) + "/configmaps/x"); n > 0 {
			t.Errorf("a param in the namespace %s was asked for", isAbsent(i))
		}
	}
}

// Anybody who reaches the server can send names that no object can have.
func TestNamesThatNothingCanHave(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t)
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
	if n := len(v.liveGetter.absent.Keys()); n != 0 {
		t.Errorf("%d such names are remembered", n)
	}
	for _, what := range a.questions() {
		if strings.HasPrefix(what, "get "+namespacesPath) {
			t.Errorf("it was asked for %q", what)
		}
	}
}

func TestAuthorizer(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t)
	c, log := connected(t, a)
	var p policy.Spec
	c.Provide(&p, &sidecar.Spec{})
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
	if _, err := getLive(t.Context(), "alice"); err != nil || a.count("create "+reviewsPath) != 2 {
		t.Errorf("%v, and %d reviews for two users", err, a.count("create "+reviewsPath))
	}

	a.set(func() { a.forbidden["create subjectaccessreviews"] = true })
	for range 3 {
		decision, err := getLive(t.Context(), "carol")
		if decision == authorizer.DecisionAllow || err == nil || !strings.Contains(err.Error(), "cannot ask the cluster who may do this") ||
			!strings.Contains(err.Error(), "system:auth-delegator") {
			t.Errorf("without the right: %v, %v", decision, err)
		}
	}
	if n := strings.Count(log.String(), "cannot ask the cluster who may do what"); n != 1 {
		t.Errorf("it is logged %d times:\n%s", n, log)
	}
	a.stop()
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

func TestProvide(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t)
	c, _ := connected(t, a)
	p := policy.Spec{
		Policies: []policy.Policy{{}},
		Objects:  directory{},
	}
	s := sidecar.Spec{Namespaces: directory{}, ConfigMaps: directory{}, Known: []sidecar.KnownNamespace{{}}}
	v := c.Provide(&p, &s)
	if p.Objects != policy.Objects(v) || s.Namespaces != sidecar.Namespaces(v) || s.ConfigMaps != sidecar.ConfigMaps(v) || s.Known != nil || p.Authorizer == nil {
		t.Errorf("something is looked up in the directory: %+v, %+v", p, s)
	}
	if v.namespaces == nil {
		t.Error("a policy without namespaces")
	}
}

// directory are the objects of a directory, of which nothing is wanted.
type directory struct {
	policy.Objects
	sidecar.ConfigMaps
}

func (directory) Namespace(string) (*corev1.Namespace, bool) { return nil, false }

func TestMetrics(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t)
	for _, name := range []string{"a", "b"} {
		a.put(t, configMapsPath, `{"metadata":{"namespace":"one","name":"`+name+`"}}`)
	}
	c, _ := connected(t, a)
	v := c.view(WatchTargets{Targets: []Target{{configMaps, "one", "a"}, {configMaps, "one", "b"}, {Kind: limits}}})
	read(t, v)
	if err := prometheus.NewPedanticRegistry().Register(c); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, label string
		want        float64
	}{
		{"gatehouse_cluster_objects", "ConfigMap.v1", 2},
		{"gatehouse_cluster_synced", "ConfigMap.v1", 1},
		{"gatehouse_cluster_objects", "Limit.v1.example.com", 0},
		{"gatehouse_cluster_synced", "Limit.v1.example.com", 0},
	} {
		if got := value(t, c, test.name, test.label); got != test.want {
			t.Errorf("%s of %s is %v, want %v", test.name, test.label, got, test.want)
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
