package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/internal/kube"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/test/support/certstest"
)

const secretPath = "/api/v1/namespaces/system/secrets/ca"

func secretIn(a *certstest.APIServer) *SecretStore {
	return NewSecretStore(SecretStoreConfig{Client: a.Client(), Namespace: "system", Name: "ca"})
}

// text is data as texts.
func text(data map[string][]byte) map[string]string {
	texts := map[string]string{}
	for key, value := range data {
		texts[key] = string(value)
	}
	return texts
}

func bytesOf(texts map[string]string) map[string][]byte {
	data := map[string][]byte{}
	for key, value := range texts {
		data[key] = []byte(value)
	}
	return data
}

func mustLoad(t testing.TB, s Store) Record {
	t.Helper()
	record, err := s.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return record
}

// testStore is what every Store has to do.
func testStore(t *testing.T, open func() Store) {
	t.Helper()
	s, other := open(), open()
	empty := mustLoad(t, s)
	if empty.Exists || len(empty.Data) != 0 {
		t.Fatalf("got %+v of an empty store", empty)
	}
	first := map[string]string{rotation.KeyState: "1", rotation.KeyCurrentCert: "old", rotation.KeyPendingKey: "going"}
	if err := s.Save(t.Context(), empty, bytesOf(first)); err != nil {
		t.Fatal(err)
	}
	if err := other.Save(t.Context(), empty, bytesOf(first)); !errors.Is(err, ErrConflict) {
		t.Fatalf("created twice: %v", err)
	}
	old := mustLoad(t, other)
	if !old.Exists || !maps.Equal(text(old.Data), first) {
		t.Fatalf("got %v, want %v", text(old.Data), first)
	}
	second := map[string]string{rotation.KeyState: "2", rotation.KeyCurrentCert: "new"}
	if err := other.Save(t.Context(), old, bytesOf(second)); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(t.Context(), old, bytesOf(first)); !errors.Is(err, ErrConflict) {
		t.Fatalf("replaced what is not there any more: %v", err)
	}
	now := mustLoad(t, s)
	if !maps.Equal(text(now.Data), second) {
		t.Errorf("got %v, want %v", text(now.Data), second)
	}
	if now.Version == old.Version {
		t.Error("the version stayed the same")
	}
}

