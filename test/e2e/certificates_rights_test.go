package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// rightsPolicy makes a server look up the namespace of what it judges.
const rightsPolicy = `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: not-red}
spec:
  validationActions: [Deny]
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations:
  - {expression: '!has(namespaceObject.metadata.labels.red)', message: not red}
`

// rightsSite is an install, and what its ServiceAccount may do.
type rightsSite struct {
	*install
	// user is the ServiceAccount to the API server.
	user string
	// rules are the printed ones, by the namespace that they are for.
	rules map[string][]rbacv1.PolicyRule
	// documents are what was printed, as applied.
	documents string
}

// aRight is one verb of one rule. The namespace is "" for what is granted in all of the cluster.
type aRight struct{ namespace, resource, verb string }

// newRightsSite prints the documents for a server of that name and applies them, but for some rights. What is in the
// namespaces goes to the server.
func (w *world) newRightsSite(t *testing.T, namespace, name string, without []aRight, served ...string) *rightsSite {
	t.Helper()
	s := &rightsSite{
		install: w.newInstall(t, namespace, name), user: "system:serviceaccount:" + namespace + ":" + name, rules: map[string][]rbacv1.PolicyRule{},
	}
	config := t.TempDir()
	must(t, os.WriteFile(filepath.Join(config, "policy.yaml"), []byte(rightsPolicy), 0o600))
	printed := s.manifests(t)
	if strings.Contains(printed, "caBundle:") {
		t.Fatalf("a caBundle is printed, which would overwrite the server's:\n%s", printed)
	}
	s.documents = s.without(t, printed, without, served)
	must(t, w.apply(t.Context(), s.documents))
	t.Cleanup(s.withdraw)
	s.waitForRights(t, without)
	s.command(t, printed, map[string]string{"DIR": config, "--in-cluster": s.kubeconfig(t, "")})
	return s
}

// without takes the rights away, notes the others, and has nothing sent to the server but what is in the namespaces.
func (s *rightsSite) without(t *testing.T, printed string, without []aRight, served []string) string {
	t.Helper()
	var names []any
	for _, name := range append(served, s.namespace) { // its own is left out all the same
		names = append(names, name)
	}
	removed := 0
	text := rewritten(t, printed, func(o *unstructured.Unstructured) {
		switch namespace := o.GetNamespace(); o.GetKind() {
		case "Role", "ClusterRole":
			s.rules[namespace] = append(s.rules[namespace], narrow(t, o, func(resource, verb string) bool {
				taken := slices.Contains(without, aRight{namespace, resource, verb})
				if taken {
					removed++
				}
				return taken
			})...)
		case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
			eachWebhook(t, o, func(webhook map[string]any) {
				expressions, _, err := unstructured.NestedSlice(webhook, "namespaceSelector", "matchExpressions")
				must(t, err)
				must(t, unstructured.SetNestedSlice(webhook, append(expressions, map[string]any{
					"key": corev1.LabelMetadataName, "operator": "In", "values": names,
				}), "namespaceSelector", "matchExpressions"))
			})
		}
	})
	if removed != len(without) {
		t.Fatalf("%d rules have one of %+v:\n%s", removed, without, printed)
	}
	return text
}

// withdraw takes back what others would notice.
func (s *rightsSite) withdraw() {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	_ = s.Kubectl(ctx, "delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration", s.name, "--ignore-not-found").Run()
}

// may asks the API server what the ServiceAccount may do.
func (s *rightsSite) may(ctx context.Context, a authorizationv1.ResourceAttributes) (bool, error) {
	review, err := s.Client().AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: s.user, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + s.namespace, "system:authenticated"}, ResourceAttributes: &a,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// waitForRights waits until the API server's authorizer, which learns of roles by a watch, knows all of them.
func (s *rightsSite) waitForRights(t *testing.T, without []aRight) {
	t.Helper()
	for namespace, rules := range s.rules {
		for _, rule := range rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					a := authorizationv1.ResourceAttributes{Namespace: namespace, Group: rule.APIGroups[0], Resource: resource, Verb: verb}
					if len(rule.ResourceNames) > 0 {
						a.Name = rule.ResourceNames[0]
					}
					want := !slices.Contains(without, aRight{namespace, resource, verb})
					support.Eventually(t, fmt.Sprintf("who may %+v", a), func() error {
						allowed, err := s.may(t.Context(), a)
						if err == nil && allowed != want {
							err = fmt.Errorf("%s: allowed %t, want %t", s.user, allowed, want)
						}
						return err
					})
				}
			}
		}
	}
}

