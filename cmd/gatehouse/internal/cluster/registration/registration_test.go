package registration

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/gatehouse-dev/gatehouse/certs"
	manifest "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install/registration"
)

func TestCheckName(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{"gatehouse": true, "a.b": true, "": false, "A": false, "mutating/a": false, strings.Repeat("x", 300): false} {
		if err := CheckName(name); (err == nil) != ok || err != nil && len(err.Error()) > 500 {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// A bundle is what kube-apiserver takes it for: it ignores what it cannot read.
func TestParseBundle(t *testing.T) {
	t.Parallel()
	a, b := newCA(t), newCA(t)
	pemA, pemB := string(certs.Bundle([]*x509.Certificate{a.Cert})), string(certs.Bundle([]*x509.Certificate{b.Cert}))
	key := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}))
	for name, c := range map[string]struct {
		raw    string
		want   int
		remark string
	}{
		"none": {"", 0, "no caBundle"}, "two": {pemA + pemB, 2, ""}, "twice": {pemA + pemA, 1, ""}, "text": {"# a\n" + pemA, 1, ""},
		"a key": {key + pemA, 1, "1 of its 2 PEM blocks are not certificates and are ignored"}, "cut": {pemA + pemB[:100], 1, "1 of its 2 PEM blocks"},
		"nothing": {"x", 0, "it has no certificate"},
	} {
		got := parseBundle(c.raw)
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM([]byte(c.raw))
		if len(got.certs) != c.want || !strings.Contains(got.remark, c.remark) || (got.remark == "") != (c.remark == "") || !got.pool.Equal(pool) {
			t.Errorf("%s: got %d certificates, %q", name, len(got.certs), got.remark)
		}
	}
}

func newCA(t *testing.T) *certs.Authority {
	t.Helper()
	ca, err := certs.NewAuthority(time.Now(), certs.DefaultCALife)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// leafOf returns a certificate of a CA for a host.
func leafOf(t *testing.T, ca *certs.Authority, host string) *tls.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, DNSNames: []string{host}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(bytes.NewReader(make([]byte, 1<<10)), template, ca.Cert, ca.Cert.PublicKey, ca.Key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: ca.Key, Leaf: leaf}
}

const host = "gatehouse.gatehouse-system.svc"

// validating returns a configuration with a webhook for each bundle, all of which call our host.
func validating(bundles ...[]byte) *admissionregistrationv1.ValidatingWebhookConfiguration {
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "gatehouse"}}
	for i, bundle := range bundles {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{
			Name: string(rune('a'+i)) + ".gatehouse.dev", ClientConfig: admissionregistrationv1.WebhookClientConfig{
				Service: &admissionregistrationv1.ServiceReference{Namespace: "gatehouse-system", Name: "gatehouse"}, CABundle: bundle,
			},
		})
	}
	return c
}

