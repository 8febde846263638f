package status

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/manifests/crds"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/logbuffer"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// soon waits until something is so, for as long as the third try may take of what somebody has to mend, and a busy
// machine.
func soon(t *testing.T, what string, is func() (bool, string)) {
	t.Helper()
	const most = 3 * time.Minute
	var last string
	for deadline := time.Now().Add(most); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		var ok bool
		if ok, last = is(); ok {
			return
		}
	}
	t.Fatalf("not within %s: %s: %s", most, what, last)
}

// server is a real API server with our definitions, and processes with our rights.
type server struct {
	*cluster.Cluster

	admin  dynamic.Interface
	rights *rest.Config
	events events
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{Cluster: cluster.New(t, cluster.Options{})}
	var err error
	if s.admin, err = dynamic.NewForConfig(s.Config()); err != nil {
		t.Fatal(err)
	}
	definitions, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range definitions {
		// Status is as it is, and what is in a spec is of no interest here.
		versions, _, _ := unstructured.NestedSlice(d.Object, "spec", "versions")
		root := versions[0].(map[string]any)["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
		delete(root, "x-kubernetes-validations")
		root["properties"].(map[string]any)["spec"] = map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
		if err := unstructured.SetNestedSlice(d.Object, versions, "spec", "versions"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.admin.Resource(definitionsResource).Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range definitions {
		resource, _, _ := strings.Cut(d.GetName(), ".")
		soon(t, resource+" are served", func() (bool, string) {
			_, err := s.admin.Resource(v1alpha1.GroupVersion.WithResource(resource)).List(t.Context(), metav1.ListOptions{})
			return err == nil, fmt.Sprint(err)
		})
	}
	if s.rights, err = s.ConfigFor("gate"); err != nil {
		t.Fatal(err)
	}
	return s
}

var definitionsResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// allow gives the rights that the Controller says it needs.
func (s *server) allow(t *testing.T, namespace string) {
	t.Helper()
	api := s.Client().RbacV1()
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "gate"}}
	_, err := api.Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "gate"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create", "delete", "get", "list", "patch", "update", "watch"}},
	}}, metav1.CreateOptions{})
	if err == nil {
		_, err = api.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "gate"}, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "gate"},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	kinds := []string{"accesstokens", "admissionpolicies", "sidecarprofiles", "tokenrevocations"}
	statuses := make([]string, len(kinds))
	for i, kind := range kinds {
		statuses[i] = kind + "/status"
	}
	_, err = api.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "gate"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"gatehouse.dev"}, Resources: kinds, Verbs: []string{"get", "list"}},
		{APIGroups: []string{"gatehouse.dev"}, Resources: statuses, Verbs: []string{"patch"}},
	}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return
	}
	if err == nil {
		_, err = api.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "gate"}, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "gate"},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (s *server) start(t *testing.T, namespace, replica string, options ...func(*Config)) *process {
	t.Helper()
	p := &process{log: &logbuffer.Buffer{}, ended: make(chan struct{})}
	client, err := dynamic.NewForConfig(s.rights)
	if err != nil {
		t.Fatal(err)
	}
	typed, err := kubernetes.NewForConfig(s.rights)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Client: client, Leases: typed.CoordinationV1(), Namespace: namespace, Group: "gatehouse", Replica: replica,
		Record: s.events.record, Log: slog.New(slog.NewTextHandler(p.log, nil)),
	}
	for _, option := range options {
		option(&cfg)
	}
	p.Controller = New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	p.cancel = cancel
	go func() {
		defer close(p.ended)
		if err := p.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	t.Cleanup(p.stop)
	return p
}

func (s *server) resource(kind string) dynamic.ResourceInterface {
	return s.admin.Resource(v1alpha1.GroupVersion.WithResource(resourceOf(kind)))
}

// create makes an object of a kind.
func (s *server) create(t *testing.T, kind, name string, spec map[string]any) Object {
	t.Helper()
	made, err := s.resource(kind).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return Object{Kind: kind, Name: name, UID: made.GetUID(), Generation: made.GetGeneration()}
}