// bundles are the caBundles of all webhooks of the registration.
func (s *rightsSite) bundles(ctx context.Context) ([][]byte, error) {
	registrations := s.Client().AdmissionregistrationV1()
	var list [][]byte
	mutating, err := registrations.MutatingWebhookConfigurations().Get(ctx, s.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	for i := range mutating.Webhooks {
		list = append(list, mutating.Webhooks[i].ClientConfig.CABundle)
	}
	validating, err := registrations.ValidatingWebhookConfigurations().Get(ctx, s.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	for i := range validating.Webhooks {
		list = append(list, validating.Webhooks[i].ClientConfig.CABundle)
	}
	return list, nil
}

// ask sends a review about a namespace that does not exist.
func (s *rightsSite) ask(ctx context.Context, to netip.AddrPort, bundle []byte) error {
	r := s.newReviewer(bundle, to, "certificate-rights-unknown")
	defer r.client.CloseIdleConnections()
	_, err := r.ask(ctx, "p")
	return err
}

// asked are the rights that the ServiceAccount has made use of, by the audit log, and what it was refused.
func (s *rightsSite) asked(t *testing.T) (used map[aRight]bool, refused []string) {
	t.Helper()
	log, err := os.ReadFile(s.audit)
	must(t, err)
	used = map[aRight]bool{}
	for line := range bytes.Lines(log) {
		if !bytes.Contains(line, []byte(`"`+s.user+`"`)) || !bytes.HasSuffix(line, []byte("\n")) {
			continue
		}
		var event auditv1.Event
		must(t, json.Unmarshal(line, &event))
		if event.User.Username != s.user || event.ObjectRef == nil {
			continue
		}
		namespace := event.ObjectRef.Namespace
		if event.ObjectRef.Resource == "namespaces" {
			namespace = ""
		}
		used[aRight{namespace, event.ObjectRef.Resource, event.Verb}] = true
		if event.ResponseStatus != nil && event.ResponseStatus.Code == http.StatusForbidden {
			refused = append(refused, event.Verb+" "+event.RequestURI)
		}
	}
	return used, refused
}

// The documents of 'gatehouse manifests --certificates self-signed' and the command line in them are all that a server
// needs for a life in which everything happens, and no verb in them is there for nothing.
func TestPrintedRightsAreEnoughAndNoMore(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	const namespace, served, name = "certificate-rights-life", "certificate-rights-served", "certificate-rights"
	w.newNamespace(t, namespace, nil)
	w.newNamespace(t, served, map[string]string{"red": "yes"})
	s := w.newRightsSite(t, namespace, name, nil, served)
	for _, denied := range []authorizationv1.ResourceAttributes{
		{Namespace: namespace, Resource: "secrets", Verb: "get", Name: "another"},
		{Namespace: namespace, Resource: "secrets", Verb: "patch", Name: "another"},
		{Namespace: namespace, Resource: "secrets", Verb: "list"},
		{Namespace: namespace, Resource: "secrets", Verb: "watch"},
		{Namespace: namespace, Resource: "secrets", Verb: "delete", Name: name + "-ca"},
		{Namespace: namespace, Resource: "secrets", Verb: "patch", Name: name + "-ca"},
		{Namespace: "kube-system", Resource: "secrets", Verb: "get", Name: name + "-ca"},
		{Namespace: "kube-system", Resource: "secrets", Verb: "create"},
		{Namespace: "kube-system", Group: "coordination.k8s.io", Resource: "leases", Verb: "patch", Name: "kube-scheduler"},
		{Namespace: namespace, Group: "coordination.k8s.io", Resource: "leases", Verb: "update", Name: "another"},
		{Namespace: namespace, Resource: "events", Verb: "list"},
		{Namespace: namespace, Resource: "pods", Verb: "get", Name: "another"},
		{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations", Verb: "list"},
		{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations", Verb: "get", Name: "another"},
		{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations", Verb: "patch", Name: "another"},
		{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations", Verb: "delete", Name: name},
		{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations", Verb: "patch", Name: "another"},
		{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations", Verb: "delete", Name: name},
		{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations", Verb: "update", Name: name},
		{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations", Verb: "create"},
		{Resource: "namespaces", Verb: "patch", Name: namespace},
		{Namespace: namespace, Group: "rbac.authorization.k8s.io", Resource: "roles", Verb: "patch", Name: name + "-certificates"},
	} {
		allowed, err := s.may(t.Context(), denied)
		must(t, err)
		if allowed {
			t.Errorf("it may %+v", denied)
		}
	}

	server, err := gatehouse.Start(t.Context(), s.log, s.flags...)
	must(t, err)
	t.Cleanup(server.Kill)
	if cluster.Namespaced() {
		must(t, w.ServiceFor(t.Context(), namespace, name, int(server.Reviews.Port())))
	}

	// Being ready means that the API server trusts it.
	before, err := s.bundles(t.Context())
	must(t, err)
	const webhooks = 3 // two that mutate, and one that validates
	if len(before) != webhooks {
		t.Fatalf("there are %d webhooks, want %d", len(before), webhooks)
	}
	for _, bundle := range before {
		must(t, s.ask(t.Context(), server.Reviews, bundle))
	}
	must(t, w.apply(t.Context(), s.documents))
	again, err := s.bundles(t.Context())
	must(t, err)
	if !slices.EqualFunc(before, again, bytes.Equal) {
		t.Errorf("applying the documents again changes the caBundles from %q to %q", before, again)
	}
	support.Eventually(t, "the API server asks it", func() error {
		_, err := w.Client().CoreV1().Pods(served).Create(t.Context(), pod("p"), dryRun)
		return refusal(err, http.StatusUnprocessableEntity, "not red")
	})
	leases := w.Client().CoordinationV1().Leases(namespace)
	found, err := leases.List(t.Context(), metav1.ListOptions{})
	must(t, err)
	if len(found.Items) != 1 {
		t.Errorf("there are %d leases, want that of the election", len(found.Items))
	}

	// Somebody deletes the CA, damages it, and deletes it again: of an Event, the same twice.
	secrets := w.Client().CoreV1().Secrets(namespace)
	healed := func(old types.UID) {
		t.Helper()
		support.Eventually(t, "the Secret is mended", func() error {
			secret, err := secrets.Get(t.Context(), name+"-ca", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if secret.UID == old {
				return errors.New("it has not been deleted yet")
			}
			_, err = certs.Decode(secret.Data)
			return err
		})
	}
	destroy := func() {
		t.Helper()
		secret, err := secrets.Get(t.Context(), name+"-ca", metav1.GetOptions{})
		must(t, err)
		must(t, secrets.Delete(t.Context(), name+"-ca", metav1.DeleteOptions{}))
		healed(secret.UID)
	}
	destroy()
	_, err = secrets.Patch(t.Context(), name+"-ca", types.MergePatchType, []byte(`{"data":{"`+certs.KeyState+`":"e30="}}`), metav1.PatchOptions{})
	must(t, err)
	healed("")
	destroy()
	_, err = gatehouse.Run(t.Context(), "certs", "rotate", "--kubeconfig", w.Kubeconfig(), "--secret", namespace+"/"+name+"-ca", "--registration", name, "--wait", "--timeout", deadline.String())
	must(t, err)

	must(t, server.Signal(syscall.SIGTERM))
	ended, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	code, err := server.Wait(ended)
	if err != nil || code != 0 {
		t.Errorf("it ends with %d, %v", code, err)
	}
	for _, wrong := range []string{"forbidden", "may not", "cannot be"} {
		if log := s.readLog(t); strings.Contains(log, wrong) {
			t.Errorf("%q is in its log", wrong)
		}
	}

	// What is needed all the same, and why this life does not show it.
	const older = "for an API server that does not begin a watch with what is there"
	exempt := map[aRight]string{
		{"", "namespaces", "list"}:                      older,
		{"", "mutatingwebhookconfigurations", "list"}:   older,
		{"", "validatingwebhookconfigurations", "list"}: older,
		{metav1.NamespaceDefault, "events", "patch"}:    "what is written into a registration is hardly ever the same twice",
	}
	support.Eventually(t, "the audit log is complete", func() error {
		used, refused := s.asked(t)
		if len(refused) > 0 {
			t.Fatalf("it was refused to %q", refused)
		}
		for namespace, rules := range s.rules {
			for _, rule := range rules {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						right := aRight{namespace, resource, verb}
						if !used[right] && exempt[right] == "" {
							return fmt.Errorf("it has never needed %+v", right)
						}
					}
				}
			}
		}
		return nil
	})
}

// Without any of the rights that a server notices, it says which one it is and what to do.
func TestMissingRightsAreNamed(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	const (
		own                                 = "own" // stands for the namespace of the install
		secrets, leases, events, namespaces = "secrets", "leases", "events", "namespaces"
		mutating                            = "mutatingwebhookconfigurations"
	)
	const leaseHint = `must allow create, get and update of leases in coordination.k8s.io`
	readHint := func(name string) string {
		return "must allow list and watch of the " + mutating + ` \"` + name + `\"`
	}
	for name, c := range map[string]struct {
		without []aRight
		// made: the Secret exists before the server starts.
		made bool
		// ready: the server starts without the right.
		ready bool
		want  []string
	}{
		"secret-get":    {without: []aRight{{own, secrets, "get"}}, want: []string{`cannot get it`, `must allow get and update of the secret \"secret-get-ca\"`}},
		"secret-create": {without: []aRight{{own, secrets, "create"}}, want: []string{`cannot create it`, `and create of secrets`}},
		"secret-update": {without: []aRight{{own, secrets, "update"}}, made: true, want: []string{`cannot update it`, `must allow get and update of the secret \"secret-update-ca\"`}},
		"lease-get":     {without: []aRight{{own, leases, "get"}}, want: []string{`leases`, leaseHint}},
		"events":        {without: []aRight{{own, events, "create"}}, ready: true, want: []string{`allow create and patch of events in the namespace \"certificate-rights-events\"`}},
		"events-default": {
			without: []aRight{{metav1.NamespaceDefault, events, "create"}}, ready: true,
			want: []string{`allow create and patch of events in the namespace \"default\"`},
		},
		// With the right to watch alone, what is there comes with the watch, but not from older API servers.
		"webhooks-read":  {without: []aRight{{"", mutating, "list"}, {"", mutating, "watch"}}, want: []string{readHint("webhooks-read")}},
		"webhooks-watch": {without: []aRight{{"", mutating, "watch"}}, ready: true, want: []string{readHint("webhooks-watch")}},
		"webhooks-patch": {without: []aRight{{"", mutating, "patch"}}, want: []string{"(hint: a ClusterRole must allow patch of the " + mutating + ` \"webhooks-patch\"`}},
		"namespaces-watch": {
			without: []aRight{{"", namespaces, "watch"}},
			want:    []string{`"reading from the cluster"`, `must allow get, list and watch of namespaces`},
		},
		// The other way to do without a right.
		"secret-made": {without: []aRight{{own, secrets, "create"}}, made: true, ready: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := "certificate-rights-" + name // installs of one namespace would have one election
			w.newNamespace(t, namespace, nil)
			for i, right := range c.without {
				if right.namespace == own {
					c.without[i].namespace = namespace
				}
			}
			s := w.newRightsSite(t, namespace, name, c.without)
			if c.made {
				_, err := w.Client().CoreV1().Secrets(namespace).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name + "-ca"}}, metav1.CreateOptions{})
				must(t, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			type started struct {
				server *gatehouse.Server
				err    error
			}
			end := make(chan started, 1)
			go func() {
				server, err := gatehouse.Start(ctx, s.log, s.flags...)
				end <- started{server, err}
			}()
			var last started
			stop := func() {
				cancel()
				if last == (started{}) {
					last = <-end
				}
				if last.server != nil {
					last.server.Kill()
				}
			}
			defer stop()
			if c.ready {
				if last = <-end; last.err != nil {
					t.Fatal(last.err)
				}
			}
			support.Eventually(t, "what it says", func() error {
				log := s.readLog(t)
				for _, want := range c.want {
					if !strings.Contains(log, want) {
						return fmt.Errorf("%s is not in its log:\n%s", want, log)
					}
				}
				return nil
			})
			if log := s.readLog(t); strings.Contains(log, `"recovered"`) {
				t.Errorf("something is said to work again without its right:\n%s", log)
			}
			if stop(); !c.ready && last.err == nil {
				t.Errorf("it became ready")
			}
		})
	}
}