// Everything that is named and calls us must trust the certificate.
func TestVerify(t *testing.T) {
	t.Parallel()
	ours, other := newCA(t), newCA(t)
	leaf := leafOf(t, ours, host)
	good, foreign := certs.Bundle([]*x509.Certificate{ours.Cert}), certs.Bundle([]*x509.Certificate{other.Cert})
	elsewhere := validating(good)
	elsewhere.Webhooks[0].ClientConfig.Service.Name = "other"
	mixed := validating(good, foreign)
	mixed.Webhooks[1].ClientConfig.Service.Name = "other"
	for name, c := range map[string]struct {
		found *admissionregistrationv1.ValidatingWebhookConfiguration
		leaf  *tls.Certificate
		want  string
	}{
		"trusted": {validating(good, append(slices.Clone(foreign), good...)), leaf, ""}, "others are ignored": {mixed, leaf, ""},
		"another CA":   {validating(good, foreign), leaf, `ValidatingWebhookConfiguration gatehouse, webhook "b.gatehouse.dev": its caBundle does not have the CA that signed the serving certificate`},
		"no bundle":    {validating(nil), leaf, "has no caBundle"},
		"no webhooks":  {validating(), leaf, "has no webhooks: apply the output of gatehouse manifests"},
		"none of ours": {elsewhere, leaf, `none of its webhooks calls Gatehouse: "a.gatehouse.dev" calls "other.gatehouse-system.svc"`},
		"another name": {validating(good), leafOf(t, ours, "other"), `it calls "` + host + `", and the serving certificate is not for that name`},
		"no leaf":      {validating(good), nil, "there is no serving certificate yet"},
		"nothing":      {nil, leaf, "ValidatingWebhookConfiguration gatehouse: not found"},
	} {
		r := NewReader(ReaderConfig{Names: []string{"gatehouse"}, Hosts: []string{host}, Log: slog.New(slog.DiscardHandler)})
		if err := r.Verify(leaf, time.Now()); !errors.Is(err, certs.ErrUnread) {
			t.Errorf("%s: before anything was read: %v", name, err)
		}
		r.update(0, nil)
		r.update(1, nil)
		if c.found != nil {
			r.update(1, newObject(c.found))
		}
		err := r.Verify(c.leaf, time.Now())
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
		if verdicts := r.Verdicts(c.leaf, time.Now()); c.found != nil && (len(verdicts) != 1 || (verdicts[0].Err == nil) != (c.want == "")) {
			t.Errorf("%s: verdicts %+v", name, verdicts)
		}
		if ready := r.Ready(c.leaf); ready == nil || c.want == "" && !errors.Is(ready, errNoticed) {
			t.Errorf("%s: ready at once: %v", name, ready)
		}
	}
	both := NewReader(ReaderConfig{Names: []string{"gatehouse"}, Hosts: []string{host}})
	both.update(0, nil)
	both.update(1, newObject(validating(good)))
	if err := both.Holds(ours.Cert); err != nil {
		t.Error(err)
	}
	if err := both.Holds(other.Cert); err == nil || !strings.Contains(err.Error(), "does not have the CA") {
		t.Errorf("got %v", err)
	}
}

func TestSameHost(t *testing.T) {
	t.Parallel()
	for pair, want := range map[[2]string]bool{
		{"a.b", "A.b."}: true, {"*.b", "a.b"}: true, {"*.b", "b"}: false, {"*.b", "x.a.b"}: false, {"::1", "0:0:0:0:0:0:0:1"}: true, {"127.0.0.1", "::ffff:127.0.0.1"}: true,
		{"a", "b"}: false, {"", ""}: false, {"1.2.3.4", "a"}: false,
	} {
		if got := sameHost(pair[0], pair[1]); got != want {
			t.Errorf("%q: got %v", pair, got)
		}
	}
}

// fakeCA is a CA that a test publishes.
type fakeCA struct {
	*certs.Authority

	leaf *tls.Certificate
	err  error
}

func (f *fakeCA) Bundle(context.Context) ([]*x509.Certificate, error) {
	return []*x509.Certificate{f.Cert}, f.err
}

func (f *fakeCA) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.leaf, nil }
func (*fakeCA) Changed() <-chan struct{}                                        { return nil }

// patches answers requests, and keeps their bodies.
type patches struct {
	list   []string
	status int
	// first are the statuses of the first answers.
	first []int
}

func (p *patches) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	p.list = append(p.list, r.Method+" "+r.URL.Path+"?"+r.URL.RawQuery+" "+string(body))
	text, status := `{"kind":"Status","apiVersion":"v1","status":"Success"}`, p.status
	if len(p.first) > 0 {
		status, p.first = p.first[0], p.first[1:]
	}
	if status != http.StatusOK {
		reason := map[int]string{http.StatusConflict: "Conflict", http.StatusForbidden: "Forbidden"}[status]
		text = fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, status)
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text))}, err
}