// testRace is ten writers, each of which adds one to a number a few times.
func testRace(t *testing.T, open func() Store) {
	t.Helper()
	const writers, each = 10, 3
	var group sync.WaitGroup
	for range writers {
		s := open()
		group.Go(func() {
			for added := 0; added < each; {
				record, err := s.Load(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				count := len(record.Data[rotation.KeyState])
				err = s.Save(t.Context(), record, map[string][]byte{rotation.KeyState: bytes.Repeat([]byte("1"), count+1)})
				switch {
				case err == nil:
					added++
				case !errors.Is(err, ErrConflict):
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	if got := len(mustLoad(t, open()).Data[rotation.KeyState]); got != writers*each {
		t.Errorf("%d of %d changes are there", got, writers*each)
	}
}

func TestMemoryStore(t *testing.T) {
	t.Parallel()
	var one, ten MemoryStore
	testStore(t, func() Store { return &one })
	testRace(t, func() Store { return &ten })
}

func TestSecretStore(t *testing.T) {
	t.Parallel()
	one, ten := certstest.NewAPIServer(t), certstest.NewAPIServer(t)
	testStore(t, func() Store { return secretIn(one) })
	testRace(t, func() Store { return secretIn(ten) })
	created := one.Get(secretPath)
	if labels := fmt.Sprint(certstest.Meta(created)["labels"]); created["type"] != "Opaque" || labels != "map[app.kubernetes.io/managed-by:gatehouse gatehouse.dev/certificates:ca]" {
		t.Errorf("got %v", created)
	}
}

func TestSecretStoreLoads(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, secret string
		want         map[string]string
		foreign      string
	}{
		{"nothing", ``, nil, ""},
		{"made in advance", `{"type":"Opaque"}`, map[string]string{}, ""},
		{"made in advance, with labels", `{"type":"Opaque","data":{},"metadata":{"labels":{"app":"x"}}}`, map[string]string{}, ""},
		{"ours", `{"type":"Opaque","data":{"state.json":"eA=="}}`, map[string]string{"state.json": "x"}, ""},
		{"damaged", `{"type":"Opaque","data":{"current.crt":"eA=="}}`, map[string]string{"current.crt": "x"}, ""},
		{"ours with a key of others", `{"type":"Opaque","data":{"current.key":"eA==","note":"eQ=="}}`, map[string]string{"current.key": "x", "note": "y"}, ""},
		{"made by us, with keys of somebody else", `{"type":"Opaque","metadata":{"labels":{"gatehouse.dev/certificates":"ca"}},"data":{"tls.key":"eA=="}}`, map[string]string{"tls.key": "x"}, ""},
		{"being deleted", `{"type":"Opaque","metadata":{"deletionTimestamp":"2026-11-20T12:00:00Z","finalizers":["x/y"]},"data":{"state.json":"eA=="}}`, map[string]string{"state.json": "x"}, ""},
		{"immutable", `{"type":"Opaque","immutable":true,"data":{"state.json":"eA=="}}`, map[string]string{"state.json": "x"}, ""},
		{
			"of another type", `{"type":"kubernetes.io/tls","data":{"tls.crt":"eA==","tls.key":"c2VjcmV0"}}`, nil,
			`Secret system/ca: it is of type "kubernetes.io/tls" and not "Opaque", so Gatehouse did not create it and does not change it (hint: use another Secret, or delete this one if it is not needed)`,
		},
		{
			"of another type with our keys", `{"type":"kubernetes.io/dockercfg","data":{"state.json":"eA=="}}`, nil,
			`it is of type "kubernetes.io/dockercfg"`,
		},
		{
			"somebody else's", `{"type":"Opaque","data":{"password":"c2VjcmV0"}}`, nil,
			`Secret system/ca: it holds "password" and no key of Gatehouse, so Gatehouse did not create it`,
		},
		{
			"somebody else's with a bundle", `{"type":"Opaque","data":{"ca.crt":"eA==","tls.crt":"eA==","tls.key":"c2VjcmV0"}}`, nil,
			`it holds "ca.crt", "tls.crt", "tls.key" and no key of Gatehouse`,
		},
		{
			"made by us for another one", `{"type":"Opaque","metadata":{"labels":{"gatehouse.dev/certificates":"other"}},"data":{"tls.key":"eA=="}}`, nil,
			`it holds "tls.key" and no key of Gatehouse`,
		},
		{
			"many keys of somebody else's", `{"type":"Opaque","data":{"a":"","b":"","c":"","d":"","e":"","f":"","g":""}}`, nil,
			`it holds "a", "b", "c", "d", "e", 2 more and no key of Gatehouse`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			api := certstest.NewAPIServer(t)
			if c.secret != "" {
				api.Put(secretPath, c.secret)
			}
			before := fmt.Sprint(api.Get(secretPath))
			record, err := secretIn(api).Load(t.Context())
			if c.foreign != "" {
				if foreign, ok := errors.AsType[*ForeignError](err); !ok || !strings.Contains(err.Error(), c.foreign) || foreign.Place != "Secret system/ca" {
					t.Errorf("got %v, want %q", err, c.foreign)
				}
				if err := secretIn(api).Save(t.Context(), record, bytesOf(map[string]string{rotation.KeyState: "x"})); !errors.Is(err, ErrConflict) {
					t.Errorf("written: %v", err)
				}
				if got := fmt.Sprint(api.Get(secretPath)); got != before {
					t.Errorf("was changed to %s", got)
				}
				return
			}
			if err != nil || record.Exists != (c.want != nil) || len(record.Data) != len(c.want) || !maps.Equal(text(record.Data), text(bytesOf(c.want))) {
				t.Errorf("got %+v, %v, want %v", record, err, c.want)
			}
		})
	}
}

// What others put into our Secret stays: owners, labels, annotations, keys.
func TestSecretStoreKeepsWhatIsOfOthers(t *testing.T) {
	t.Parallel()
	api := certstest.NewAPIServer(t)
	api.Put(secretPath, `{"type":"Opaque","metadata":{"labels":{"app.kubernetes.io/managed-by":"Helm"},"annotations":{"a":"b"},
		"ownerReferences":[{"kind":"Thing","name":"x"}]},"data":{"note":"eQ==","previous.crt":"eA==","state.json":""}}`)
	s := secretIn(api)
	if err := s.Save(t.Context(), mustLoad(t, s), bytesOf(map[string]string{rotation.KeyState: "", rotation.KeyCurrentKey: "k"})); err != nil {
		t.Fatal(err)
	}
	got := api.Get(secretPath)
	m := certstest.Meta(got)
	for _, kept := range []string{fmt.Sprint(m["labels"]), fmt.Sprint(m["annotations"]), fmt.Sprint(m["ownerReferences"])} {
		if !slices.Contains([]string{"map[app.kubernetes.io/managed-by:Helm]", "map[a:b]", "[map[kind:Thing name:x]]"}, kept) {
			t.Errorf("is now %s", kept)
		}
	}
	if data := fmt.Sprint(got["data"]); data != "map[current.key:aw== note:eQ== state.json:]" {
		t.Errorf("data is now %s", data)
	}
	if api.Requests("update")+api.Requests("list")+api.Requests("create") > 0 {
		t.Error("asked for more rights than get, watch and patch")
	}
}

// One that was deleted and made again is another one, whatever its version.
func TestSecretStoreComparesTheUID(t *testing.T) {
	t.Parallel()
	api := certstest.NewAPIServer(t)
	api.Put(secretPath, `{"type":"Opaque"}`)
	s := secretIn(api)
	old := mustLoad(t, s)
	_, version, _ := strings.Cut(old.Version, "/")
	for _, stale := range []string{"another/" + version, "", "another", "another/"} {
		if err := s.Save(t.Context(), Record{Exists: true, Version: stale}, nil); !errors.Is(err, ErrConflict) {
			t.Errorf("version %q: %v", stale, err)
		}
	}
	api.Remove(secretPath)
	if err := s.Save(t.Context(), old, nil); !errors.Is(err, ErrConflict) {
		t.Errorf("deleted: %v", err)
	}
}

func TestSecretStoreErrors(t *testing.T) {
	t.Parallel()
	secret := strings.Repeat("c2VjcmV0", 20)
	rbac := func(verb string) string {
		return fmt.Sprintf(`secrets "ca" is forbidden: User "system:serviceaccount:system:gatehouse" cannot %s resource "secrets" in API group "" in the namespace "system"`, verb)
	}
	for _, c := range []struct {
		name, verb string
		code       int
		says       string
		cause      *metav1.StatusCause
		want       string
	}{
		{
			"no right to get", "get", 403, rbac("get"), nil,
			`Secret system/ca: user "system:serviceaccount:system:gatehouse" may not "get" secrets (hint: a Role in namespace "system" must allow get, watch and patch of the secret "ca")`,
		},
		{
			"no right to patch", "patch", 403, rbac("patch"), nil,
			`Secret system/ca: user "system:serviceaccount:system:gatehouse" may not "patch" secrets (hint: a Role in namespace "system" must allow get, watch and patch of the secret "ca")`,
		},
		{
			"no right to create", "create", 403, rbac("create"), nil,
			`Secret system/ca: user "system:serviceaccount:system:gatehouse" may not "create" secrets (hint: a Role in namespace "system" must allow create of secrets, which cannot be limited to a name; or create the secret "ca" in advance, without data)`,
		},
		{
			"quota", "create", 403, `secrets "ca" is forbidden: exceeded quota: few, requested: secrets=1`, nil,
			`Secret system/ca: the API server refuses to create it: secrets "ca" is forbidden: exceeded quota: few, requested: secrets=1`,
		},
		{
			"namespace ends", "create", 403, `unable to create new content`,
			&metav1.StatusCause{Type: corev1.NamespaceTerminatingCause},
			`Secret system/ca: its namespace is being deleted (hint: wait until it is gone and create it again, or use another namespace)`,
		},
		{
			"no namespace", "create", 404, `namespaces "system" not found`, nil,
			`Secret system/ca: its namespace does not exist (hint: create the namespace, or use another one)`,
		},
		{
			"credentials", "get", 401, `Unauthorized`, nil,
			`Secret system/ca: the API server rejects the credentials of this program (hint: check the token of its service account, or the kubeconfig)`,
		},
		{
			"webhook that repeats what it was sent", "patch", 400, "admission webhook \"x\" denied the request: bad data " + secret, nil,
			`Secret system/ca: the API server did not patch it: admission webhook "x" denied the request: bad data [withheld]`,
		},
		{
			"lines", "patch", 400, "one\ntwo\x1b[31m" + strings.Repeat(" x", 400), nil,
			`Secret system/ca: the API server did not patch it: one two [31m` + strings.Repeat(" x", 143) + ` …`,
		},
		{
			"etcd", "get", 500, `Internal error occurred: etcdserver: request timed out`, nil,
			`Secret system/ca: the API server cannot get it now: Internal error occurred: etcdserver: request timed out`,
		},
		{
			"immutable", "patch", 422, "data: Forbidden: field is immutable when `immutable` is set",
			&metav1.StatusCause{Type: metav1.CauseTypeForbidden, Field: "data"},
			`Secret system/ca: it cannot be written, because it has "immutable: true" (hint: delete it: a running replica restores it from memory)`,
		},
		{
			"another UID", "patch", 422, "metadata.uid: Invalid value",
			&metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: "metadata.uid"},
			"another client has changed it",
		},
		{
			"too large", "patch", 422, "data: Too long: must have at most 1048576 bytes",
			&metav1.StatusCause{Type: metav1.CauseTypeTooLong, Field: "data"},
			`Secret system/ca: the API server did not patch it: data: Too long: must have at most 1048576 bytes`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			api := certstest.NewAPIServer(t)
			var causes []metav1.StatusCause
			if c.cause != nil {
				causes = append(causes, *c.cause)
			}
			api.Set(func(verb string, _ *http.Request) (*http.Response, error) {
				if verb == c.verb {
					return certstest.Refuse(c.code, c.says, causes...), nil
				}
				return nil, nil
			})
			s := secretIn(api)
			_, err := s.Load(t.Context())
			if c.verb != "get" {
				if err != nil {
					t.Fatal(err)
				}
				err = s.Save(t.Context(), Record{Exists: c.verb == "patch", Version: "u/1"}, bytesOf(map[string]string{rotation.KeyState: secret}))
			}
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
			if c.code == 403 && !apierrors.IsForbidden(err) {
				t.Error("programs cannot tell")
			}
		})
	}
}

func TestSecretStoreUnreachable(t *testing.T) {
	t.Parallel()
	const address = "127.0.0.1:1" // where nobody listens, and no other test will
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	strange := httptest.NewTLSServer(http.NotFoundHandler())
	strange.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(strange.Close)
	hung := certstest.NewAPIServer(t)
	hung.Set(certstest.Hang)
	ended, end := context.WithCancel(t.Context())
	end()
	nameless := func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "api.example", IsNotFound: true}}
	}
	for _, c := range []struct {
		name string
		cfg  rest.Config
		ctx  context.Context
		want string
	}{
		{"nobody listens", rest.Config{Host: "http://" + address}, t.Context(), "Secret system/ca: the API server cannot be reached: dial tcp " + address + ": connect: connection refused (hint: check its address and that it runs, and for a certificate the CA in the kubeconfig)"},
		{
			"no such name",
			rest.Config{Host: "http://api.example", Dial: nameless},
			t.Context(),
			"Secret system/ca: the API server cannot be reached: dial tcp: lookup api.example: no such host (hint: check its address and that it runs, and for a certificate the CA in the kubeconfig)",
		},
		{
			"hangs",
			rest.Config{Host: "http://api.example", Transport: hung},
			t.Context(),
			"Secret system/ca: the API server did not answer in time when asked to get it (hint: check that it runs, and that network policies allow the connection)",
		},
		{"the caller has gone", rest.Config{Host: plain.URL}, ended, "Secret system/ca: context canceled"},
		{
			"another's certificate",
			rest.Config{Host: strange.URL},
			t.Context(),
			"Secret system/ca: the API server cannot be reached: tls: failed to verify certificate: x509: certificate signed by unknown authority (hint: check its address and that it runs, and for a certificate the CA in the kubeconfig)",
		},
		{
			"no TLS",
			rest.Config{Host: strings.Replace(plain.URL, "http:", "https:", 1)},
			t.Context(),
			"Secret system/ca: the API server cannot be reached: http: server gave HTTP response to HTTPS client (hint: check its address and that it runs, and for a certificate the CA in the kubeconfig)",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, err := kubernetes.NewForConfig(&c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			s := NewSecretStore(SecretStoreConfig{Client: client, Namespace: "system", Name: "ca"})
			s.timeout = 5 * time.Second
			if c.name == "hangs" {
				s.timeout = 100 * time.Millisecond
			}
			if _, err = s.Load(c.ctx); err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestSecretStoreOfAnImpossibleName(t *testing.T) {
	t.Parallel()
	s := NewSecretStore(SecretStoreConfig{Client: certstest.NewAPIServer(t).Client(), Namespace: "system", Name: "a/b"})
	want := `Secret system/a/b: cannot get it: invalid resource name "a/b": [may not contain '/']`
	if _, err := s.Load(t.Context()); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// countChanges counts what a Store's Watch says, until the test ends.
func countChanges(t *testing.T, s Store) *atomic.Int64 {
	t.Helper()
	var count atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { s.Watch(ctx, func() { count.Add(1) }) })
	t.Cleanup(func() {
		cancel()
		group.Wait()
	})
	return &count
}

func TestSecretStoreWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := certstest.NewAPIServer(t)
		count := countChanges(t, secretIn(api))
		for _, change := range []struct {
			name   string
			change func()
		}{
			{"begun", func() {}},
			{"made", func() { api.Put(secretPath, `{"type":"Opaque"}`) }},
			{"changed", func() { api.Put(secretPath, `{"type":"Opaque","data":{"state.json":""}}`) }},
			{"deleted", func() { api.Remove(secretPath) }},
			{"broken off", func() { api.Break(); time.Sleep(time.Second) }},
			{"made again", func() { api.Put(secretPath, `{"type":"Opaque"}`) }},
		} {
			change.change()
			synctest.Wait()
			if count.Swap(0) == 0 {
				t.Errorf("%s: no change was reported", change.name)
			}
		}
	})
}

