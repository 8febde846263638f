package audit

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
	"github.com/gatehouse-dev/gatehouse/test/support/load"
)

// reviewer asks a server for reviews, as the API server does.
type reviewer struct {
	client *http.Client
	url    string
	review string
}

func newReviewer(s *gatehouse.Server, object string) *reviewer {
	return &reviewer{
		&http.Client{Timeout: support.Deadline, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}},
		"https://" + s.Reviews.String() + "/validate",
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","name":"asked","namespace":"shop",` + object + `,"userInfo":{"username":"somebody"}}}`,
	}
}

// service is a Service as a review has it, and its owner.
const service = `"kind":{"group":"","version":"v1","kind":"Service"},"resource":{"group":"","version":"v1","resource":"services"},` +
	`"object":{"apiVersion":"v1","kind":"Service","metadata":{"name":"asked","namespace":"shop","labels":{"owner":"web"}},"spec":{"ports":[{"port":80}]}}`

// ask asks once, and returns an error unless there is a decision.
func (r *reviewer) ask(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, strings.NewReader(r.review))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := r.client.Do(request)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(response.Body)
	err = errors.Join(err, response.Body.Close())
	if err != nil {
		return err
	}
	var answer struct {
		Response *struct {
			Allowed bool
			Status  struct{ Code int }
		}
	}
	if err := json.Unmarshal(text, &answer); err != nil || answer.Response == nil || answer.Response.Status.Code >= http.StatusInternalServerError {
		return fmt.Errorf("%s: %.300s", response.Status, bytes.TrimSpace(text))
	}
	return nil
}

// change has an audit begin soon: the policy says something else.
func (b *background) change(t *testing.T, message string) {
	t.Helper()
	patch := fmt.Sprintf(`[{"op":"replace","path":"/spec/validations/0/message","value":%q}]`, message)
	_, err := b.policies.Patch(t.Context(), "owners", types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	must(t, err)
}

// TestBackgroundFaults: an audit in the background goes on, or begins again, whatever happens to the API server and to the election, and
// reviews are answered meanwhile.
func TestBackgroundFaults(t *testing.T) {
	t.Parallel()
	const name, pause = "gatehouse-audit", 20 * time.Millisecond
	b := newBackground(t)
	account, err := b.ConfigFor("system:serviceaccount:gatehouse-system:gatehouse", "system:serviceaccounts", "system:authenticated")
	must(t, err)
	proxy := newBetween(t, account)
	s := b.start(t, "a", proxy.kubeconfig)
	r := newReviewer(s, service)
	l := load.Start(t.Context(), func(ctx context.Context, _ int) error {
		<-time.After(pause)
		return r.ask(ctx)
	})
	found := []string{
		": fail 1 warn 0 error 0 skip 1", ": fail owners validations[owner] PersistentVolume disk", ": skip people validations[people]",
		"default: fail 1 warn 0 error 0 skip 0", kubernetesService, "shop: fail 1 warn 0 error 0 skip 0", "shop: fail owners validations[owner] Service open",
		"pay: fail 1 warn 0 error 0 skip 0", "pay: fail owners validations[owner] Service ledger",
	}
	b.want(t, "the first audit", name, found...)

	// A namespace is being deleted: nothing can be created in it, and its report is left out.
	must(t, b.CreateNamespace(t.Context(), "leaving", nil))
	_, err = b.Client().CoreV1().Services("leaving").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "kept", Finalizers: []string{"example.com/kept"}}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	must(t, err)
	must(t, b.Client().CoreV1().Namespaces().Delete(t.Context(), "leaving", metav1.DeleteOptions{}))
	before := published(t, s)
	b.change(t, "objects need an owner")
	b.audits(t, s, before+1)
	b.want(t, "an audit with a namespace that is being deleted", name, found...)
	support.Eventually(t, "its object is counted", func() error {
		if got := b.status(t, "owners"); got.Violations != 5 {
			return fmt.Errorf("the status is %+v", got)
		}
		return nil
	})
	if text := logged(t, s); strings.Contains(text, "cannot write") {
		t.Errorf("it logged %s", text)
	}

	// The API server restarts while Services are listed.
	var restarted sync.Once
	proxy.expect(func(resource string, _ int) {
		if resource == "services" {
			restarted.Do(func() {
				if err := errors.Join(b.APIServer().Kill(), b.APIServer().Start(context.WithoutCancel(t.Context()))); err != nil {
					t.Error(err)
				}
			})
		}
	}, nil)
	before = published(t, s)
	b.change(t, "every object needs an owner")
	b.audits(t, s, before+1)
	proxy.expect(nil, nil)
	versions := b.want(t, "an audit during which the API server restarts", name, found...)

	// The election is lost while Services are listed: nothing is written. The replica that is elected next finds what has changed.
	_, err = b.Client().CoreV1().Services("shop").Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{})
	must(t, err)
	holding, release := make(chan struct{}), make(chan struct{})
	var held sync.Once
	proxy.expect(func(resource string, _ int) {
		if resource == "services" {
			held.Do(func() {
				close(holding)
				<-release
			})
		}
	}, nil)
	b.change(t, "each object needs an owner")
	<-holding
	leases := b.Client().CoordinationV1().Leases("gatehouse-system")
	all, err := leases.List(t.Context(), metav1.ListOptions{})
	must(t, err)
	i := slices.IndexFunc(all.Items, func(l coordinationv1.Lease) bool { return strings.HasSuffix(l.Name, "-status") })
	if i < 0 {
		t.Fatalf("no Lease of the election: %v", all.Items)
	}
	_, err = leases.Patch(t.Context(), all.Items[i].Name, types.MergePatchType, []byte(`{"spec":{"holderIdentity":"somebody-else"}}`), metav1.PatchOptions{})
	must(t, err)
	support.Eventually(t, "the audit ends", func() error {
		n, err := s.Metric(context.WithoutCancel(t.Context()), "gatehouse_audit_runs_total", "outcome", "stopped")
		if err == nil && n != 1 {
			err = fmt.Errorf("%v audits ended with the election", n)
		}
		return err
	})
	if _, now := b.contents(t, name); !maps.Equal(now, versions) {
		t.Errorf("the replica that is not elected any more wrote %v, there was %v", now, versions)
	}
	proxy.expect(nil, nil)
	close(release)
	late := slices.DeleteFunc(slices.Clone(found), func(s string) bool { return strings.HasPrefix(s, "shop: fail 1") })
	b.want(t, "the audit after the next election", name, append(late, "shop: fail 2 warn 0 error 0 skip 0", "shop: fail owners validations[owner] Service late")...)

	calls, failed := l.End()
	if calls == 0 || failed > 0 {
		t.Errorf("%d of %d reviews failed: %s", failed, calls, l.Why())
	}
}