// A patch has the resourceVersion that was read, all that is desired, and what it owns already: it takes nothing away.
func TestWriterPatches(t *testing.T) {
	t.Parallel()
	ours := newCA(t)
	api := &patches{status: http.StatusOK}
	client, err := certs.NewClient(&rest.Config{Host: "http://localhost", Transport: api})
	if err != nil {
		t.Fatal(err)
	}
	r := NewReader(ReaderConfig{Names: []string{"gatehouse"}, Hosts: []string{host}})
	var got []certs.Event
	needs := manifest.Needs{manifest.FailValidate: {Rules: []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{"CREATE"}, Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
	}}}}
	var leftOut []string
	w := NewWriter(WriterConfig{Client: client, Reader: r, Needs: func([]string) (manifest.Needs, []string, bool) { return needs, leftOut, true }, Notify: func(e certs.Event) { got = append(got, e) }})
	ca := &fakeCA{Authority: ours, leaf: leafOf(t, ours, host)}
	w.Publish(ca)
	c := validating(nil, []byte("theirs"))
	c.ResourceVersion, c.Annotations = "7", map[string]string{manifest.ExcludedNamespaces: "kube-system"}
	c.Webhooks[0].Name, c.Webhooks[1].Name = manifest.FailValidate, "other.gatehouse.dev"
	c.Webhooks[1].ClientConfig.Service.Name = "other"
	c.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: FieldManager, Operation: metav1.ManagedFieldsOperationApply, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:webhooks":{"k:{\"name\":\"other.gatehouse.dev\"}":{".":{},"f:name":{},"f:clientConfig":{"f:caBundle":{}}}}}`),
	}}
	r.update(1, newObject(c))
	only := target{Validating, "gatehouse"}
	if err := w.reconcile(t.Context(), only); err != nil {
		t.Fatal(err)
	}
	bundle := base64.StdEncoding.EncodeToString(certs.Bundle([]*x509.Certificate{ours.Cert}))
	for _, want := range []string{
		"PATCH /apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/gatehouse?fieldManager=gatehouse&force=true", `"resourceVersion":"7"`,
		`{"name":"fail.validate.gatehouse.dev","clientConfig":{"caBundle":"` + bundle + `"},"rules":[{"operations":["CREATE"]`, `"operator":"NotIn","values":["kube-system"]`, `"objectSelector":{}`,
		`{"name":"other.gatehouse.dev","clientConfig":{"caBundle":"` + base64.StdEncoding.EncodeToString([]byte("theirs")) + `"}}`,
	} {
		if len(api.list) != 1 || !strings.Contains(api.list[0], want) {
			t.Errorf("it does not send %s: %q", want, api.list)
		}
	}
	if len(got) != 1 || got[0].Reason != certs.ReasonWritten {
		t.Errorf("it reports %+v", got)
	}
	// The same again is what another client has changed.
	if err := w.reconcile(t.Context(), only); err != nil || w.Overwritten() != 1 || got[1].Reason != certs.ReasonOverwritten {
		t.Errorf("%v, %d, %+v", err, w.Overwritten(), got)
	}
	api.status = http.StatusConflict
	if err := w.reconcile(t.Context(), only); !apierrors.IsConflict(err) {
		t.Errorf("a stale writer gets %v", err)
	}
	// A CA that is not known, and one that does not verify what is served, are not written. Rules are.
	api.status = http.StatusOK
	for _, broken := range []*fakeCA{{Authority: ours, leaf: ca.leaf, err: errors.New("away")}, {Authority: newCA(t), leaf: ca.leaf}} {
		w.Publish(broken)
		api.list = nil
		if err := w.reconcile(t.Context(), only); err == nil || !strings.Contains(err.Error(), "no caBundle is written") {
			t.Errorf("got %v", err)
		}
		if len(api.list) != 1 || strings.Contains(api.list[0], bundle) || !strings.Contains(api.list[0], `"rules"`) {
			t.Errorf("it sends %q", api.list)
		}
	}
	// What may not be sent is reported once.
	w.Publish(nil)
	leftOut, got = []string{"secrets"}, nil
	for range 2 {
		if err := w.reconcile(t.Context(), only); err != nil || !strings.HasPrefix(w.Hint(), "policies match secrets, which is not sent") {
			t.Errorf("%v, %q", err, w.Hint())
		}
	}
	if reported := slices.DeleteFunc(got, func(e certs.Event) bool { return e.Reason != certs.ReasonNotIncluded }); len(reported) != 1 || !reported[0].IsWarning() {
		t.Errorf("it reports %+v", reported)
	}
	leftOut = nil
	// What is not made to be managed, or lacks a webhook, keeps its rules, and says why.
	w.Publish(nil)
	for want, change := range map[string]func(){
		"has no annotation": func() { c = c.DeepCopy(); c.Annotations = nil },
		`there is no webhook "ignore.validate.gatehouse.dev", and Gatehouse adds none`: func() { needs[manifest.IgnoreValidate] = needs[manifest.FailValidate] },
	} {
		before, all := c, maps.Clone(needs)
		change()
		r.update(1, newObject(c))
		api.list = nil
		if err := w.reconcile(t.Context(), only); err != nil || len(api.list) > 0 && strings.Contains(api.list[0], "CREATE") {
			t.Errorf("%v, %q", err, api.list)
		}
		if hint := w.Hint(); !strings.Contains(hint, want) {
			t.Errorf("the hint is %q, want %q", hint, want)
		}
		c, needs = before, all
	}
}

// TestMissingRightIsReported: once, from the second failure on, because an install may be about to grant it, and once when it is there.
func TestMissingRightIsReported(t *testing.T) {
	t.Parallel()
	const failed, again = certs.ReasonWriteFailed, "again"
	for name, test := range map[string]struct {
		first []int
		want  []string
	}{
		"never missing":  {nil, nil},
		"granted soon":   {[]int{403}, nil},
		"granted late":   {[]int{403, 403}, []string{failed, again}},
		"granted later":  {[]int{403, 403, 403, 403}, []string{failed, again}},
		"a conflict":     {[]int{409, 409, 409}, nil},
		"something else": {[]int{500}, []string{failed, again}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := &patches{status: http.StatusOK, first: test.first}
				client, err := certs.NewClient(&rest.Config{Host: "http://localhost", Transport: api})
				if err != nil {
					t.Fatal(err)
				}
				ours := newCA(t)
				r := NewReader(ReaderConfig{Names: []string{"gatehouse"}, Hosts: []string{host}})
				var got []string
				w := NewWriter(WriterConfig{Client: client, Reader: r, Notify: func(e certs.Event) {
					switch {
					case e.Err != nil:
						got = append(got, e.Reason)
					case strings.HasSuffix(e.Message, "can be written again"):
						got = append(got, again)
					}
				}})
				w.Publish(&fakeCA{Authority: ours, leaf: leafOf(t, ours, host)})
				c := validating(nil, []byte("theirs"))
				c.ResourceVersion = "7"
				r.update(1, newObject(c))
				queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[target](firstRetry, lastRetry))
				var working sync.WaitGroup
				working.Go(func() { w.work(t.Context(), queue) })
				queue.Add(target{Validating, "gatehouse"})
				time.Sleep(time.Minute)
				queue.ShutDown()
				working.Wait()
				if !slices.Equal(got, test.want) || len(api.first) > 0 {
					t.Errorf("it reports %q, want %q; left are %v", got, test.want, api.first)
				}
			})
		})
	}
}

// What lasts is reported once, and its end.
func TestMonitorTrustReports(t *testing.T) {
	t.Parallel()
	var got []string
	notify := func(e certs.Event) { got = append(got, e.Reason) }
	d := &distrusted{}
	target, failed := target{Validating, "gatehouse"}, errors.New("no")
	for _, err := range []error{nil, certs.ErrUnread, failed, failed} {
		d.report(target, err, notify)
	}
	d.since = time.Now().Add(-time.Minute)
	for _, err := range []error{failed, failed, nil, nil} {
		d.report(target, err, notify)
	}
	if want := []string{certs.ReasonUntrusted, certs.ReasonTrusted}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := NewReader(ReaderConfig{}).MonitorTrust(ctx, func() *tls.Certificate { return nil }); err != nil {
		t.Error(err)
	}
}