// A watch that fails is tried again, at a moderate rate. Only a missing right is reported.
func TestSecretStoreWatchFails(t *testing.T) {
	t.Parallel()
	expired := func(verb string, _ *http.Request) (*http.Response, error) {
		if verb != "watch" {
			return nil, nil
		}
		return certstest.Reply(200, json.RawMessage(`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired"}}`)), nil
	}
	for _, c := range []struct {
		name  string
		fault certstest.Fault
		want  string
	}{
		{"hangs", certstest.Hang, ""},
		{"unavailable", certstest.Refuses(503, "no", "watch"), ""},
		{"expired", expired, ""},
		{
			"forbidden", certstest.Refuses(403, `secrets is forbidden: User "gatehouse" cannot watch resource "secrets"`, "watch"),
			`changes are detected only every 10s: Secret system/ca: user "gatehouse" may not "watch" secrets (hint: a Role in namespace "system" must allow get, watch and patch of the secret "ca")`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := certstest.NewAPIServer(t)
				api.Set(c.fault)
				events := make(chan certs.Event, 10)
				s := NewSecretStore(SecretStoreConfig{Client: api.Client(), Namespace: "system", Name: "ca", Notify: func(e certs.Event) { events <- e }})
				count := countChanges(t, s)
				time.Sleep(time.Minute)
				if n := api.Requests("watch"); n < 3 || n > 30 {
					t.Errorf("%d watches in a minute", n)
				}
				if c.want != "" {
					if e := <-events; e.Subject != s.String() || e.Object != s.Object() || e.Reason != certs.ReasonStoreFailed || e.Err == nil || e.Err.Error() != c.want {
						t.Errorf("got %+v", e)
					}
				}
				count.Store(0)
				api.Set(nil)
				time.Sleep(2 * kube.Timeout)
				if count.Load() == 0 {
					t.Error("no change was reported after the watch began")
				}
				if c.want != "" {
					if e := <-events; e.Subject != s.String() || e.Reason != "" || e.Err != nil || e.Message != "changes are detected at once again" {
						t.Errorf("got %+v", e)
					}
				}
				if len(events) > 0 {
					t.Errorf("got %+v", <-events)
				}
			})
		})
	}
}