func (s *server) edit(t *testing.T, o Object, patch string) Object {
	t.Helper()
	found, err := s.resource(o.Kind).Patch(t.Context(), o.Name, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if found.GetGeneration() == o.Generation {
		t.Fatal("the edit changed nothing")
	}
	o.Generation = found.GetGeneration()
	return o
}

func (s *server) get(t *testing.T, o Object) (*unstructured.Unstructured, fields) {
	t.Helper()
	found, err := s.resource(o.Kind).Get(t.Context(), o.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var e entry
	e.observe(found)
	return found, e.fields
}

func (s *server) wantStatus(t *testing.T, o Object, want string) {
	t.Helper()
	soon(t, "the status of "+o.Name, func() (bool, string) {
		_, f := s.get(t, o)
		return says(f) == want, says(f) + ", want " + want
	})
}

// told waits until Events with these words are recorded, in this order and no others: they come after the write that they
// are about.
func (s *server) told(t *testing.T, wants ...string) {
	t.Helper()
	var list []string
	soon(t, "Events", func() (bool, string) {
		list = append(list, s.events.taken()...)
		return len(list) >= len(wants), fmt.Sprintf("%q", list)
	})
	if len(list) != len(wants) {
		t.Errorf("%d Events, want %d: %q", len(list), len(wants), list)
		return
	}
	for i, want := range wants {
		if !strings.Contains(list[i], want) {
			t.Errorf("Event %d is %q, want %q in it", i, list[i], want)
		}
	}
}

// TestAPIServer is the life of an install on a real API server, with the rights that
// the documentation of Controller names.
func TestAPIServer(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	namespace, otherNamespace := s.NewNamespace(t, nil), s.NewNamespace(t, nil)
	policy := s.create(t, "AdmissionPolicy", "restricted", map[string]any{"validationActions": []any{"Deny"}})
	token := s.create(t, "AccessToken", "ci", map[string]any{"user": "ci"})

	// Without any rights there is a line for each thing that cannot be done, and
	// nothing ends.
	counted := func(c *Config) {
		c.Policies = func() map[string]PolicyCount { return map[string]PolicyCount{"restricted": {5, 3}} }
	}
	a := s.start(t, namespace, "a", counted)
	a.Use(report("1", policy, token))
	soon(t, "a says what it lacks", func() (bool, string) {
		text := a.log.String()
		return strings.Count(text, `a Role in namespace \"`+namespace+`\" must allow`) == 2, text
	})
	s.allow(t, namespace)
	s.wantStatus(t, policy, "observed 1, "+healthy)
	s.wantStatus(t, token, "observed 1, "+healthy)

	// Another replica lags behind, and catches up.
	b := s.start(t, namespace, "b", counted)
	b.Use(report("1", policy, token))
	soon(t, "b reports", func() (bool, string) {
		list, err := s.Client().CoordinationV1().Leases(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: reportLabel + "=gatehouse"})
		if err != nil {
			t.Fatal(err)
		}
		for _, lease := range list.Items {
			counts, err := decodeCounts(lease.Annotations[countsAnnotation])
			if err != nil || counts["restricted"] != (PolicyCount{5, 3}) {
				t.Errorf("a Lease has the counts %v, %v", counts, err)
			}
		}
		return len(list.Items) == 2, fmt.Sprint(len(list.Items))
	})
	policy = s.edit(t, policy, `{"spec":{"validationActions":["Warn"]}}`)
	a.Use(report("2", policy, token))
	s.wantStatus(t, policy, "observed 2, Compiled True Compiled, Ready Unknown WaitingForReplicas, Degraded False Healthy")
	changed := time.Now()
	b.Use(report("2", policy, token))
	s.wantStatus(t, policy, "observed 2, "+healthy)
	// Not with the next report that would come anyway. A busy machine may take a while for the one that comes now.
	if took := time.Since(changed); took > reportPause+requestTimeout {
		t.Errorf("Ready came %s after the last replica", took)
	}
	s.told(t)

	// The fields of others in a status stay.
	used := `{"apiVersion":"gatehouse.dev/v1alpha1","kind":"AccessToken","status":{"lastUsed":"2026-01-01T00:00:00Z"}}`
	if _, err := s.resource("AccessToken").Patch(t.Context(), "ci", "application/apply-patch+yaml", []byte(used), metav1.PatchOptions{FieldManager: "last-used"}, "status"); err != nil {
		t.Fatal(err)
	}
	bad := Report{Digest: "3", Outcomes: []Outcome{invalid(token, Previous, "bad"), {Object: policy, Use: Current}}}
	a.Use(bad)
	b.Use(bad)
	s.wantStatus(t, token, "observed 1, Compiled False Invalid, Ready False PreviousVersionInUse, Degraded True PreviousVersionInUse")
	found, _ := s.get(t, token)
	if lastUsed, _, _ := unstructured.NestedString(found.Object, "status", "lastUsed"); lastUsed != "2026-01-01T00:00:00Z" {
		t.Errorf("lastUsed is %q", lastUsed)
	}
	s.told(t, "Warning Invalid AccessToken ci: spec: bad", "Warning PreviousVersionInUse AccessToken ci")

	// The leader leaves, and the other one goes on in its place.
	if !a.leads(t) {
		t.Fatal("a does not lead")
	}
	a.stop()
	soon(t, "b leads", func() (bool, string) { return b.leads(t), b.log.String() })
	before, _ := s.get(t, token)
	b.Use(report("4", token, policy))
	s.wantStatus(t, token, "observed 1, "+healthy)
	s.told(t, "Normal Compiled AccessToken ci")
	after, _ := s.get(t, token)
	if before.GetResourceVersion() == after.GetResourceVersion() {
		t.Error("nothing was written")
	}

	// Another install thinks otherwise.
	s.allow(t, otherNamespace)
	isOther := s.start(t, otherNamespace, "c")
	isOther.Use(Report{Digest: "1", Outcomes: []Outcome{invalid(policy, Unused, "unknown field")}})
	soon(t, "the other install says that there is another one", func() (bool, string) {
		text := isOther.log.String()
		return strings.Contains(text, `another install of Gatehouse, namespace/name \"`+namespace+`/gatehouse\"`), text
	})
	s.wantStatus(t, policy, "observed 2, "+healthy)
	s.told(t, "StatusContested")
	isOther.stop()

	// A definition loses its status, a right is taken away, and a definition goes.
	lacks(t, b, s, policy, token)
	b.stop()
	list, err := s.Client().CoordinationV1().Leases(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: reportLabel})
	if err != nil || len(list.Items) != 0 {
		t.Errorf("%d reports are left, %v", len(list.Items), err)
	}
}

// lacks takes from a process what it needs.
func lacks(t *testing.T, p *process, s *server, policy, token Object) {
	t.Helper()
	api := s.Client().RbacV1().ClusterRoles()
	role, err := api.Get(t.Context(), "gate", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rules := role.Rules
	role.Rules = rules[:1]
	if _, err := api.Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	soon(t, "it says that it lacks a right", func() (bool, string) {
		policy = s.edit(t, policy, fmt.Sprintf(`{"spec":{"x":%d}}`, policy.Generation))
		p.Use(report(fmt.Sprint("5-", policy.Generation), policy, token))
		text := p.log.String()
		return strings.Contains(text, "get and list of admissionpolicies and patch of admissionpolicies/status"), text
	})
	revocation := s.create(t, "TokenRevocation", "leaked", map[string]any{})
	if err := s.admin.Resource(definitionsResource).Delete(t.Context(), "tokenrevocations.gatehouse.dev", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	soon(t, "the kind is not served", func() (bool, string) {
		_, err := s.resource("TokenRevocation").List(t.Context(), metav1.ListOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	p.Use(report("6", policy, token, revocation))
	soon(t, "it says that a kind is not served", func() (bool, string) {
		text := p.log.String()
		return strings.Contains(text, "apply the CustomResourceDefinition tokenrevocations.gatehouse.dev"), text
	})
	role.ResourceVersion, role.Rules = "", rules
	if _, err := api.Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	withoutStatus := `[{"op":"remove","path":"/spec/versions/0/subresources"}]`
	if _, err := s.admin.Resource(definitionsResource).Patch(t.Context(), "accesstokens.gatehouse.dev", "application/json-patch+json", []byte(withoutStatus), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	soon(t, "it says that a kind has no status", func() (bool, string) {
		token = s.edit(t, token, fmt.Sprintf(`{"spec":{"x":%d}}`, token.Generation))
		p.Use(report(fmt.Sprint("7-", token.Generation), policy, token))
		text := p.log.String()
		return strings.Contains(text, errNoStatus.Error()) && strings.Contains(text, "apply the CustomResourceDefinition accesstokens.gatehouse.dev"), text
	})
}
